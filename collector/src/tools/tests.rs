use std::{process, sync::Arc};

use abi::{Kind, Tally, count::EvictionKey};
use model::Access;
use sys::pidfd::PidFd;

use super::{
    finder::Opener,
    testing::{copy, enqueue, gpu_fault, replay},
    *,
};

const A: Generation = FIRST_GENERATION;
const B: Generation = FIRST_GENERATION + 1;
const BLOCK: u64 = 0x7f00_0000_0000;

/// VA spaces A and B at the level of faults, and the queue of replays.
struct Node {
    spaces: BTreeMap<Generation, Space>,
    replays: Replays,
    sink: Sink,
}

impl Node {
    fn new() -> Self {
        let mut replays = Replays::default();
        drop(replays.begin(B + 1, Layout::Plain).unwrap());
        replays.watching();
        let sink = Sink { timeline: Some(Timeline::new(8)), ..Sink::default() };
        Self { spaces: [A, B].map(|generation| (generation, space(generation))).into(), replays, sink }
    }

    fn faults(&self, generation: Generation, address: u64, time_ns: u64, batch: u32) {
        let space = &self.spaces[&generation];
        enqueue(&space.memory, space.control_pages().nth(1).unwrap(), gpu_fault(address, time_ns, batch));
        space.memory.page(0).unwrap()[9].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn evicts(&self, victim: Generation, time_ns: u64) {
        let space = &self.spaces[&victim];
        enqueue(&space.memory, space.control_pages().next().unwrap(), copy(true, BLOCK, time_ns));
    }

    fn replays(&self, batch: u32, time_ns: u64) {
        enqueue(self.replays.memory(), 0, replay(batch, time_ns));
    }

    /// Two readings, the second of which completes the events of the first.
    fn read(&mut self, began_ns: u64) {
        for began_ns in [began_ns, began_ns + 1] {
            for (generation, space) in &mut self.spaces {
                space.take_totals(&Gpus::new(8));
                space.read_records(*generation, u32::MAX, &mut self.sink);
            }
            let lack_faults: Vec<_> = self
                .spaces
                .iter_mut()
                .filter_map(|(generation, space)| space.take_losses().lacks_faults.then_some(*generation))
                .collect();
            self.sink.advance(&mut self.replays, &lack_faults, &[], began_ns);
            for space in self.spaces.values_mut() {
                assert!(space.counts().all(|(_, tally)| tally != Tally::NONE));
            }
        }
    }

    /// Evicted bytes by victim and evictor; 0 for an unknown one.
    fn evicted(&self) -> Vec<(Generation, Generation, u64)> {
        let pairs = self.sink.timeline.as_ref().unwrap().evictions();
        let mut pairs: Vec<_> =
            pairs.map(|(EvictionKey { victim, evictor, .. }, tally)| (victim, evictor, tally.amount)).collect();
        pairs.sort_unstable();
        pairs
    }

    fn sum(&self, generation: Generation, kind: Kind) -> u64 {
        let counts = self.sink.timeline.as_ref().unwrap().counts();
        let of_kind = counts.filter(|(key, _)| key.generation == generation && key.kind == kind as u16);
        of_kind.map(|(_, tally)| tally.events).sum()
    }
}

fn space(generation: Generation) -> Space {
    let opener = Opener { pid: 7, start_ticks: 5, uid: 1000, comm: [0; 16] };
    let process = Arc::new(PidFd::open(process::id()).unwrap());
    let level = ToolsLevel::Faults;
    let found = ((7, 3), Duration::ZERO);
    let mut space = Space::new(opener, process, found, generation, &Gpus::new(8), (level, queues_of(level))).unwrap();
    assert!(space.counts_in(0));
    space
}

#[test]
fn memory_evicted_between_a_fault_and_its_replay_was_evicted_for_that_process() {
    let mut node = Node::new();
    node.faults(A, BLOCK, 100, 1);
    node.evicts(B, 110);
    node.replays(1, 120);
    node.evicts(B, 130);
    node.read(1000);
    assert_eq!(node.evicted(), [(B, 0, 4096), (B, A, 4096)]);
    assert_eq!(node.sum(A, Kind::Replay), 1);
    // A batch has ended when nothing of it came for a second.
    node.read(3_000_000_000);
    assert_eq!([Kind::BatchEntries, Kind::BatchNs].map(|kind| node.sum(A, kind)), [1, 1]);
}

#[test]
fn evictor_is_unknown_where_faults_of_another_process_were_dropped() {
    let mut node = Node::new();
    node.faults(A, BLOCK, 100, 1);
    for time_ns in 0..20_000 {
        node.faults(B, BLOCK + time_ns % 512 * 4096, 200 + time_ns, 2);
    }
    node.evicts(B, 30_000);
    node.evicts(A, 30_000);
    node.read(100_000);
    // B lost some. Those of A could have been between.
    assert_eq!(node.evicted(), [(A, B, 4096), (B, B, 4096)]);
    node.faults(A, BLOCK, 200_000, 3);
    node.evicts(B, 200_010);
    for time_ns in 0..20_000 {
        node.faults(B, BLOCK + time_ns % 512 * 4096, 300_000 + time_ns, 4);
    }
    node.read(400_000);
    assert_eq!(node.evicted(), [(A, B, 4096), (B, 0, 4096), (B, B, 4096)]);
}

#[test]
fn faults_whose_records_were_dropped_are_of_unknown_access_and_the_process_is_named() {
    let mut node = Node::new();
    for time_ns in 0..20_000 {
        node.faults(A, BLOCK + time_ns * 4096, time_ns, 1);
    }
    node.read(100_000);
    let space = node.spaces.get_mut(&A).unwrap();
    let mut by_access: Vec<_> = space
        .counts()
        .filter(|(key, _)| key.kind == Kind::GpuFault as u16)
        .map(|(key, tally)| (Access::ALL[usize::from(key.detail)], tally.events))
        .collect();
    by_access.sort_unstable();
    // One place of the queue stays free.
    assert_eq!(by_access, [(Access::Read, 16_383), (Access::Unknown, 3617)]);
    assert_eq!(space.losses().records.sampled_out, 3617);
    let now = Duration::from_secs(100);
    let mut full = FullQueues::default();
    full.add(&space.opener, space.losses().records, now);
    let states = full.degradations(&|_| Some("anna".to_owned()));
    let [state] = states.as_slice() else { panic!("{states:?}") };
    assert_eq!((state.reason, state.pid, state.user.as_deref()), (DegradedReason::QueueFull, Some(7), Some("anna")));
    assert!(state.description.contains("3617 records of GPU faults"), "{}", state.description);
    full.settle(now + Duration::from_secs(59));
    assert_eq!(full.degradations(&|_| None).len(), 1);
    full.settle(now + Duration::from_mins(1));
    assert!(full.degradations(&|_| None).is_empty());
}

#[test]
fn a_process_is_named_when_records_were_dropped_since_the_last_look() {
    let mut node = Node::new();
    node.faults(A, BLOCK, 1, 1);
    let look = |node: &mut Node| {
        let space = node.spaces.get_mut(&A).unwrap();
        space.take_totals(&Gpus::new(8));
        space.read_records(A, u32::MAX, &mut node.sink);
        let new = space.take_losses();
        (new.has_dropped, new.lacks_faults)
    };
    assert_eq!(look(&mut node), (false, false));
    for time_ns in 0..20_000 {
        node.faults(A, BLOCK, 10 + time_ns, 2);
    }
    assert_eq!([look(&mut node), look(&mut node)], [(true, true), (false, false)]);
}

#[test]
fn evictor_is_unknown_without_the_replays() {
    let mut node = Node::new();
    node.replays = Replays::default();
    node.faults(A, BLOCK, 100, 1);
    node.evicts(B, 110);
    node.read(1000);
    assert_eq!(node.evicted(), [(B, 0, 4096)]);
}

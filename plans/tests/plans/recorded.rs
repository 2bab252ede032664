//! Recorded runs of programs, with larger blocks than they had.

use std::path::Path;

use call_ring::{
    MemoryKind,
    call::Action,
    plan::{Destination, Move},
};
use plans::{Change, Follower, Planned, Refusal, Settings, State, methods};
use trace::{BlockId, OpKind, OpStream, ops::SyncKind};
use trace_sources::import::{self, Trace};

use super::Program;

const MIB: u64 = 1 << 20;

fn stream(name: &str) -> OpStream {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../offline/trace-sources/tests/samples/runs");
    match import::load(&folder.join(format!("{name}.json.gz"))).unwrap() {
        Trace::Ops(stream) => stream,
        other => panic!("{other:?}"),
    }
}

/// Calls of a run on managed memory, with blocks enlarged by a factor.
fn calls(stream: &OpStream, factor: u64) -> Program {
    calls_with(stream, factor, &|_| MemoryKind::Managed)
}

/// Calls of a run with memory of these kinds.
fn calls_with(stream: &OpStream, factor: u64, kind_of: &dyn Fn(BlockId) -> MemoryKind) -> Program {
    let mut next = 1 << 40;
    let addresses: Vec<u64> = stream
        .blocks()
        .values()
        .iter()
        .map(|block| {
            let address = next;
            next += (block.bytes * factor).next_multiple_of(2 * MIB);
            address
        })
        .collect();
    let mut program = Program::default();
    for op in stream.ops().values() {
        match op.kind {
            OpKind::Malloc(block) => {
                program.malloc_of(kind_of(block), addresses[block.0 as usize], stream.blocks()[block].bytes * factor);
            }
            OpKind::Free(block) => program.call(Action::Free { stream: 0, address: addresses[block.0 as usize] }),
            OpKind::Launch(launch) => {
                let launch = &stream.launches()[launch];
                let named = launch.arguments.iter();
                let named = named.map(|of| addresses[of.block.0 as usize] + of.offset_bytes.unwrap_or(0) * factor);
                program.launch(u64::from(launch.signature.0) + 1, &named.collect::<Vec<_>>());
            }
            OpKind::Sync(SyncKind::Context | SyncKind::Stream | SyncKind::Event | SyncKind::Copy) => program.sync(),
            OpKind::Read(_) | OpKind::Write(_) => {}
        }
    }
    program
}

fn followed(program: Program, gpu_mib: u64) -> (Follower, Vec<Change>) {
    followed_by("foresight", program, gpu_mib)
}

fn followed_by(method: &str, program: Program, gpu_mib: u64) -> (Follower, Vec<Change>) {
    let settings = Settings { user: 0, gpu: [1; 16], gpu_bytes: gpu_mib * MIB, has_fault_counts: false, probes: None };
    let mut follower = Follower::new(settings, vec![methods::by_name(method).unwrap()]);
    let changes = program.calls.into_iter().filter_map(|call| follower.add(call)).collect();
    (follower, changes)
}

#[test]
fn training_whose_memory_is_larger_than_the_gpu_has_a_plan() {
    // 40 MiB of parameters, gradients and moments, in layers of 2 MiB.
    let (follower, changes) = followed(calls(&stream("deep"), 1), 32);
    let planned = follower.planned().unwrap_or_else(|| panic!("{:?}", follower.state()));
    assert_eq!(changes, [Change::Planned]);
    assert!(planned.peak_bytes <= planned.room_bytes && planned.room_bytes == 26 * MIB);
    assert!(planned.traffic.bytes.total() < planned.traffic_without_plan.bytes.total());
    let (again, _) = followed(calls(&stream("deep"), 1), 32);
    assert_eq!(again.planned(), Some(planned));
}

#[test]
fn plan_uses_the_measured_capacity_if_known() {
    let [estimated, measured] = [None, Some(30 * MIB)].map(|capacity_bytes| {
        let settings = Settings { user: 0, gpu: [1; 16], gpu_bytes: 32 * MIB, has_fault_counts: false, probes: None };
        let mut follower = Follower::new(settings, methods::auto_plan_candidates());
        follower.set_capacity(capacity_bytes);
        for call in calls(&stream("deep"), 1).calls {
            follower.add(call);
        }
        follower.planned().unwrap().clone()
    });
    assert_eq!((estimated.room_bytes, measured.room_bytes), (26 * MIB, 30 * MIB));
    assert!(measured.peak_bytes <= 30 * MIB && measured.peak_bytes > estimated.peak_bytes);
    assert!(measured.traffic.bytes.total() < estimated.traffic.bytes.total());
}

/// Plan of a planner for a recorded run, on a GPU with this capacity.
fn planned(name: &str, planner: &str, capacity_mib: u64) -> Planned {
    let settings = Settings { user: 0, gpu: [1; 16], gpu_bytes: 64 * MIB, has_fault_counts: false, probes: None };
    let mut follower = Follower::new(settings, vec![methods::by_name(planner).unwrap()]);
    follower.set_capacity(Some(capacity_mib * MIB));
    for call in calls(&stream(name), 1).calls {
        follower.add(call);
    }
    follower.planned().unwrap_or_else(|| panic!("{name} {planner} {capacity_mib}: {:?}", follower.state())).clone()
}

#[test]
fn foresight_plans_copy_the_optimum_and_no_planner_copies_less() {
    // Working sets of 1.2, 1.5 and 2 times the GPU. Optima of an integer program of absences that
    // are the same in each iteration, solved with HiGHS.
    for (name, least) in [
        ("deep-8-addresses", [(42, 32.0), (32, 60.0), (24, 84.0)]),
        ("alexnet-8-addresses", [(42, 32.0), (32, 60.0), (24, 88.0)]),
        ("transformer-2-addresses", [(42, 32.0), (34, 60.0), (26, 96.0)]),
    ] {
        for (capacity_mib, least_mib) in least {
            let bytes = |planner| planned(name, planner, capacity_mib).traffic.bytes.total() as f64 / MIB as f64;
            assert!((bytes("foresight") - least_mib).abs() < 0.01, "{name} {capacity_mib}: {}", bytes("foresight"));
            for other in ["autoswap", "appobmem", "g10"] {
                assert!(bytes(other) >= bytes("foresight") - 0.01, "{name} {capacity_mib} {other}: {}", bytes(other));
            }
        }
    }
}

#[test]
fn partial_blocks_are_moved_by_prefetches_only() {
    // Of 53 MiB, 13 are in parts of blocks.
    let is_whole = |one: &Move| one.begin.is_multiple_of(2 * MIB) && one.bytes.is_multiple_of(2 * MIB);
    let moves = |planner| planned("transformer-2-addresses", planner, 34).moves;
    assert!(moves("foresight").iter().all(is_whole));
    assert!(moves("pump").iter().any(|one| !is_whole(one)));
}

#[test]
fn move_to_the_host_expires_when_the_fetch_begins() {
    let (follower, _) = followed(calls(&stream("deep"), 1), 32);
    let planned = follower.planned().unwrap();
    let period = u32::try_from(planned.tokens.len()).unwrap();
    let (leaving, coming): (Vec<&Move>, Vec<&Move>) =
        planned.moves.iter().partition(|one| one.destination == Destination::Host);
    assert!(!leaving.is_empty() && coming.iter().all(|one| one.expiry_op.is_none()));
    for one in leaving {
        let ahead = |op: u32| (op + period - one.begin_op - 1) % period + 1;
        let shares = |other: &&&Move| one.begin < other.begin + other.bytes && other.begin < one.begin + one.bytes;
        let back = coming.iter().filter(shares).map(|other| ahead(other.begin_op)).min();
        assert_eq!(one.expiry_op.map(ahead), back, "{one:?}");
        assert!(one.wait_op.map(ahead) <= back, "{one:?}");
    }
}

#[test]
fn modelled_driver_traffic_is_the_measured_one() {
    let (follower, _) = followed(calls(&stream("deep"), 1), 32);
    let bytes = follower.planned().unwrap().traffic_without_plan.bytes;
    // Measured: 42.2, 48.2 and 42.2 MiB in turn (docs/measurements/live-plans.md).
    assert_eq!((bytes.faulted, bytes.evicted), (46_377_670, 46_377_670));
}

#[test]
fn plan_copies_less_than_the_driver_on_smaller_gpus() {
    let both = |gpu_mib| {
        let (follower, _) = followed(calls(&stream("deep"), 1), gpu_mib);
        let planned = follower.planned().unwrap_or_else(|| panic!("{:?}", follower.state()));
        [planned.traffic, planned.traffic_without_plan].map(|traffic| traffic.bytes.total())
    };
    // Capacities of the small cards in docs/measurements/live-plans.md.
    assert_eq!(both(22), [128 * MIB, 150_328_744]);
    assert_eq!(both(24), [104 * MIB, 127_844_424]);
    assert_eq!(both(32), [52 * MIB, 92_755_340]);
}

/// Number of moves of a prefetch plan for that training; faulted pieces, and bytes, each with the
/// plan and of the driver.
fn prefetches(gpu_mib: u64) -> (usize, [u64; 2], [u64; 2]) {
    let (follower, _) = followed_by("pump", calls(&stream("deep"), 1), gpu_mib);
    let planned = follower.planned().unwrap_or_else(|| panic!("{:?}", follower.state()));
    let both = [planned.traffic, planned.traffic_without_plan];
    let (pieces, bytes) = (both.map(|traffic| traffic.faulted_pieces), both.map(|traffic| traffic.bytes.total()));
    (planned.moves.len(), pieces, bytes)
}

#[test]
fn prefetches_reduce_faults() {
    assert_eq!(prefetches(32), (99, [12, 33], [67_371_080, 92_755_340]));
}

#[test]
fn prefetches_use_the_queue_length_with_the_fewest_faults() {
    // With 36 MiB, a longer queue leaves 12; with 26 MiB, a queue of one leaves 16.
    assert_eq!((prefetches(36).1[0], prefetches(26).1[0]), (10, 14));
}

#[test]
fn prefetches_that_copy_over_a_twentieth_more_than_the_driver_are_refused() {
    let (follower, _) = followed_by("pump", calls(&stream("deep"), 1), 24);
    let refusal = Refusal::NoGain { planned_bytes: 134_496_352, driver_bytes: 127_844_424 };
    assert_eq!(follower.state(), &State::Refused(refusal));
}

#[test]
fn training_that_fits_has_no_plan() {
    let (follower, _) = followed(calls(&stream("deep"), 1), 120);
    assert!(matches!(follower.state(), State::Refused(Refusal::Fits { .. })), "{:?}", follower.state());
}

#[test]
fn oversized_launches_are_refused_and_another_batch_size_is_planned_anew() {
    let (follower, changes) = followed(calls(&stream("mlp-batch"), 16), 120);
    assert_eq!(changes, [Change::Refused, Change::Drifted, Change::Refused]);
    assert!(matches!(follower.state(), State::Refused(Refusal::OpTooLarge { .. })), "{:?}", follower.state());
}

#[test]
fn network_in_one_pool_is_refused_on_oversubscribed_gpus() {
    let stream = stream("burn");
    // The second block of 16 MiB is the host's: the loss is read into it.
    let of_host = stream.blocks().values().iter().rposition(|block| block.bytes == 16 * MIB).unwrap();
    let kind_of = |block: BlockId| if block.0 as usize == of_host { MemoryKind::Host } else { MemoryKind::Managed };
    // Extents of Burn's pool of 16 MiB reach to the next address in use.
    for gpu_mib in [24, 18] {
        let (follower, _) = followed(calls_with(&stream, 1, &kind_of), gpu_mib);
        assert!(matches!(follower.state(), State::Refused(Refusal::OpTooLarge { .. })), "{:?}", follower.state());
    }
    let (follower, _) = followed(calls_with(&stream, 1, &kind_of), 30);
    assert!(matches!(follower.state(), State::Refused(Refusal::Fits { .. })), "{:?}", follower.state());
}

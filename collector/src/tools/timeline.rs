//! Timeline of each GPU over all VA spaces: batches of faults, and evictors.
//!
//! Each VA space has its own queue. Their events are put in the order of their times here: a copy
//! is recorded when it has completed, with the time at which it began, so the events up to one
//! reading are complete at the end of the next.
//!
//! **Batches.** A batch is the entries of one number at a GPU. It ends with the first entry of the
//! next one, or later if its replay is recorded later. Its duration is from its first entry to its
//! last replay.
//!
//! **Evictors.** The fault handler of a GPU is one thread, which records the faults of a block
//! before it makes room for it. So memory that is evicted after a fault and before the replay of its
//! batch was evicted for that fault. This is inferred: an allocation of another process may have
//! evicted it at that moment. Between replay and next fault the evictor is unknown.
//!
//! **Losses.** Where records of faults were dropped, an evictor is inferred only if no other VA space
//! lost any, and the sizes of batches that may have had them are not observed. Replays of a VA space
//! are then a lower bound. Chunks have no record: of evictions, bytes alone are counted. Events beyond
//! those that may wait to be put in order are counted, and so is the VA space with the most of them.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
};

use abi::{
    CountKey, Kind, Tally,
    count::{EvictionCause, EvictionKey, bucket},
};
use sys::uvm::records::{Client, ProcessorIndex, Replay};

use super::tally::SharedEvent;
use crate::ledger::Generation;

/// Maximum of events that wait to be put in order. Further ones are taken for lost, and counted.
pub(super) const WAITING_MAX: usize = 1 << 18;
/// Maximum of evictors of one victim at a GPU. Further ones count as unknown.
const EVICTORS_MAX: usize = 64;
/// Maximum of batches of a GPU that wait for their replay.
const UNREPLAYED_MAX: usize = 64;
/// Time after which a batch without further events has ended.
const BATCH_ENDS_NS: u64 = 1_000_000_000;
/// Largest time ahead of the clock. The driver writes none; later ones count as this one.
const AHEAD_MAX_NS: u64 = 10_000_000_000;
/// Victim or evictor that is unknown, and VA space of a GPU that has serviced none.
const UNKNOWN: Generation = 0;

/// Event with its place in the order.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    time_ns: u64,
    generation: Generation,
    event: Event,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Fault { gpu: ProcessorIndex, client: Client, batch: u32 },
    Eviction { gpu: ProcessorIndex, bytes: u64 },
    Replay { gpu: ProcessorIndex, client: Client, batch: u32 },
}

/// VA spaces that lost records of faults, and whether replays were lost, between two readings.
#[derive(Debug, Default)]
struct Losses {
    faults: BTreeSet<Generation>,
    replays: bool,
}

/// Events that found no room to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unordered {
    /// VA space that had the most events waiting when room ended.
    pub(super) largest: Generation,
    pub(super) events: u64,
}

/// State of a GPU.
#[derive(Debug, Default)]
struct Gpu {
    /// VA space and client of the fault that is being serviced; `None` after its replay.
    faulting: Option<(Generation, Client)>,
    /// VA space of the last replayable fault.
    serviced: Generation,
    /// Current or last batch.
    batch: Option<Batch>,
    /// Earlier batches whose replay is still to be recorded, the oldest first.
    unreplayed: VecDeque<Batch>,
}

/// Batch of replayable faults.
#[derive(Debug)]
struct Batch {
    number: u32,
    began_ns: u64,
    /// Time of the last replay.
    replayed_ns: Option<u64>,
    /// Time of the last event.
    last_ns: u64,
    /// Entries by VA space.
    entries: BTreeMap<Generation, u64>,
}

/// Timeline of all GPUs.
#[derive(Debug)]
pub(super) struct Timeline {
    ids_per_gpu: u32,
    waiting: Vec<Waiting>,
    /// Events without room since the last call of [`Self::take_unordered`].
    unordered: Option<Unordered>,
    /// Time up to which events were put in order.
    ordered_ns: u64,
    /// Time of the last reading.
    read_ns: u64,
    /// Losses found by the last reading, and by the current one.
    losses: [Losses; 2],
    gpus: BTreeMap<ProcessorIndex, Gpu>,
    counts: HashMap<CountKey, Tally>,
    /// Evicted bytes by evictor, of each victim and its processor id.
    evictions: HashMap<(Generation, u32), BTreeMap<Generation, u64>>,
}

impl Timeline {
    /// Timeline on a driver with this number of processor ids for one physical GPU.
    pub(super) fn new(ids_per_gpu: u32) -> Self {
        Self {
            ids_per_gpu,
            waiting: Vec::new(),
            unordered: None,
            ordered_ns: 0,
            read_ns: 0,
            losses: Default::default(),
            gpus: BTreeMap::new(),
            counts: HashMap::new(),
            evictions: HashMap::new(),
        }
    }

    /// Adds an event of a VA space.
    pub(super) fn add(&mut self, generation: Generation, event: SharedEvent) {
        let (time_ns, event) = match event {
            SharedEvent::Fault { gpu, client, batch, time_ns } => (time_ns, Event::Fault { gpu, client, batch }),
            SharedEvent::Eviction { gpu, bytes, time_ns } => (time_ns, Event::Eviction { gpu, bytes }),
        };
        self.wait(Waiting { time_ns, generation, event });
    }

    /// Adds a replay, of which any VA space has all.
    pub(super) fn add_replay(&mut self, replay: &Replay) {
        let Replay { gpu, client, batch, time_ns } = *replay;
        self.wait(Waiting { time_ns, generation: UNKNOWN, event: Event::Replay { gpu, client, batch } });
    }

    /// Records that faults of a VA space were dropped since the last reading.
    pub(super) fn lost_faults(&mut self, generation: Generation) {
        let [_, current] = &mut self.losses;
        current.faults.insert(generation);
    }

    /// Records that replays were dropped since the last reading.
    pub(super) const fn lost_replays(&mut self) {
        let [_, current] = &mut self.losses;
        current.replays = true;
    }

    /// Ends a reading: puts the events up to the last reading in order. `now_ns`: time at which this
    /// reading began, before the driver wrote the records of completed copies.
    pub(super) fn advance(&mut self, now_ns: u64) {
        self.order(self.read_ns);
        // The end of a fault may be among the lost replays.
        if self.losses.iter().any(|losses| losses.replays) {
            self.gpus.values_mut().for_each(|gpu| gpu.faulting = None);
        }
        for waiting in &mut self.waiting {
            waiting.time_ns = waiting.time_ns.min(now_ns.saturating_add(AHEAD_MAX_NS));
        }
        let ended = self.ordered_ns.saturating_sub(BATCH_ENDS_NS);
        self.end_batches(|batch| batch.last_ns <= ended);
        self.read_ns = self.read_ns.max(now_ns);
        let [last, current] = &mut self.losses;
        *last = std::mem::take(current);
    }

    /// Puts all events in order, for the last counts of a VA space, unless these are final. What is
    /// recorded later about the time before is late, so that VA spaces which come and go without
    /// faults change nothing for others. To be called after the events of all VA spaces were added;
    /// `now_ns`: time of that.
    pub(super) fn finish(&mut self, generation: Generation, now_ns: u64) {
        if self.is_final(generation) {
            return;
        }
        let last = self.waiting.iter().map(|waiting| waiting.time_ns).max().unwrap_or_default();
        let before_ns = self.ordered_ns;
        self.order(u64::MAX);
        self.ordered_ns = last.min(now_ns).max(before_ns);
        self.end_batches(|batch| batch.entries.contains_key(&generation));
    }

    /// Whether no event that waits can add to the counts of a VA space.
    fn is_final(&self, generation: Generation) -> bool {
        let is_in = |gpu: &Gpu| {
            gpu.faulting.is_some_and(|(faulting, _)| faulting == generation)
                || gpu.serviced == generation
                || gpu.batch.iter().chain(&gpu.unreplayed).any(|batch| batch.entries.contains_key(&generation))
        };
        !self.waiting.iter().any(|waiting| waiting.generation == generation) && !self.gpus.values().any(is_in)
    }

    /// Sums of batches, replays and induced evictions.
    pub(super) fn counts(&self) -> impl Iterator<Item = (CountKey, Tally)> {
        self.counts.iter().map(|(key, tally)| (*key, *tally))
    }

    /// Evicted bytes by victim and evictor.
    pub(super) fn evictions(&self) -> impl Iterator<Item = (EvictionKey, Tally)> {
        self.evictions.iter().flat_map(|((victim, gpu), evictors)| {
            evictors.iter().map(|(evictor, bytes)| {
                let cause = if *evictor == UNKNOWN { EvictionCause::Other } else { EvictionCause::Fault };
                let key = EvictionKey { victim: *victim, evictor: *evictor, gpu: *gpu, cause: cause as u32 };
                (key, Tally { events: 0, amount: *bytes })
            })
        })
    }

    /// Forgets a VA space whose counts are final and read.
    pub(super) fn forget(&mut self, generation: Generation) {
        self.counts.retain(|key, _| key.generation != generation);
        self.evictions.retain(|(victim, _), _| *victim != generation);
        for evictors in self.evictions.values_mut() {
            evictors.remove(&generation);
        }
        self.waiting
            .retain(|waiting| waiting.generation != generation || matches!(waiting.event, Event::Replay { .. }));
        for gpu in self.gpus.values_mut() {
            gpu.faulting = gpu.faulting.filter(|(faulting, _)| *faulting != generation);
            if gpu.serviced == generation {
                gpu.serviced = UNKNOWN;
            }
            for batch in gpu.batch.iter_mut().chain(&mut gpu.unreplayed) {
                batch.entries.remove(&generation);
            }
        }
    }

    /// Events that found no room to wait since the last call.
    pub(super) const fn take_unordered(&mut self) -> Option<Unordered> {
        self.unordered.take()
    }

    fn wait(&mut self, waiting: Waiting) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push(waiting);
            return;
        }
        let Unordered { largest, events } =
            self.unordered.unwrap_or_else(|| Unordered { largest: self.largest(), events: 0 });
        self.unordered = Some(Unordered { largest, events: events.saturating_add(1) });
        match waiting.event {
            Event::Fault { .. } => self.lost_faults(waiting.generation),
            Event::Replay { .. } => {
                self.lost_replays();
                self.late(&waiting);
            }
            Event::Eviction { .. } => self.late(&waiting),
        }
    }

    /// VA space with the most waiting events.
    fn largest(&self) -> Generation {
        let mut numbers = BTreeMap::<Generation, usize>::new();
        for waiting in &self.waiting {
            *numbers.entry(waiting.generation).or_default() += 1;
        }
        numbers.into_iter().max_by_key(|(_, number)| *number).map_or(UNKNOWN, |(generation, _)| generation)
    }

    /// Puts the events up to a time in order.
    fn order(&mut self, until_ns: u64) {
        let mut waiting = std::mem::take(&mut self.waiting);
        // Stable: events of the same time stay in the order of their queue.
        waiting.sort_by_key(|waiting| waiting.time_ns);
        let at = waiting.partition_point(|waiting| waiting.time_ns <= until_ns);
        self.waiting = waiting.split_off(at);
        let late_ns = self.ordered_ns;
        for waiting in waiting {
            match waiting.time_ns.cmp(&late_ns) {
                Ordering::Less => self.late(&waiting),
                Ordering::Equal | Ordering::Greater => self.happened(&waiting),
            }
        }
        self.ordered_ns = self.ordered_ns.max(until_ns);
    }

    /// Adds an event that is later than others which have been put in order.
    fn late(&mut self, waiting: &Waiting) {
        let Waiting { generation, time_ns, event } = *waiting;
        match event {
            Event::Fault { .. } => self.lost_faults(generation),
            Event::Eviction { gpu, bytes } => self.evicted(gpu, generation, UNKNOWN, bytes),
            Event::Replay { gpu, client: Client::Gpc, batch } => self.replayed(gpu, batch, time_ns),
            Event::Replay { .. } => {}
        }
    }

    /// Adds the next event of a GPU.
    fn happened(&mut self, waiting: &Waiting) {
        let Waiting { generation, time_ns, event } = *waiting;
        match event {
            Event::Fault { gpu, client, batch } => {
                let state = self.gpus.entry(gpu).or_default();
                state.faulting = Some((generation, client));
                // Others are serviced one by one.
                if client != Client::Gpc {
                    return;
                }
                if let Some(ended) = state.batch.take_if(|current| current.number != batch) {
                    self.ended(gpu, ended);
                }
                let state = self.gpus.entry(gpu).or_default();
                state.serviced = generation;
                let current = state.batch.get_or_insert_with(|| Batch {
                    number: batch,
                    began_ns: time_ns,
                    replayed_ns: None,
                    last_ns: time_ns,
                    entries: BTreeMap::new(),
                });
                current.last_ns = time_ns;
                *current.entries.entry(generation).or_default() += 1;
            }
            Event::Eviction { gpu, bytes } => {
                let evictor = self.evictor(gpu);
                self.evicted(gpu, generation, evictor, bytes);
            }
            Event::Replay { gpu, client, batch } => {
                let state = self.gpus.entry(gpu).or_default();
                state.faulting = state.faulting.filter(|(_, faulting)| *faulting != client);
                if client == Client::Gpc {
                    self.replayed(gpu, batch, time_ns);
                }
            }
        }
    }

    /// Counts a replay for the GPU, and for the VA spaces with faults in its batch.
    fn replayed(&mut self, gpu: ProcessorIndex, number: u32, time_ns: u64) {
        let state = self.gpus.entry(gpu).or_default();
        let waiting = state.unreplayed.iter().position(|batch| batch.number == number);
        let ended = waiting.and_then(|at| state.unreplayed.remove(at));
        let mut batch = ended.or_else(|| state.batch.take_if(|batch| batch.number == number));
        if let Some(batch) = &mut batch {
            batch.replayed_ns = Some(time_ns);
            batch.last_ns = time_ns;
            for generation in batch.entries.keys() {
                self.sum(*generation, gpu, Kind::Replay, 0, Tally { events: 1, amount: 0 });
            }
        }
        match (waiting, batch) {
            (Some(_), Some(ended)) => self.observe(gpu, &ended),
            (None, Some(current)) => self.gpus.entry(gpu).or_default().batch = Some(current),
            (_, None) => {}
        }
        let serviced = self.gpus.get(&gpu).map_or(UNKNOWN, |state| state.serviced);
        self.sum(serviced, gpu, Kind::GpuReplay, 0, Tally { events: 1, amount: 0 });
    }

    /// VA space whose fault is being serviced at a GPU, as far as known.
    fn evictor(&self, gpu: ProcessorIndex) -> Generation {
        let Some((faulting, _)) = self.gpus.get(&gpu).and_then(|state| state.faulting) else { return UNKNOWN };
        let is_doubtful = |losses: &Losses| losses.replays || losses.faults.iter().any(|lost| *lost != faulting);
        if self.losses.iter().any(is_doubtful) { UNKNOWN } else { faulting }
    }

    /// Counts an eviction for both.
    fn evicted(&mut self, gpu: ProcessorIndex, victim: Generation, evictor: Generation, bytes: u64) {
        let evictors = self.evictions.entry((victim, gpu.id(self.ids_per_gpu))).or_default();
        let has_room = evictors.contains_key(&evictor) || evictors.len() < EVICTORS_MAX;
        let evictor = if has_room { evictor } else { UNKNOWN };
        let sum = evictors.entry(evictor).or_default();
        *sum = sum.saturating_add(bytes);
        if evictor != UNKNOWN {
            self.sum(evictor, gpu, Kind::InducedEviction, 0, Tally { events: 0, amount: bytes });
        }
    }

    /// Ends a batch, once it is replayed.
    fn ended(&mut self, gpu: ProcessorIndex, batch: Batch) {
        if batch.replayed_ns.is_some() {
            self.observe(gpu, &batch);
            return;
        }
        let unreplayed = &mut self.gpus.entry(gpu).or_default().unreplayed;
        unreplayed.push_back(batch);
        if unreplayed.len() > UNREPLAYED_MAX
            && let Some(oldest) = unreplayed.pop_front()
        {
            self.observe(gpu, &oldest);
        }
    }

    fn end_batches(&mut self, has_ended: impl Fn(&Batch) -> bool) {
        let mut ended = Vec::new();
        for (gpu, state) in &mut self.gpus {
            let (old, recent): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(&mut state.unreplayed).into_iter().partition(&has_ended);
            state.unreplayed = recent;
            ended.extend(old.into_iter().map(|batch| (*gpu, batch)));
            ended.extend(state.batch.take_if(|batch| has_ended(batch)).map(|batch| (*gpu, batch)));
        }
        for (gpu, batch) in ended {
            self.observe(gpu, &batch);
        }
    }

    /// Adds a batch that has ended to the distributions.
    fn observe(&mut self, gpu: ProcessorIndex, batch: &Batch) {
        let is_whole = self.losses.iter().all(|losses| losses.faults.is_empty() && !losses.replays);
        let duration_ns = batch.replayed_ns.filter(|_| is_whole).map(|end| end.saturating_sub(batch.began_ns));
        for (generation, entries) in &batch.entries {
            if self.losses.iter().all(|losses| !losses.faults.contains(generation)) {
                self.observe_one(*generation, gpu, Kind::BatchEntries, *entries);
            }
            if let Some(ns) = duration_ns {
                self.observe_one(*generation, gpu, Kind::BatchNs, ns);
            }
        }
        let serviced = self.gpus.get(&gpu).map_or(UNKNOWN, |state| state.serviced);
        if is_whole {
            self.observe_one(serviced, gpu, Kind::GpuBatchEntries, batch.entries.values().sum());
        }
        if let Some(ns) = duration_ns {
            self.observe_one(serviced, gpu, Kind::GpuBatchNs, ns);
        }
    }

    fn observe_one(&mut self, generation: Generation, gpu: ProcessorIndex, kind: Kind, value: u64) {
        self.sum(generation, gpu, kind, bucket(value), Tally { events: 1, amount: value });
    }

    fn sum(&mut self, generation: Generation, gpu: ProcessorIndex, kind: Kind, detail: u16, tally: Tally) {
        let key = CountKey { generation, gpu: gpu.id(self.ids_per_gpu), kind: kind as u16, detail };
        add(self.counts.entry(key).or_default(), tally);
    }
}

fn add(sum: &mut Tally, added: Tally) {
    sum.events = sum.events.saturating_add(added.events);
    sum.amount = sum.amount.saturating_add(added.amount);
}

#[cfg(test)]
mod tests;

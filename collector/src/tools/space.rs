//! A VA space with trackers, and its counts.

use std::{collections::BTreeMap, io, num::NonZeroUsize, os::fd::BorrowedFd, sync::Arc, time::Duration};

use abi::{CountKey, Lifecycle, LifecycleKind, Tally, count::RecordLosses};
use model::{GpuUuid, ToolsLevel};
use sys::{
    pidfd::PidFd,
    trackers::{Holder, HolderError, Memory},
    uvm::{
        Descriptor, Uuid,
        queue::{FULL_QUEUE_RECORDS, FullQueue, KindCounts, QueueError},
        records::{EventKind, Record},
        tracker::{Counters, Layout},
    },
};

use super::{
    finder::Opener,
    queue::{Queue, mask},
    sink::Sink,
    tally::{SpaceTally, Totals},
};
use crate::{
    gpus::Links,
    ledger::{Generation, Losses},
};

/// Maximum of GPUs with trackers of their own.
const GPUS_MAX: u32 = 32;
/// Page of the counters of all processors. Those of GPUs come after it.
const ALL: u32 = 0;
/// Control page of the queue that is full from the start, and its ring after it.
const FULL: u32 = ALL + 1 + GPUS_MAX;
const FULL_RECORDS: u32 = 2;
const _: () = assert!(FULL_RECORDS as usize == FULL_QUEUE_RECORDS);
/// First page of the queues that are read.
const QUEUES: u32 = FULL + 2;
/// Kinds that are counted by the full queue: none of them leaves the driver's thread anything to do.
const COUNTED: [EventKind; 4] =
    [EventKind::GpuFault, EventKind::Thrashing, EventKind::ThrottleStart, EventKind::MapRemote];
/// Kinds of records of the first queue. CPU faults are with the copies, as their order shows who uses
/// memory by turns; each waits for the copies before it, so that they cannot fill the queue alone.
const MOVES: [EventKind; 5] =
    [EventKind::Migration, EventKind::MapRemote, EventKind::ThrottleStart, EventKind::ThrottleEnd, EventKind::CpuFault];
/// Kinds of records of the second queue, so that many faults do not displace the copies.
const FAULTS: [EventKind; 1] = [EventKind::GpuFault];
/// Queues in the order in which a VA space has them.
const KINDS: [&[EventKind]; 2] = [&MOVES, &FAULTS];

/// Queues that a VA space has at a level.
pub(super) const fn queues_of(level: ToolsLevel) -> usize {
    match level {
        ToolsLevel::Counters | ToolsLevel::Kinds => 0,
        ToolsLevel::Moves => 1,
        ToolsLevel::Faults => 2,
    }
}

/// GPUs that the driver has shown, in their order.
#[derive(Debug)]
pub(super) struct Gpus {
    /// Processor ids of events for one physical GPU.
    ids_per_gpu: u32,
    seen: Vec<GpuUuid>,
    /// Last processor id of each, while no other GPU has it.
    ids: Vec<Option<u32>>,
}

impl Gpus {
    pub(super) const fn new(ids_per_gpu: u32) -> Self {
        Self { ids_per_gpu, seen: Vec::new(), ids: Vec::new() }
    }

    /// Adds the GPUs shown now. Whether there is a new one.
    pub(super) fn see(&mut self, links: &Links) -> bool {
        let before = self.seen.len();
        for (id, uuid) in links {
            match self.seen.iter().position(|seen| seen == uuid) {
                Some(at) => {
                    if let Some(last) = self.ids.get_mut(at) {
                        *last = Some(*id);
                    }
                }
                None if self.seen.len() < GPUS_MAX as usize => {
                    self.seen.push(*uuid);
                    self.ids.push(Some(*id));
                }
                None => {}
            }
        }
        for (uuid, last) in self.seen.iter().zip(&mut self.ids) {
            *last = last.filter(|id| links.get(id).is_none_or(|now| now == uuid));
        }
        self.seen.len() > before
    }

    const fn are_several(&self) -> bool {
        self.seen.len() > 1
    }

    /// Processor id of a GPU.
    fn id(&self, gpu: &GpuUuid) -> Option<u32> {
        let at = self.seen.iter().position(|seen| seen == gpu)?;
        self.ids.get(at).copied().flatten()
    }

    /// The only GPU.
    fn only(&self) -> Option<u32> {
        match self.ids.as_slice() {
            [id] => *id,
            _ => None,
        }
    }
}

/// Phase of a VA space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its holder was asked to count.
    Attaching,
    Counting,
    /// Its holder was asked to close its trackers.
    Releasing,
    /// Its counts are final.
    Ended,
}

/// Losses of records since the last look at them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NewLosses {
    /// Whether the driver dropped records.
    pub(super) has_dropped: bool,
    /// Whether there were GPU faults without a record that was read.
    pub(super) lacks_faults: bool,
}

/// VA space of a process.
pub(super) struct Space {
    pub(super) opener: Opener,
    pub(super) process: Arc<PidFd>,
    pub(super) memory: Memory,
    /// Place of its descriptor in the process.
    pub(super) place: Descriptor,
    /// The same in its holder, once it is held.
    held_at: Option<Descriptor>,
    /// Time since boot after which it was created.
    pub(super) created_after: Duration,
    phase: Phase,
    has_counted: bool,
    /// GPUs with a page of their own, of which the first is page 1. None while there is one GPU.
    gpus: Vec<GpuUuid>,
    /// Counters by processor id, and those of them by page. A VA space keeps the id of a GPU that it
    /// uses, and another GPU may have it after that.
    by_id: BTreeMap<u32, Counters>,
    by_page: Vec<Counters>,
    level: ToolsLevel,
    full: FullQueue,
    /// Reason why the full queue is not read any more.
    broken: Option<QueueError>,
    queues: Vec<Queue>,
    tally: SpaceTally,
    totals: Totals,
    /// GPU faults at the last call of [`Self::take_losses`].
    faults_before: u64,
}

impl Space {
    /// VA space of a process, of which nothing is counted yet. `created_after`: time since boot after
    /// which it was created; `queues`: number of queues that there is room for.
    pub(super) fn new(
        opener: Opener,
        process: Arc<PidFd>,
        (place, created_after): (Descriptor, Duration),
        generation: Generation,
        gpus: &Gpus,
        (level, queues): (ToolsLevel, usize),
    ) -> io::Result<Self> {
        let pages = QUEUES as usize + queues * Queue::pages();
        let memory = Memory::new(NonZeroUsize::new(pages).unwrap_or(NonZeroUsize::MIN))?;
        let control = memory.page(FULL as usize).unwrap_or_default();
        let control_pages = (QUEUES..).step_by(Queue::pages());
        let queues: Vec<_> =
            control_pages.zip(KINDS).take(queues).map(|(page, kinds)| Queue::new(page, kinds)).collect();
        let requested: Vec<_> = queues.iter().flat_map(Queue::kinds).copied().collect();
        Ok(Self {
            opener,
            process,
            place,
            created_after,
            held_at: None,
            phase: Phase::Attaching,
            has_counted: false,
            gpus: if gpus.are_several() { gpus.seen.clone() } else { Vec::new() },
            by_id: BTreeMap::new(),
            by_page: Vec::new(),
            level,
            full: FullQueue::new(control).map_err(io::Error::other)?,
            broken: None,
            queues,
            tally: SpaceTally::new(generation, gpus.ids_per_gpu, &requested),
            totals: Totals::default(),
            faults_before: 0,
            memory,
        })
    }

    /// Requests a holder to hold it, by this descriptor of it, and to count it.
    pub(super) fn attach(
        &self,
        holder: &mut Holder,
        generation: Generation,
        va_space: BorrowedFd<'_>,
        layout: Layout,
    ) -> Result<(), HolderError> {
        holder.hold(generation, va_space, &self.process, &self.memory)?;
        // The queues first: once the counters count, so does everything.
        let full = (self.level >= ToolsLevel::Kinds).then(|| (FULL, FULL_RECORDS, mask(&COUNTED)));
        for (page, records, kinds) in full.into_iter().chain(self.queues.iter().map(Queue::request)) {
            holder.watch(generation, page, layout, records, kinds)?;
        }
        self.pages().try_for_each(|(page, processor)| holder.count(generation, page, layout, processor))
    }

    /// Control pages of the queues that are read.
    #[cfg(test)]
    pub(super) fn control_pages(&self) -> impl Iterator<Item = usize> {
        self.queues.iter().map(|queue| queue.request().0 as usize)
    }

    /// Number of queues that are read.
    pub(super) const fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Reason why records of it are not read any more.
    pub(super) fn broken(&self) -> Option<QueueError> {
        self.broken.or_else(|| self.queues.iter().find_map(Queue::broken))
    }

    /// Pages of its memory, and the processor that each counts; the CPU stands for all.
    pub(super) fn pages(&self) -> impl Iterator<Item = (u32, Uuid)> {
        let of_gpus = (1..).zip(self.gpus.iter().map(|gpu| Uuid::from_bytes(gpu.0)));
        [(ALL, Uuid::CPU)].into_iter().chain(of_gpus)
    }

    /// Adds pages for GPUs that have none, and returns them.
    pub(super) fn add_gpus(&mut self, gpus: &Gpus) -> Vec<(u32, Uuid)> {
        if !gpus.are_several() || !self.is_held() {
            return Vec::new();
        }
        if let (true, Some(first)) = (self.gpus.is_empty(), gpus.ids.first()) {
            self.count_page(ALL, *first);
        }
        let from = self.gpus.len() + 1;
        self.gpus.clone_from(&gpus.seen);
        self.pages().skip(from).collect()
    }

    pub(super) const fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether a holder has it, or was asked to.
    pub(super) const fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Attaching | Phase::Counting)
    }

    /// Whether it has counts.
    pub(super) const fn has_counted(&self) -> bool {
        self.has_counted
    }

    /// Place of its descriptor in its holder, while that has it.
    pub(super) fn held_place(&self) -> Option<Descriptor> {
        self.held_at.filter(|_| self.is_held())
    }

    pub(super) const fn held_at(&mut self, place: Descriptor) {
        self.held_at = Some(place);
    }

    /// Records that a page counts. Whether the VA space counts from now on.
    pub(super) fn counts_in(&mut self, page: u32) -> bool {
        let begins = page == ALL && self.phase == Phase::Attaching;
        if begins {
            self.phase = Phase::Counting;
            self.has_counted = true;
        }
        begins
    }

    /// Whether its holder is to be asked to close its trackers.
    pub(super) const fn begin_release(&mut self) -> bool {
        let is_held = self.is_held();
        if is_held {
            self.phase = Phase::Releasing;
        }
        is_held
    }

    pub(super) const fn end(&mut self) {
        self.phase = Phase::Ended;
    }

    pub(super) fn lifecycle(&self, generation: Generation, kind: LifecycleKind) -> Lifecycle {
        let Opener { pid, uid, comm, .. } = self.opener;
        Lifecycle {
            generation,
            start_boottime_ns: self.opener.start_ns(),
            kind: kind as u32,
            tgid: pid,
            tid: pid,
            uid,
            comm,
            ..Lifecycle::default()
        }
    }

    fn page(&self, number: u32) -> Counters {
        self.memory.page(number as usize).map(Counters::of).unwrap_or_default()
    }

    /// Whether copies have begun whose records are not written.
    pub(super) fn has_pending(&self) -> bool {
        let Counters { bytes_htod, bytes_dtoh, .. } = self.page(ALL);
        !self.queues.is_empty() && self.is_held() && bytes_htod.saturating_add(bytes_dtoh) > self.tally.copied_bytes()
    }

    /// Reads at most `max` of the records of each queue so far, and returns how many.
    pub(super) fn read_records(&mut self, generation: Generation, max: u32, sink: &mut Sink) -> u32 {
        let Self { queues, memory, tally, .. } = self;
        let from = sink.blocks.len();
        let read = queues.iter_mut().map(|queue| {
            queue.read(memory, max, |record| {
                let event = tally.add(&record);
                let is_merged = matches!(record, Record::GpuFault(_)) && event.is_none();
                if let Some(event) = event {
                    sink.add_event(generation, event);
                }
                if let Some(block) = tally.block_record(&record).filter(|_| !is_merged) {
                    sink.add_block(block);
                }
            })
        });
        let read = read.fold(0, u32::saturating_add);
        sink.sort_blocks(from);
        read
    }

    /// Totals of the driver so far: to be taken before the records.
    pub(super) fn take_totals(&mut self, gpus: &Gpus) {
        let control = self.memory.page(FULL as usize).filter(|_| self.broken.is_none());
        let kinds = match control.map(|control| self.full.read(control)) {
            Some(Ok(kinds)) => kinds,
            Some(Err(error)) => {
                self.broken = Some(error);
                self.totals.kinds
            }
            None => self.totals.kinds,
        };
        self.queues.iter_mut().for_each(Queue::expect_records);
        let all = self.page(ALL);
        self.totals = Totals { all, gpus: self.at_gpus(gpus), kinds };
    }

    /// Counts of the totals taken last, and of the records read since. No count ever decreases.
    pub(super) fn counts(&mut self) -> impl Iterator<Item = (CountKey, Tally)> {
        // Without further records, the totals have all that is known.
        if self.phase == Phase::Ended {
            self.tally.finish(&self.totals);
        } else {
            let mut dropped = KindCounts::default();
            for queue in &self.queues {
                if queue.broken().is_some() {
                    self.tally.abandon(mask(queue.kinds()));
                } else if !queue.is_behind() {
                    // Else, what is left may be in the records to come.
                    dropped = dropped.plus(queue.dropped());
                }
            }
            self.tally.complete(&self.totals, &dropped);
        }
        self.tally.counts()
    }

    /// Losses of records since the last call. To be called after the records were read.
    pub(super) fn take_losses(&mut self) -> NewLosses {
        let mut new = NewLosses::default();
        let mut has_all_faults = false;
        for queue in &mut self.queues {
            let has_dropped = queue.has_dropped();
            new.has_dropped |= has_dropped;
            if queue.kinds() == FAULTS {
                new.lacks_faults = has_dropped;
                has_all_faults = !queue.is_behind() && queue.broken().is_none();
            }
        }
        let faults = self.totals.all.fault_entries;
        let has_faulted = std::mem::replace(&mut self.faults_before, faults) < faults;
        new.lacks_faults |= has_faulted && !has_all_faults;
        new
    }

    /// Records that were dropped as their queue was full: those of faults, and all others.
    pub(super) fn losses(&self) -> Losses {
        let mut records = RecordLosses::default();
        for queue in &self.queues {
            let dropped = queue.dropped().sum();
            *(if queue.kinds() == FAULTS { &mut records.sampled_out } else { &mut records.dropped }) += dropped;
        }
        Losses { events: 0, records }
    }

    /// Records that contradict the driver's types.
    pub(super) fn contradictions(&self) -> u64 {
        self.tally.contradictions().values().sum()
    }

    /// Counters by processor id.
    fn at_gpus(&mut self, gpus: &Gpus) -> Vec<(u32, Counters)> {
        if self.gpus.is_empty() {
            self.count_page(ALL, gpus.only());
        }
        let ids: Vec<_> = self.gpus.iter().map(|gpu| gpus.id(gpu)).collect();
        for (page, id) in (1..).zip(ids) {
            self.count_page(page, id);
        }
        self.by_id.iter().map(|(id, counters)| (*id, *counters)).collect()
    }

    /// Adds what a page counts anew to the processor that it belongs to; later, if that is unknown.
    fn count_page(&mut self, page: u32, id: Option<u32>) {
        let Some(id) = id else { return };
        let (at, now) = (page as usize, self.page(page));
        if self.by_page.len() <= at {
            self.by_page.resize(at + 1, Counters::default());
        }
        let Some(counted) = self.by_page.get_mut(at) else { return };
        let increase = combine(now, *counted, u64::saturating_sub);
        *counted = now;
        let counters = self.by_id.entry(id).or_default();
        *counters = combine(*counters, increase, u64::saturating_add);
    }
}

/// Counters from each two of them.
fn combine(one: Counters, other: Counters, by: fn(u64, u64) -> u64) -> Counters {
    Counters {
        fault_entries: by(one.fault_entries, other.fault_entries),
        cpu_faults: by(one.cpu_faults, other.cpu_faults),
        bytes_htod: by(one.bytes_htod, other.bytes_htod),
        bytes_dtoh: by(one.bytes_dtoh, other.bytes_dtoh),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap as Map, sync::atomic::Ordering};

    use abi::{Kind, block::RecordKind};

    use super::{
        super::{
            tally::UNKNOWN_PROCESSOR,
            testing::{copy, cpu_fault, enqueue, gpu_fault},
        },
        *,
    };

    const A: GpuUuid = GpuUuid([1; 16]);
    const B: GpuUuid = GpuUuid([2; 16]);

    fn space(gpus: &Gpus) -> Space {
        space_at(ToolsLevel::Moves, gpus)
    }

    fn space_at(level: ToolsLevel, gpus: &Gpus) -> Space {
        let opener = Opener { pid: 7, start_ticks: 5, uid: 1000, comm: [0; 16] };
        let process = PidFd::open(std::process::id()).unwrap();
        let level = (level, queues_of(level));
        let mut space = Space::new(opener, Arc::new(process), ((7, 3), Duration::ZERO), FIRST, gpus, level).unwrap();
        assert!(space.counts_in(ALL));
        space
    }

    /// Adds GPU faults to a page, as the driver does.
    fn fault(space: &Space, page: usize, faults: u64) {
        space.memory.page(page).unwrap()[9].fetch_add(faults, Ordering::Relaxed);
    }

    fn faults(space: &mut Space, gpus: &Gpus) -> Map<u32, u64> {
        space.take_totals(gpus);
        let counts = space.counts().filter(|(key, _)| key.kind == Kind::GpuFault as u16);
        counts.map(|(key, tally)| (key.gpu, tally.events)).collect()
    }

    const FIRST: Generation = 1 << 63;

    #[test]
    fn all_counts_are_those_of_the_only_gpu() {
        let mut gpus = Gpus::new(8);
        let mut space = space(&gpus);
        assert!(gpus.see(&[(1, A)].into()));
        fault(&space, 0, 5);
        assert_eq!(faults(&mut space, &gpus), [(1, 5)].into());
        // Another id of it has only what follows.
        gpus.see(&[(4, A)].into());
        fault(&space, 0, 2);
        assert_eq!(faults(&mut space, &gpus), [(1, 5), (4, 2)].into());
    }

    #[test]
    fn counts_before_another_gpu_is_shown_stay_at_the_first_one() {
        let mut gpus = Gpus::new(8);
        gpus.see(&[(1, A)].into());
        let mut space = space(&gpus);
        fault(&space, 0, 5);
        assert!(gpus.see(&[(1, A), (2, B)].into()));
        assert_eq!(space.add_gpus(&gpus).iter().map(|(page, _)| *page).collect::<Vec<_>>(), [1, 2]);
        assert!(space.add_gpus(&gpus).is_empty());
        // Two of its faults are before the tracker of their GPU.
        for (page, count) in [(0, 9), (1, 3), (2, 4)] {
            fault(&space, page, count);
        }
        assert_eq!(faults(&mut space, &gpus), [(1, 8), (2, 4), (UNKNOWN_PROCESSOR, 2)].into());
    }

    #[test]
    fn counts_stay_at_the_id_that_a_gpu_had() {
        let mut gpus = Gpus::new(8);
        gpus.see(&[(1, A), (2, B)].into());
        let mut space = space(&gpus);
        fault(&space, 0, 3);
        fault(&space, 1, 1);
        fault(&space, 2, 2);
        assert_eq!(faults(&mut space, &gpus), [(1, 1), (2, 2)].into());
        // Both were released, and B is used again, as the first GPU.
        gpus.see(&[(1, B)].into());
        assert_eq!(faults(&mut space, &gpus), [(1, 1), (2, 2)].into());
        fault(&space, 0, 4);
        fault(&space, 2, 4);
        assert_eq!(faults(&mut space, &gpus), [(1, 5), (2, 2)].into());
        // And A as the third.
        gpus.see(&[(1, B), (3, A)].into());
        fault(&space, 0, 6);
        fault(&space, 1, 6);
        assert_eq!(faults(&mut space, &gpus), [(1, 5), (2, 2), (3, 6)].into());
    }

    #[test]
    fn counts_of_no_gpu_never_decrease() {
        let mut gpus = Gpus::new(8);
        gpus.see(&[(1, A), (2, B)].into());
        let mut space = space(&gpus);
        fault(&space, 0, 2);
        assert_eq!(faults(&mut space, &gpus), [(UNKNOWN_PROCESSOR, 2)].into());
        // The driver adds to one page after the other.
        fault(&space, 1, 3);
        assert_eq!(faults(&mut space, &gpus), [(1, 3), (UNKNOWN_PROCESSOR, 2)].into());
        fault(&space, 0, 3);
        assert_eq!(faults(&mut space, &gpus), [(1, 3), (UNKNOWN_PROCESSOR, 2)].into());
    }

    #[test]
    fn rest_of_a_total_is_of_unknown_cause_only_when_no_records_are_left() {
        let mut gpus = Gpus::new(8);
        gpus.see(&[(1, A)].into());
        let mut space = space(&gpus);
        // 8 KiB were copied; one record of a copy was dropped, and two others are in the queue.
        space.memory.page(ALL as usize).unwrap()[0].store(8192, Ordering::Relaxed);
        let control = space.memory.page(QUEUES as usize).unwrap();
        control[1].store(2 << 32 | 2, Ordering::Relaxed);
        control[2 + usize::from(EventKind::Migration.number())].store(1, Ordering::Relaxed);
        let unknown_bytes = |space: &mut Space, max| {
            space.take_totals(&gpus);
            space.read_records(FIRST, max, &mut Sink::default());
            space.counts().map(|(_, tally)| tally.amount).sum::<u64>()
        };
        let by_reading = [1, 1, 9].map(|max| unknown_bytes(&mut space, max));
        assert_eq!(by_reading, [0, 8192, 8192]);
    }

    #[test]
    fn each_level_has_its_queues() {
        let kinds = |level| {
            let space = space_at(level, &Gpus::new(8));
            space.queues.iter().map(|queue| queue.kinds().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(kinds(ToolsLevel::Counters), Vec::<Vec<_>>::new());
        assert_eq!(kinds(ToolsLevel::Kinds), Vec::<Vec<_>>::new());
        assert_eq!(kinds(ToolsLevel::Moves), [MOVES.to_vec()]);
        assert_eq!(kinds(ToolsLevel::Faults), [MOVES.to_vec(), FAULTS.to_vec()]);
    }

    #[test]
    fn block_records_of_both_queues_are_in_the_order_of_time() {
        let space = &mut space_at(ToolsLevel::Faults, &Gpus::new(8));
        let pages: Vec<_> = space.control_pages().collect();
        // The driver writes a copy when it has completed.
        enqueue(&space.memory, pages[0], cpu_fault(0x7f00_0000_1234, 50));
        enqueue(&space.memory, pages[0], copy(false, 0x7f00_0000_0000, 20));
        for (address, batch) in
            [(0x7f00_0000_0000, 1), (0x7f00_0001_0000, 1), (0x7f00_0020_0000, 1), (0x7f00_0000_0000, 2)]
        {
            enqueue(&space.memory, pages[1], gpu_fault(address, 9 + u64::from(batch), batch));
        }
        let mut sink = Sink::default();
        assert_eq!(space.read_records(FIRST, u32::MAX, &mut sink), 6);
        let records: Vec<_> = sink.blocks.iter().map(|record| (record.kind, record.address, record.events)).collect();
        let (faults, copied, cpu) =
            (RecordKind::GpuFaults as u16, RecordKind::CopyHtod as u16, RecordKind::CpuFault as u16);
        let (one, other) = (0x7f00_0000_0000, 0x7f00_0020_0000);
        // Consecutive faults of a batch at a block are one record.
        assert_eq!(records, [(faults, one, 2), (faults, other, 1), (faults, one, 1), (copied, one, 1), (cpu, one, 1)]);
        assert_eq!((sink.blocks[0].slots, sink.blocks[0].cause, sink.blocks[2].cause), (0b11, 1, 2));
    }
}

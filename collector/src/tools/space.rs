//! A VA space with trackers, and its counts.

use std::{collections::BTreeMap, io, num::NonZeroUsize, sync::Arc};

use abi::{BlockRecord, CountKey, Lifecycle, LifecycleKind, Tally};
use model::GpuUuid;
use sys::{
    pidfd::PidFd,
    trackers::Memory,
    uvm::{
        Descriptor, Uuid,
        queue::{FULL_QUEUE_RECORDS, FullQueue, KindCounts, QueueError, QueueMemory, QueueReader},
        records::EventKind,
        tracker::Counters,
    },
};

use super::{
    finder::Opener,
    tally::{SpaceTally, Totals},
};
use crate::{gpus::Links, ledger::Generation};

/// Maximum of GPUs with trackers of their own.
const GPUS_MAX: u32 = 32;
/// Page of the counters of all processors. Those of GPUs come after it.
const ALL: u32 = 0;
/// Control page of the queue that is full from the start, and its ring after it.
const FULL: u32 = ALL + 1 + GPUS_MAX;
const FULL_RECORDS: u32 = 2;
const _: () = assert!(FULL_RECORDS as usize == FULL_QUEUE_RECORDS);
/// Control page of the queue that is read, and its ring after it.
const QUEUE: u32 = FULL + 2;
/// Records of that queue: 1 MiB. Copies of 64 KiB at the full rate of a link fill it in 40 ms.
const QUEUE_RECORDS: u32 = 16_384;
/// Maximum of records that one reading takes, so that a fast writer cannot keep it busy.
const READ_MAX: u32 = 2 * QUEUE_RECORDS;
/// Kinds that are counted by the full queue: none of them leaves the driver's thread anything to do.
const COUNTED: [EventKind; 4] =
    [EventKind::GpuFault, EventKind::Thrashing, EventKind::ThrottleStart, EventKind::MapRemote];
/// Kinds whose records are read.
const READ: [EventKind; 4] =
    [EventKind::Migration, EventKind::MapRemote, EventKind::ThrottleStart, EventKind::ThrottleEnd];

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

/// VA space of a process.
pub(super) struct Space {
    pub(super) opener: Opener,
    pub(super) process: Arc<PidFd>,
    pub(super) memory: Memory,
    /// Place of its descriptor in the process.
    pub(super) place: Descriptor,
    /// The same in its holder, once it is held.
    held_at: Option<Descriptor>,
    phase: Phase,
    has_counted: bool,
    /// GPUs with a page of their own, of which the first is page 1. None while there is one GPU.
    gpus: Vec<GpuUuid>,
    /// Counters by processor id, and those of them by page. A VA space keeps the id of a GPU that it
    /// uses, and another GPU may have it after that.
    by_id: BTreeMap<u32, Counters>,
    by_page: Vec<Counters>,
    full: FullQueue,
    queue: QueueReader,
    tally: SpaceTally,
    totals: Totals,
    /// Whether records were left since the totals were taken.
    is_behind: bool,
    /// Whether it has a queue that is read.
    has_queue: bool,
    /// Reason why a queue is not read any more.
    broken: Option<QueueError>,
}

impl Space {
    /// VA space of a process, of which nothing is counted yet. `has_queue`: whether there is room
    /// for a queue that is read.
    pub(super) fn new(
        opener: Opener,
        process: Arc<PidFd>,
        place: Descriptor,
        generation: Generation,
        gpus: &Gpus,
        has_queue: bool,
    ) -> io::Result<Self> {
        let ring_pages = if has_queue { Memory::pages_of_ring(QUEUE_RECORDS as usize) } else { 0 };
        let memory = Memory::new(NonZeroUsize::MIN.saturating_add(QUEUE as usize + ring_pages))?;
        let control = memory.page(FULL as usize).unwrap_or_default();
        Ok(Self {
            opener,
            process,
            place,
            held_at: None,
            phase: Phase::Attaching,
            has_counted: false,
            gpus: if gpus.are_several() { gpus.seen.clone() } else { Vec::new() },
            by_id: BTreeMap::new(),
            by_page: Vec::new(),
            full: FullQueue::new(control).map_err(io::Error::other)?,
            queue: QueueReader::new(),
            tally: SpaceTally::new(generation, gpus.ids_per_gpu, if has_queue { &READ } else { &[] }),
            totals: Totals::default(),
            is_behind: false,
            has_queue,
            broken: None,
            memory,
        })
    }

    /// Queues of its memory: control page, records and kinds.
    pub(super) fn queues(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        let mask = |kinds: [EventKind; 4]| kinds.iter().fold(0, |mask, kind| mask | kind.mask());
        let full = (FULL, FULL_RECORDS, mask(COUNTED));
        [full].into_iter().chain(self.has_queue.then(|| (QUEUE, QUEUE_RECORDS, mask(READ))))
    }

    /// Whether it has a queue that is read.
    pub(super) const fn has_queue(&self) -> bool {
        self.has_queue
    }

    /// Reason why records of it are not read any more.
    pub(super) const fn broken(&self) -> Option<QueueError> {
        self.broken
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
        let Opener { pid, start_ticks, uid, comm } = self.opener;
        let tick_ns = 1_000_000_000 / procfs::ticks_per_second().max(1);
        Lifecycle {
            generation,
            start_boottime_ns: start_ticks.saturating_mul(tick_ns),
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
        self.has_queue && self.is_held() && bytes_htod.saturating_add(bytes_dtoh) > self.tally.copied_bytes()
    }

    /// Reads at most `max` of the records so far, and returns how many. `take`: their events at blocks. `raw_to_boot_ns`: to be added to
    /// times of the driver's clock.
    pub(super) fn read_records(&mut self, max: u32, raw_to_boot_ns: u64, take: &mut dyn FnMut(BlockRecord)) -> u32 {
        if !self.has_queue || self.broken.is_some() {
            return 0;
        }
        let ring = self.memory.ring(QUEUE as usize + 1, QUEUE_RECORDS as usize);
        let Some((control, ring)) = self.memory.page(QUEUE as usize).zip(ring) else { return 0 };
        let tally = &mut self.tally;
        let read = QueueMemory::new(control, ring).and_then(|memory| {
            self.queue.read(&memory, max.min(READ_MAX), |record| {
                tally.add(&record);
                if let Some(record) = tally.block_record(&record) {
                    let boottime_ns = record.boottime_ns.wrapping_add(raw_to_boot_ns);
                    take(BlockRecord { boottime_ns, ..record });
                }
            })
        });
        match read {
            Ok(reading) => {
                self.is_behind = reading.left() > 0;
                reading.read
            }
            Err(error) => {
                self.broken = Some(error);
                0
            }
        }
    }

    /// Totals of the driver so far: to be taken before the records.
    pub(super) fn take_totals(&mut self, gpus: &Gpus) {
        let kinds = match self.memory.page(FULL as usize).map(|control| self.full.read(control)) {
            Some(Ok(kinds)) => kinds,
            Some(Err(error)) => {
                self.broken = Some(error);
                self.totals.kinds
            }
            None => self.totals.kinds,
        };
        self.is_behind = self.has_queue;
        let all = self.page(ALL);
        self.totals = Totals { all, gpus: self.at_gpus(gpus), kinds };
    }

    /// Counts of the totals taken last, and of the records read since. No count ever decreases.
    pub(super) fn counts(&mut self) -> impl Iterator<Item = (CountKey, Tally)> {
        // Without further records, the totals have all that is known.
        if self.phase == Phase::Ended || self.broken.is_some() {
            self.tally.finish(&self.totals);
        } else {
            // What is left may be in the records to come.
            let none = KindCounts::default();
            self.tally.complete(&self.totals, if self.is_behind { &none } else { self.queue.dropped() });
        }
        self.tally.counts()
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

    use abi::Kind;

    use super::{super::tally::UNKNOWN_PROCESSOR, *};

    const A: GpuUuid = GpuUuid([1; 16]);
    const B: GpuUuid = GpuUuid([2; 16]);

    fn space(gpus: &Gpus) -> Space {
        let opener = Opener { pid: 7, start_ticks: 5, uid: 1000, comm: [0; 16] };
        let process = PidFd::open(std::process::id()).unwrap();
        let mut space = Space::new(opener, Arc::new(process), (7, 3), FIRST, gpus, true).unwrap();
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
        let control = space.memory.page(QUEUE as usize).unwrap();
        control[1].store(2 << 32 | 2, Ordering::Relaxed);
        control[2 + usize::from(EventKind::Migration.number())].store(1, Ordering::Relaxed);
        let unknown_bytes = |space: &mut Space, max| {
            space.take_totals(&gpus);
            space.read_records(max, 0, &mut |_| {});
            space.counts().map(|(_, tally)| tally.amount).sum::<u64>()
        };
        let by_reading = [1, 1, 9].map(|max| unknown_bytes(&mut space, max));
        assert_eq!(by_reading, [0, 8192, 8192]);
    }
}

//! Counts of one VA space, from records of the driver's tools interface and the driver's totals.
//!
//! Keys and values are those of the probes ([`abi::Kind`]), and so are their definitions. Records
//! have the details: access, cause, processor. Totals are complete, even where records were dropped
//! or are not requested. What totals have and records lack is counted as of unknown access, cause
//! or processor; records are never scaled. What neither has, has no key.
//!
//! | kind | records | totals |
//! | --- | --- | --- |
//! | `GpuFault`, `GpuFaultDuplicate` | all, by access | entries and instances of both |
//! | `CpuFault` | all, by access | number |
//! | `CopyHtod`, `CopyDtoh` | all, by cause | bytes |
//! | `CopyDtod`, `HtodMigrationBytes`, `DtohMigrationBytes` | all | none |
//! | `Thrashing` | all | number |
//! | `Throttle` | all, by processor | number |
//! | `MapRemote` | all, by processor and cause | number |
//!
//! Some details are coarser than those of the probes. Every atomic is counted as a strong one.
//! Causes of copies are those of the tools interface, where the bytes of faults include those of
//! calls about range groups, and the bytes of calls include those of other processes' calls.
//!
//! Every sum is monotonic. A copy is in the totals when it begins, and in a record when it has
//! completed, and a reading may leave records for the next one. So where records are requested, the
//! rest of a total is unknown only if some were dropped, and not before the next reading.

use std::collections::{BTreeMap, HashMap, VecDeque};

use abi::{
    BlockRecord, CountKey, Kind, SelfTest, Tally,
    block::{BLOCK_BYTES, RecordKind, slots},
    count::{UNKNOWN_ACCESS, UNKNOWN_CAUSE, bucket},
};
use sys::uvm::{
    queue::KindCounts,
    records::{
        Access, Client, CpuFault, EventKind, GpuFault, MapRemote, Migration, MigrationCause, ProcessorIndex, Record,
        Region, Throttle,
    },
    tracker::Counters,
};

/// Processor id of events whose processor is unknown. The driver has no such id.
pub(super) const UNKNOWN_PROCESSOR: u32 = u32::MAX;

/// Granularity of fault addresses and copies on every machine; some have larger pages.
const PAGE_BYTES: u64 = 4096;
/// Maximum of physical GPUs that the driver supports.
const GPUS: u8 = 32;
/// Largest cause of a remote mapping, as in the probes; larger values count as this one.
const REMOTE_CAUSE_MAX: u8 = 6;
/// Maximum of throttles whose end is awaited. The driver does not report every end: beyond the
/// maximum the oldest are forgotten, and their time is not counted.
const THROTTLES_MAX: usize = 256;

/// The driver's totals of a VA space since its attachment, read before the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Counters of all processors.
    pub(super) all: Counters,
    /// Counters of GPUs, by processor id. Read after those of all processors.
    pub(super) gpus: Vec<(u32, Counters)>,
    /// Counts of a full queue, by kind; 0 for kinds that it has not requested.
    pub(super) kinds: KindCounts,
}

/// Event that is part of a GPU's history, which several VA spaces share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedEvent {
    /// Fault entry.
    Fault {
        /// GPU.
        gpu: ProcessorIndex,
        /// Client of the GPU.
        client: Client,
        /// Number of the batch.
        batch: u32,
        /// Time at which the driver began to service it.
        time_ns: u64,
    },
    /// Copy of evicted memory from a GPU to the host.
    Eviction {
        /// GPU.
        gpu: ProcessorIndex,
        /// Bytes.
        bytes: u64,
        /// Time at which it began.
        time_ns: u64,
    },
}

/// Counts of one VA space.
#[derive(Debug)]
pub(super) struct SpaceTally {
    generation: u64,
    ids_per_gpu: u32,
    /// Kinds of records that are requested, as a mask.
    requested: u64,
    sums: HashMap<CountKey, Tally>,
    parts: Parts,
    parts_of_gpus: BTreeMap<u32, GpuParts>,
    /// Last fault entry of each GPU and client, whose handlers write at the same time.
    entries: BTreeMap<(ProcessorIndex, Client), Entry>,
    /// Throttles whose end is awaited, the oldest first.
    throttles: VecDeque<Throttle>,
    contradictions: BTreeMap<SelfTest, u64>,
}

/// Fault entry, and the kind under which it is counted.
#[derive(Clone, Copy, Debug)]
struct Entry {
    fault: GpuFault,
    key: CountKey,
}

/// Counted part of each total of a GPU, or of all.
#[derive(Debug, Default)]
struct GpuParts {
    entries: Part,
    bytes_htod: Part,
    bytes_dtoh: Part,
}

/// Counted part of each total.
#[derive(Debug, Default)]
struct Parts {
    all: GpuParts,
    instances: Part,
    cpu_faults: Part,
    thrashing_pages: Part,
    throttles: Part,
    remote_mappings: Part,
}

/// Counted part of a total: by records, and as unknown.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    counted: u64,
    /// Total of the last reading.
    last_total: u64,
}

/// Part of a total that must be in records by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// All of it.
    All,
    /// The total of the last reading.
    Last,
    /// What is not there will be: nothing was dropped.
    Nothing,
}

impl Part {
    fn count(&mut self, events: u64) {
        self.counted = self.counted.saturating_add(events);
    }

    /// Counts the rest of a total, and returns it.
    fn complete(&mut self, total: u64, expected: Expected) -> u64 {
        let last_total = std::mem::replace(&mut self.last_total, total);
        let total = match expected {
            Expected::All => total,
            Expected::Last => last_total,
            Expected::Nothing => 0,
        };
        let rest = total.saturating_sub(self.counted);
        self.count(rest);
        rest
    }
}

impl GpuParts {
    fn count(&mut self, counters: &Counters) {
        self.entries.count(counters.fault_entries);
        self.bytes_htod.count(counters.bytes_htod);
        self.bytes_dtoh.count(counters.bytes_dtoh);
    }

    /// Counts the rest of a GPU's counters, and returns it.
    fn complete(&mut self, counters: &Counters, faults: Expected, copies: Expected) -> Counters {
        Counters {
            fault_entries: self.entries.complete(counters.fault_entries, faults),
            bytes_htod: self.bytes_htod.complete(counters.bytes_htod, copies),
            bytes_dtoh: self.bytes_dtoh.complete(counters.bytes_dtoh, copies),
            ..Counters::default()
        }
    }
}

impl SpaceTally {
    /// Counts of a VA space whose events have this generation, on a driver with this number of
    /// processor ids for one physical GPU. `requested`: kinds of records that will be added.
    pub(super) fn new(generation: u64, ids_per_gpu: u32, requested: &[EventKind]) -> Self {
        Self {
            generation,
            ids_per_gpu,
            requested: requested.iter().fold(0, |mask, kind| mask | kind.mask()),
            sums: HashMap::new(),
            parts: Parts::default(),
            parts_of_gpus: BTreeMap::new(),
            entries: BTreeMap::new(),
            throttles: VecDeque::new(),
            contradictions: BTreeMap::new(),
        }
    }

    /// Adds a record, in the order of the queue. Returns its part in the history of a GPU.
    pub(super) fn add(&mut self, record: &Record) -> Option<SharedEvent> {
        let added = match record {
            Record::GpuFault(fault) => self.gpu_fault(fault),
            Record::Migration(migration) => self.migration(migration),
            Record::CpuFault(fault) => Ok(self.cpu_fault(fault)),
            Record::Thrashing(region) => self.thrashing(region),
            Record::ThrottleStart(throttle) => self.throttle_start(throttle),
            Record::ThrottleEnd(throttle) => self.throttle_end(throttle),
            Record::MapRemote(map) => self.map_remote(map),
            Record::Replay(_)
            | Record::FatalFault(_)
            | Record::ReadDuplicate(_)
            | Record::ReadDuplicateInvalidate(_)
            | Record::Unknown { .. } => Ok(None),
        };
        added.unwrap_or_else(|test| {
            let contradictions = self.contradictions.entry(test).or_default();
            *contradictions = contradictions.saturating_add(1);
            None
        })
    }

    /// Adds what totals have and records lack. The totals are read first, then the driver writes
    /// the records of completed copies, and these are added. `dropped`: records that found no room
    /// so far.
    pub(super) fn complete(&mut self, totals: &Totals, dropped: &KindCounts) {
        let requested = self.requested;
        self.complete_with(totals, |kind| match dropped.of(kind) {
            _ if requested & kind.mask() == 0 => Expected::All,
            0 => Expected::Nothing,
            _ => Expected::Last,
        });
    }

    /// Does the same for the last time, after the process's exit, when no record is still to come.
    pub(super) fn finish(&mut self, totals: &Totals) {
        self.complete_with(totals, |_| Expected::All);
    }

    /// Records that no further records of these kinds will be added.
    pub(super) const fn abandon(&mut self, kinds: u64) {
        self.requested &= !kinds;
    }

    /// Sums since the attachment.
    pub(super) fn counts(&self) -> impl Iterator<Item = (CountKey, Tally)> {
        self.sums.iter().map(|(key, tally)| (*key, *tally))
    }

    /// Bytes of copies between host and GPUs that are counted.
    pub(super) const fn copied_bytes(&self) -> u64 {
        let GpuParts { bytes_htod, bytes_dtoh, .. } = &self.parts.all;
        bytes_htod.counted.saturating_add(bytes_dtoh.counted)
    }

    /// Event at a block of a record that [`Self::add`] accepts: a fault, or a copy between host and a
    /// GPU, or between GPUs. Of a GPU fault, its entry alone.
    pub(super) fn block_record(&self, record: &Record) -> Option<BlockRecord> {
        let (cause, source, destination, address, bytes, begin_ns) = match *record {
            Record::Migration(Migration { cause, source, destination, address, bytes, begin_ns, .. }) => {
                (cause, source, destination, address, bytes, begin_ns)
            }
            Record::GpuFault(GpuFault { gpu, address, time_ns, batch, .. }) => {
                let at = (self.id(gpu).ok()?, address, time_ns);
                #[expect(clippy::cast_possible_truncation, reason = "the lower half of the batch's number")]
                return Some(BlockRecord { cause: batch as u16, ..self.fault_at(RecordKind::GpuFaults, at) });
            }
            Record::CpuFault(CpuFault { address, time_ns, .. }) => {
                return Some(self.fault_at(RecordKind::CpuFault, (0, address, time_ns)));
            }
            _ => return None,
        };
        let (from, to) = (self.id(source).ok()?, self.id(destination).ok()?);
        if bytes > BLOCK_BYTES {
            return None;
        }
        let (kind, gpu) = match (from, to) {
            (0, 0) => return None,
            (0, gpu) => (RecordKind::CopyHtod, gpu),
            (gpu, 0) => (RecordKind::CopyDtoh, gpu),
            (_, gpu) => (RecordKind::CopyDtod, gpu),
        };
        Some(BlockRecord {
            boottime_ns: begin_ns,
            generation: self.generation,
            address: address & !(BLOCK_BYTES - 1),
            bytes: u32::try_from(bytes).ok()?,
            events: 1,
            gpu,
            slots: slots(address, bytes),
            kind: kind as u16,
            cause: copy_cause(cause),
            ..BlockRecord::default()
        })
    }

    /// Block record of a fault at a processor, an address and a time.
    fn fault_at(&self, kind: RecordKind, (gpu, address, boottime_ns): (u32, u64, u64)) -> BlockRecord {
        BlockRecord {
            boottime_ns,
            generation: self.generation,
            address: address & !(BLOCK_BYTES - 1),
            events: 1,
            gpu,
            slots: slots(address, 1),
            kind: kind as u16,
            ..BlockRecord::default()
        }
    }

    /// Records that cannot be true, and are not counted.
    pub(super) const fn contradictions(&self) -> &BTreeMap<SelfTest, u64> {
        &self.contradictions
    }

    fn gpu_fault(&mut self, fault: &GpuFault) -> Result<Option<SharedEvent>, SelfTest> {
        let GpuFault { access, gpu, client, address, time_ns, batch } = *fault;
        check(!gpu.is_cpu(), SelfTest::Processor)?;
        let processor = self.id(gpu)?;
        check(address.is_multiple_of(PAGE_BYTES), SelfTest::FaultAddress)?;
        let last = self.entries.get(&(gpu, client)).copied();
        let is_at_same_page = |last: &Entry| last.fault.address == address && last.fault.batch == batch;
        let last = last.filter(is_at_same_page);
        self.parts.instances.count(1);
        if let Some(Entry { key, .. }) = last.filter(|last| last.fault.time_ns == time_ns) {
            self.sum(key, Tally { events: 0, amount: 1 });
            return Ok(None);
        }
        // The driver's own definition. A fault that is not replayable is a batch of its own.
        let kind = if last.is_some() { Kind::GpuFaultDuplicate } else { Kind::GpuFault };
        let key = self.key(processor, kind, gpu_access(access));
        self.entries.insert((gpu, client), Entry { fault: *fault, key });
        self.count(processor, &Counters { fault_entries: 1, ..Counters::default() });
        self.sum(key, Tally { events: 1, amount: 1 });
        Ok(Some(SharedEvent::Fault { gpu, client, batch, time_ns }))
    }

    fn cpu_fault(&mut self, fault: &CpuFault) -> Option<SharedEvent> {
        let detail = match fault.access {
            Access::Read => 0,
            Access::Write => 1,
            Access::Atomic | Access::Prefetch | Access::Unknown => UNKNOWN_ACCESS,
        };
        self.parts.cpu_faults.count(1);
        self.sum(self.key(0, Kind::CpuFault, detail), Tally { events: 1, amount: 0 });
        None
    }

    fn migration(&mut self, migration: &Migration) -> Result<Option<SharedEvent>, SelfTest> {
        let Migration { cause, source, destination, address, bytes, begin_ns, .. } = *migration;
        let (from, to) = (self.id(source)?, self.id(destination)?);
        check((address | bytes).is_multiple_of(PAGE_BYTES), SelfTest::MigrationBytes)?;
        check(bytes != 0 && bytes <= BLOCK_BYTES, SelfTest::MigrationBytes)?;
        let tally = Tally { events: 1, amount: bytes };
        let detail = copy_cause(cause);
        match (from, to) {
            // Between nodes of the host: no bus to a GPU is crossed.
            (0, 0) => {}
            (0, gpu) => {
                self.count(gpu, &Counters { bytes_htod: bytes, ..Counters::default() });
                self.sum(self.key(gpu, Kind::CopyHtod, detail), tally);
                self.sum(self.key(gpu, Kind::HtodMigrationBytes, bucket(bytes)), tally);
            }
            (gpu, 0) => {
                self.count(gpu, &Counters { bytes_dtoh: bytes, ..Counters::default() });
                self.sum(self.key(gpu, Kind::CopyDtoh, detail), tally);
                self.sum(self.key(gpu, Kind::DtohMigrationBytes, bucket(bytes)), tally);
                if cause == MigrationCause::Eviction {
                    return Ok(Some(SharedEvent::Eviction { gpu: source, bytes, time_ns: begin_ns }));
                }
            }
            (from, to) => {
                check(from != to, SelfTest::MigrationProcessors)?;
                // Copies between GPUs count for the receiver.
                self.sum(self.key(to, Kind::CopyDtod, detail), tally);
            }
        }
        Ok(None)
    }

    fn thrashing(&mut self, region: &Region) -> Result<Option<SharedEvent>, SelfTest> {
        // One page each: the driver writes no larger regions.
        let processor = self.id(region.first_gpu())?;
        self.parts.thrashing_pages.count(1);
        self.sum(self.key(processor, Kind::Thrashing, 0), Tally { events: 1, amount: 0 });
        Ok(None)
    }

    fn throttle_start(&mut self, start: &Throttle) -> Result<Option<SharedEvent>, SelfTest> {
        let processor = self.id(start.processor)?;
        self.parts.throttles.count(1);
        self.sum(self.key(processor, Kind::Throttle, 0), Tally { events: 1, amount: 0 });
        if !start.processor.is_cpu() {
            // A GPU is throttled once at a page. The threads of all CPUs are one processor.
            self.throttles.retain(|earlier| !is_same_page(earlier, start));
        }
        if self.throttles.len() >= THROTTLES_MAX {
            self.throttles.pop_front();
        }
        self.throttles.push_back(*start);
        Ok(None)
    }

    fn throttle_end(&mut self, end: &Throttle) -> Result<Option<SharedEvent>, SelfTest> {
        let processor = self.id(end.processor)?;
        // Which of several threads it was makes no difference to the sum.
        let at = self.throttles.iter().position(|start| is_same_page(start, end));
        if let Some(start) = at.and_then(|at| self.throttles.remove(at)) {
            let amount = end.time_ns.saturating_sub(start.time_ns);
            self.sum(self.key(processor, Kind::Throttle, 0), Tally { events: 0, amount });
        }
        Ok(None)
    }

    fn map_remote(&mut self, map: &MapRemote) -> Result<Option<SharedEvent>, SelfTest> {
        let processor = self.id(map.processor)?;
        self.parts.remote_mappings.count(1);
        let key = self.key(processor, Kind::MapRemote, map.cause.min(REMOTE_CAUSE_MAX).into());
        self.sum(key, Tally { events: 1, amount: map.bytes });
        Ok(None)
    }

    /// Adds what totals have and records lack. `expected`: what must be in records of a kind by now.
    fn complete_with(&mut self, totals: &Totals, expected: impl Fn(EventKind) -> Expected) {
        let Totals { all, gpus, kinds } = totals;
        let (faults, copies) = (expected(EventKind::GpuFault), expected(EventKind::Migration));
        for (gpu, counters) in gpus {
            let rest = self.parts_of_gpus.entry(*gpu).or_default().complete(counters, faults, copies);
            self.parts.all.count(&rest);
            self.sum_counters(*gpu, &rest);
        }
        // What no GPU has.
        let rest = self.parts.all.complete(all, faults, copies);
        self.sum_counters(UNKNOWN_PROCESSOR, &rest);

        let only_gpu = match gpus.as_slice() {
            [(gpu, _)] => *gpu,
            _ => UNKNOWN_PROCESSOR,
        };
        let parts = &mut self.parts;
        let instances = parts.instances.complete(kinds.of(EventKind::GpuFault), expected(EventKind::GpuFault));
        let cpu_faults = parts.cpu_faults.complete(all.cpu_faults, expected(EventKind::CpuFault));
        let pages = parts.thrashing_pages.complete(kinds.of(EventKind::Thrashing), expected(EventKind::Thrashing));
        let throttles =
            parts.throttles.complete(kinds.of(EventKind::ThrottleStart), expected(EventKind::ThrottleStart));
        let mappings = parts.remote_mappings.complete(kinds.of(EventKind::MapRemote), expected(EventKind::MapRemote));
        self.sum_some(only_gpu, Kind::GpuFault, UNKNOWN_ACCESS, Tally { events: 0, amount: instances });
        self.sum_some(0, Kind::CpuFault, UNKNOWN_ACCESS, Tally { events: cpu_faults, amount: 0 });
        self.sum_some(only_gpu, Kind::Thrashing, 0, Tally { events: pages, amount: 0 });
        // The processor of these may be the host.
        self.sum_some(UNKNOWN_PROCESSOR, Kind::Throttle, 0, Tally { events: throttles, amount: 0 });
        self.sum_some(UNKNOWN_PROCESSOR, Kind::MapRemote, UNKNOWN_CAUSE, Tally { events: mappings, amount: 0 });
    }

    /// Adds counters of unknown accesses and causes.
    fn sum_counters(&mut self, gpu: u32, counters: &Counters) {
        let Counters { fault_entries, bytes_htod, bytes_dtoh, .. } = *counters;
        self.sum_some(gpu, Kind::GpuFault, UNKNOWN_ACCESS, Tally { events: fault_entries, amount: 0 });
        self.sum_some(gpu, Kind::CopyHtod, UNKNOWN_CAUSE, Tally { events: 0, amount: bytes_htod });
        self.sum_some(gpu, Kind::CopyDtoh, UNKNOWN_CAUSE, Tally { events: 0, amount: bytes_dtoh });
    }

    /// Counts what a record has of a GPU's counters, and of those of all.
    fn count(&mut self, gpu: u32, counted: &Counters) {
        self.parts_of_gpus.entry(gpu).or_default().count(counted);
        self.parts.all.count(counted);
    }

    /// Processor id of an index.
    fn id(&self, index: ProcessorIndex) -> Result<u32, SelfTest> {
        check(index.0 <= GPUS, SelfTest::Processor)?;
        Ok(index.id(self.ids_per_gpu))
    }

    const fn key(&self, gpu: u32, kind: Kind, detail: u16) -> CountKey {
        #[expect(clippy::cast_possible_truncation, reason = "a handful of kinds")]
        let kind = kind as u32 as u16;
        CountKey { generation: self.generation, gpu, kind, detail }
    }

    /// Adds to a sum, which exists only if something was added.
    fn sum_some(&mut self, gpu: u32, kind: Kind, detail: u16, added: Tally) {
        if added != Tally::NONE {
            self.sum(self.key(gpu, kind, detail), added);
        }
    }

    fn sum(&mut self, key: CountKey, added: Tally) {
        let sum = self.sums.entry(key).or_default();
        sum.events = sum.events.saturating_add(added.events);
        sum.amount = sum.amount.saturating_add(added.amount);
    }
}

const fn check(holds: bool, test: SelfTest) -> Result<(), SelfTest> {
    if holds { Ok(()) } else { Err(test) }
}

fn is_same_page(one: &Throttle, other: &Throttle) -> bool {
    (one.processor, one.address) == (other.processor, other.address)
}

/// Detail of a GPU fault: the driver's `uvm_fault_access_type_t`.
const fn gpu_access(access: Access) -> u16 {
    match access {
        Access::Prefetch => 0,
        Access::Read => 1,
        Access::Write => 2,
        Access::Atomic => 4,
        Access::Unknown => UNKNOWN_ACCESS,
    }
}

/// Detail of a copy: the driver's `uvm_make_resident_cause_t`.
const fn copy_cause(cause: MigrationCause) -> u16 {
    match cause {
        MigrationCause::Coherence => 0,
        MigrationCause::AccessCounters => 2,
        MigrationCause::Prefetch => 3,
        MigrationCause::Eviction => 4,
        MigrationCause::User => 6,
        MigrationCause::Unknown => UNKNOWN_CAUSE,
    }
}

#[cfg(test)]
mod tests;

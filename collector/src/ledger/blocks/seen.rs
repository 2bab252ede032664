//! State of one block, in few bytes: there may be a million of them.

use abi::{BlockRecord, RecordKind, block::BLOCK_BYTES};
use model::{Cause, RangeCounts, Reuse};

use super::super::cause;

/// Unit of the byte counts. The driver moves no less.
pub(super) const PAGE_BYTES: u64 = 4096;
const PAGES_OF_BLOCK: u16 = 512;
const _: () = assert!(PAGES_OF_BLOCK as u64 * PAGE_BYTES == BLOCK_BYTES);

/// Bytes in pages of 4 KiB. Saturates at 16 TiB for one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages(u32);

impl Pages {
    fn add(&mut self, bytes: u64) {
        self.0 = self.0.saturating_add(u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX));
    }

    pub(super) fn bytes(self) -> u64 {
        u64::from(self.0) * PAGE_BYTES
    }
}

/// Index of a GPU of a process; see `gpus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GpuIndex(pub(super) u16);

impl GpuIndex {
    /// No GPU.
    pub(super) const NONE: Self = Self(u16::MAX);
    /// No GPU, but a CPU, as the user of a block.
    pub(super) const CPU: Self = Self(u16::MAX - 1);

    const fn is_gpu(self) -> bool {
        self.0 < Self::CPU.0
    }

    /// Bit in a set of GPUs. Two share one only in a process with more than eight.
    const fn bit(self) -> u8 {
        1 << (self.0 % 8)
    }
}

/// Memory that a GPU took from another one by a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// GPU that had the block; `None` if the block was the taker's already.
    pub(super) from: Option<GpuIndex>,
    /// Bytes, if another GPU had taken the block from the taker before; else 0.
    pub(super) reclaimed_bytes: u64,
}

/// State of a block. Counts saturate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Address, in blocks.
    pub(super) number: u64,
    /// Time of its last event, ns since boot.
    pub(super) last_ns: u64,
    /// Time of its last residency record, likewise; 0 if never.
    pub(super) resident_ns: u64,
    pub(super) fault_entries: u32,
    pub(super) cpu_faults: u32,
    pub(super) evictions: u32,
    /// Changes of side between a faulting CPU and a GPU.
    pub(super) bounces: u32,
    /// Bytes copied from the host, by cause. Copies by neither a fault nor the tree prefetcher were
    /// requested by some process.
    pub(super) htod_fault: Pages,
    pub(super) htod_prefetch: Pages,
    pub(super) htod_asked: Pages,
    /// Copied to the host, likewise.
    pub(super) dtoh_fault: Pages,
    pub(super) dtoh_eviction: Pages,
    pub(super) dtoh_asked: Pages,
    pub(super) dtod: Pages,
    pub(super) populated: Pages,
    /// Part of the bytes copied from the host that an eviction had removed.
    pub(super) refetched: Pages,
    /// Part of them that a CPU fault had taken.
    pub(super) returned: Pages,
    /// Evicted pages that did not return yet.
    evicted_away: u16,
    /// Pages taken by CPU faults that did not return yet.
    taken_away: u16,
    /// Set of GPUs from which another one has taken the block.
    gave: u8,
    /// Pages resident at the GPU below. Pieces of the block and other GPUs are recorded elsewhere.
    pub(super) resident: u16,
    /// GPU of its residency, or of its absence by a record.
    pub(super) resident_gpu: GpuIndex,
    /// Whether the driver manages parts of it separately.
    pub(super) is_split: bool,
    /// GPU that last faulted on it, received it or lost it.
    pub(super) gpu: GpuIndex,
    /// Last user, by faults and copies: a GPU, [`GpuIndex::CPU`] or none.
    pub(super) user: GpuIndex,
    /// Whether it is among the candidates for the busiest.
    pub(super) is_candidate: bool,
    /// Whether it is in the sums of a range.
    pub(super) is_placed: bool,
}

/// A block takes this and at most twice five bytes in the table of places: 64 MiB for the 524,288
/// blocks of 1 TiB, with room to spare.
const _: () = assert!(size_of::<Seen>() <= 96);

impl Seen {
    /// Block without events.
    pub(super) const fn new(number: u64) -> Self {
        Self {
            number,
            last_ns: 0,
            resident_ns: 0,
            fault_entries: 0,
            cpu_faults: 0,
            evictions: 0,
            bounces: 0,
            htod_fault: Pages(0),
            htod_prefetch: Pages(0),
            htod_asked: Pages(0),
            dtoh_fault: Pages(0),
            dtoh_eviction: Pages(0),
            dtoh_asked: Pages(0),
            dtod: Pages(0),
            populated: Pages(0),
            refetched: Pages(0),
            returned: Pages(0),
            evicted_away: 0,
            taken_away: 0,
            gave: 0,
            resident: 0,
            resident_gpu: GpuIndex::NONE,
            is_split: false,
            gpu: GpuIndex::NONE,
            user: GpuIndex::NONE,
            is_candidate: false,
            is_placed: false,
        }
    }

    /// Adds a record of a GPU or the host, except for residency. `staged_bytes`: those of a copy from
    /// the host that another GPU sent that way because of a fault. Returns the reuse by it, and what was
    /// taken from another GPU.
    pub(super) fn add(
        &mut self,
        kind: RecordKind,
        record: &BlockRecord,
        gpu: GpuIndex,
        staged_bytes: u64,
    ) -> (Reuse, Option<Taken>) {
        let (events, bytes) = (record.events, u64::from(record.bytes));
        let cause = cause(record.cause);
        let count = |counter: &mut u32| *counter = counter.saturating_add(events);
        let (mut reuse, mut taken) = (Reuse::default(), None);
        match kind {
            RecordKind::GpuFaults => count(&mut self.fault_entries),
            RecordKind::CpuFault => {
                count(&mut self.cpu_faults);
                reuse.bounces = self.used_by(GpuIndex::CPU);
            }
            RecordKind::CopyHtod => {
                match cause {
                    Cause::Fault => &mut self.htod_fault,
                    Cause::TreePrefetch => &mut self.htod_prefetch,
                    _ => &mut self.htod_asked,
                }
                .add(bytes);
                taken = (staged_bytes > 0).then(|| self.taken_from_peer(staged_bytes, gpu));
                reuse = Reuse { bounces: self.used_by(gpu), ..self.fetched(bytes, staged_bytes) };
            }
            RecordKind::CopyDtoh | RecordKind::CopyStaged => {
                match cause {
                    // The driver's prefetcher works around CPU faults too.
                    Cause::Fault | Cause::TreePrefetch => &mut self.dtoh_fault,
                    Cause::Eviction => &mut self.dtoh_eviction,
                    _ => &mut self.dtoh_asked,
                }
                .add(bytes);
                match cause {
                    Cause::Fault | Cause::TreePrefetch if kind == RecordKind::CopyDtoh => {
                        goes_away(&mut self.taken_away, bytes);
                    }
                    Cause::Eviction => goes_away(&mut self.evicted_away, bytes),
                    _ => {}
                }
            }
            RecordKind::CopyDtod => {
                self.dtod.add(bytes);
                if matches!(cause, Cause::Fault | Cause::TreePrefetch) {
                    taken = Some(self.taken_from_peer(bytes, gpu));
                } else {
                    self.user = gpu;
                }
                reuse.fetched_bytes = bytes;
            }
            RecordKind::Populated => {
                self.populated.add(bytes);
                reuse.bounces = self.used_by(gpu);
            }
            RecordKind::Evicted => count(&mut self.evictions),
            RecordKind::Gone => (self.evicted_away, self.taken_away, self.gave) = (0, 0, 0),
            RecordKind::Residency => {}
        }
        self.last_ns = self.last_ns.max(record.boottime_ns);
        (reuse, taken)
    }

    /// Records the use by a CPU that faulted, where its copy is all that is recorded of it. Returns
    /// whether it changed sides.
    pub(super) fn copied_to_cpu(&mut self, kind: RecordKind, record: &BlockRecord) -> u64 {
        let is_fault = matches!(cause(record.cause), Cause::Fault | Cause::TreePrefetch);
        if kind == RecordKind::CopyDtoh && is_fault { self.used_by(GpuIndex::CPU) } else { 0 }
    }

    /// Records a use. Returns whether it changed sides. A GPU counts as user when memory arrives:
    /// its faults alone, throttled or for remote mappings, move nothing.
    fn used_by(&mut self, user: GpuIndex) -> u64 {
        let before = std::mem::replace(&mut self.user, user);
        let changed = before != GpuIndex::NONE && (before == GpuIndex::CPU) != (user == GpuIndex::CPU);
        self.bounces = self.bounces.saturating_add(changed.into());
        changed.into()
    }

    /// Bytes that a GPU received from the host.
    fn fetched(&mut self, bytes: u64, staged_bytes: u64) -> Reuse {
        let refetched_bytes = comes_back(&mut self.evicted_away, bytes - staged_bytes);
        let cpu_reclaimed_bytes = comes_back(&mut self.taken_away, bytes - staged_bytes - refetched_bytes);
        self.refetched.add(refetched_bytes);
        self.returned.add(cpu_reclaimed_bytes);
        Reuse { fetched_bytes: bytes, refetched_bytes, cpu_reclaimed_bytes, bounces: 0 }
    }

    /// Bytes that a GPU received from another one because of its faults.
    fn taken_from_peer(&mut self, bytes: u64, gpu: GpuIndex) -> Taken {
        let before = std::mem::replace(&mut self.user, gpu);
        let from = Some(before).filter(|before| before.is_gpu() && gpu.is_gpu() && *before != gpu);
        if from.is_some() {
            self.gave |= before.bit();
        }
        Taken { from, reclaimed_bytes: if self.gave & gpu.bit() == 0 { 0 } else { bytes } }
    }

    /// Forgets which GPUs had the block: their indices have changed.
    pub(super) const fn forget_givers(&mut self) {
        self.gave = 0;
    }

    /// Bytes copied from the host.
    pub(super) fn htod_bytes(&self) -> u64 {
        self.htod_fault.bytes() + self.htod_prefetch.bytes() + self.htod_asked.bytes()
    }

    /// Bytes copied to the host.
    pub(super) fn dtoh_bytes(&self) -> u64 {
        self.dtoh_fault.bytes() + self.dtoh_eviction.bytes() + self.dtoh_asked.bytes()
    }

    /// Counts as a part of its range.
    pub(super) fn counts(&self) -> RangeCounts {
        RangeCounts {
            fault_entries: self.fault_entries.into(),
            cpu_faults: self.cpu_faults.into(),
            bytes_htod: self.htod_bytes(),
            bytes_dtoh: self.dtoh_bytes(),
            bytes_dtod: self.dtod.bytes(),
            populated_bytes: self.populated.bytes(),
            evicted_bytes: self.dtoh_eviction.bytes(),
            evictions: self.evictions.into(),
            reuse: Reuse {
                fetched_bytes: self.htod_bytes() + self.dtod.bytes(),
                refetched_bytes: self.refetched.bytes(),
                cpu_reclaimed_bytes: self.returned.bytes(),
                bounces: self.bounces.into(),
            },
        }
    }

    /// Pages faulted on, copied or populated. Monotonic.
    pub(super) fn activity(&self) -> u64 {
        let pages = [
            self.htod_fault,
            self.htod_prefetch,
            self.htod_asked,
            self.dtoh_fault,
            self.dtoh_eviction,
            self.dtoh_asked,
            self.dtod,
            self.populated,
        ];
        let events = [self.fault_entries, self.cpu_faults, self.evictions];
        pages.into_iter().map(|pages| pages.0).chain(events).map(u64::from).sum()
    }
}

/// Adds evicted or taken pages; at most the whole block.
fn goes_away(away: &mut u16, bytes: u64) {
    let pages = u16::try_from(bytes / PAGE_BYTES).unwrap_or(u16::MAX);
    *away = away.saturating_add(pages).min(PAGES_OF_BLOCK);
}

/// Removes returned pages, and returns those of these bytes that had left the GPU.
fn comes_back(away: &mut u16, bytes: u64) -> u64 {
    let pages = u16::try_from(bytes / PAGE_BYTES).unwrap_or(u16::MAX).min(*away);
    *away -= pages;
    u64::from(pages) * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVICTION: u16 = 4;
    const PREFETCH: u16 = 3;
    const FAULT: u16 = 0;
    const MIGRATE: u16 = 6;

    fn copy(kind: RecordKind, cause: u16, bytes: u32) -> (RecordKind, BlockRecord) {
        (kind, BlockRecord { cause, bytes, events: 1, gpu: 1, kind: kind as u16, ..BlockRecord::default() })
    }

    /// Index of a record's GPU: its id.
    fn index(record: &BlockRecord) -> GpuIndex {
        if record.gpu == 0 { GpuIndex::NONE } else { GpuIndex(u16::try_from(record.gpu).unwrap()) }
    }

    fn after(records: impl IntoIterator<Item = (RecordKind, BlockRecord)>) -> (Seen, Reuse) {
        let (mut seen, mut reuse) = (Seen::new(1), Reuse::default());
        for (kind, record) in records {
            reuse += &seen.add(kind, &record, index(&record), 0).0;
        }
        (seen, reuse)
    }

    #[test]
    fn refetched_bytes_are_bounded_by_evicted_bytes() {
        let (seen, reuse) = after([
            copy(RecordKind::CopyHtod, FAULT, 65536),
            copy(RecordKind::CopyDtoh, EVICTION, 65536),
            copy(RecordKind::CopyHtod, FAULT, 4096),
            copy(RecordKind::CopyHtod, PREFETCH, 131_072),
            copy(RecordKind::CopyHtod, FAULT, 4096),
        ]);
        assert_eq!((reuse.fetched_bytes, reuse.refetched_bytes, reuse.cpu_reclaimed_bytes), (204_800, 65536, 0));
        assert_eq!(seen.refetched.bytes(), 65536);
        assert_eq!((seen.htod_fault.bytes(), seen.htod_prefetch.bytes()), (73728, 131_072));
    }

    #[test]
    fn cpu_reclaimed_bytes_exclude_requested_migrations() {
        let (seen, reuse) = after([
            copy(RecordKind::CopyDtoh, FAULT, 4096),
            copy(RecordKind::CopyDtoh, PREFETCH, 4096),
            copy(RecordKind::CopyDtoh, MIGRATE, 8192),
            copy(RecordKind::CopyHtod, FAULT, 16384),
        ]);
        assert_eq!((reuse.refetched_bytes, reuse.cpu_reclaimed_bytes), (0, 8192));
        assert_eq!((seen.returned.bytes(), seen.dtoh_asked.bytes(), seen.dtoh_bytes()), (8192, 8192, 16384));
    }

    #[test]
    fn refetched_byte_is_not_cpu_reclaimed_as_well() {
        let (_, reuse) = after([
            copy(RecordKind::CopyDtoh, FAULT, 4096),
            copy(RecordKind::CopyDtoh, EVICTION, 8192),
            copy(RecordKind::CopyHtod, FAULT, 8192),
            copy(RecordKind::CopyHtod, FAULT, 8192),
        ]);
        assert_eq!((reuse.refetched_bytes, reuse.cpu_reclaimed_bytes, reuse.fetched_bytes), (8192, 4096, 16384));
    }

    #[test]
    fn refetched_bytes_are_bounded_by_the_block() {
        // Its contents were never fetched back: the GPU overwrote them.
        let evicted = copy(RecordKind::CopyDtoh, EVICTION, 2 << 20);
        let (_, reuse) = after([evicted, evicted, evicted, copy(RecordKind::CopyHtod, FAULT, 2 << 20)]);
        assert_eq!(reuse.refetched_bytes, 2 << 20);
        let (_, reuse) = after([evicted, evicted, copy(RecordKind::Gone, 0, 0), copy(RecordKind::CopyHtod, 0, 4096)]);
        assert_eq!(reuse.refetched_bytes, 0);
    }

    #[test]
    fn bounce_is_each_change_between_cpu_fault_and_arrival() {
        let (cpu, gpu) = (copy(RecordKind::CpuFault, 0, 0), copy(RecordKind::CopyHtod, FAULT, 4096));
        let (asked, populated) = (copy(RecordKind::CopyHtod, MIGRATE, 4096), copy(RecordKind::Populated, 0, 4096));
        assert_eq!(after([cpu, cpu]).1.bounces, 0);
        let (seen, reuse) = after([cpu, gpu, gpu, cpu, cpu, asked, cpu, populated]);
        assert_eq!((reuse.bounces, seen.bounces, seen.cpu_faults), (5, 5, 4));
    }

    #[test]
    fn gpu_faults_without_arrivals_are_no_bounces() {
        let (gpu, cpu) = (copy(RecordKind::GpuFaults, 0, 0), copy(RecordKind::CpuFault, 0, 0));
        let (seen, reuse) = after([cpu, gpu, cpu, gpu]);
        assert_eq!((reuse.bounces, seen.cpu_faults, seen.fault_entries), (0, 2, 2));
    }

    #[test]
    fn counts_saturate() {
        let mut pages = Pages(u32::MAX - 1);
        pages.add(1 << 20);
        assert_eq!(pages.bytes(), u64::from(u32::MAX) * 4096);
        let mut seen = Seen { fault_entries: u32::MAX, ..Seen::new(1) };
        seen.add(RecordKind::GpuFaults, &copy(RecordKind::GpuFaults, 0, 0).1, GpuIndex(0), 0);
        assert_eq!(seen.fault_entries, u32::MAX);
    }
}

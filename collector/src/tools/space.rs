//! A VA space with trackers, and its counts.

use std::{collections::BTreeMap, io, num::NonZeroUsize, sync::Arc};

use abi::{
    CountKey, Kind, Lifecycle, LifecycleKind, Tally,
    count::{UNKNOWN_ACCESS, UNKNOWN_CAUSE},
};
use model::GpuUuid;
use sys::{
    holder::Memory,
    pidfd::PidFd,
    uvm::{Descriptor, Uuid, tracker::Counters},
};

use super::finder::Opener;
use crate::{gpus::Links, ledger::Generation};

/// Maximum of GPUs with trackers of their own.
const GPUS_MAX: usize = 32;
/// Page of the counters of all processors.
const ALL: u32 = 0;
/// Processor id of counts whose GPU is unknown.
const UNKNOWN_GPU: u32 = u32::MAX;

/// GPUs that the driver has shown, in their order.
#[derive(Debug, Default)]
pub(super) struct Gpus {
    seen: Vec<GpuUuid>,
    /// Last processor id of each.
    ids: Vec<u32>,
}

impl Gpus {
    /// Adds the GPUs shown now. Whether there is a new one.
    pub(super) fn see(&mut self, links: &Links) -> bool {
        let before = self.seen.len();
        for (id, uuid) in links {
            match self.seen.iter().position(|seen| seen == uuid) {
                Some(at) => {
                    if let Some(last) = self.ids.get_mut(at) {
                        *last = *id;
                    }
                }
                None if self.seen.len() < GPUS_MAX => {
                    self.seen.push(*uuid);
                    self.ids.push(*id);
                }
                None => {}
            }
        }
        self.seen.len() > before
    }

    const fn are_several(&self) -> bool {
        self.seen.len() > 1
    }

    /// Processor id of a GPU.
    fn id(&self, gpu: &GpuUuid) -> Option<u32> {
        let at = self.seen.iter().position(|seen| seen == gpu)?;
        self.ids.get(at).copied()
    }

    /// The only GPU.
    fn only(&self) -> Option<u32> {
        match self.ids.as_slice() {
            [id] => Some(*id),
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
    /// Counts at the only GPU before there were others, and its processor id.
    before: Option<(u32, Counters)>,
    /// Counts of no GPU's page.
    rest: Counters,
}

impl Space {
    pub(super) fn new(opener: Opener, process: Arc<PidFd>, place: Descriptor, gpus: &Gpus) -> io::Result<Self> {
        Ok(Self {
            opener,
            process,
            memory: Memory::new(NonZeroUsize::MIN.saturating_add(GPUS_MAX))?,
            place,
            held_at: None,
            phase: Phase::Attaching,
            has_counted: false,
            gpus: if gpus.are_several() { gpus.seen.clone() } else { Vec::new() },
            before: None,
            rest: Counters::default(),
        })
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
            self.before = Some((*first, self.page(ALL)));
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

    /// Its counts so far. No count ever decreases.
    pub(super) fn counts(&mut self, generation: Generation, gpus: &Gpus) -> Vec<(CountKey, Tally)> {
        let all = self.page(ALL);
        let mut tallies = Tallies { generation, counts: Vec::new() };
        tallies.add(0, Kind::CpuFault, UNKNOWN_ACCESS, Tally { events: all.cpu_faults, amount: 0 });
        if self.gpus.is_empty() {
            tallies.add_gpu(gpus.only().unwrap_or(UNKNOWN_GPU), all);
            return tallies.counts;
        }
        let mut by_gpu: BTreeMap<u32, Counters> = self.before.into_iter().collect();
        for (page, uuid) in (1..).zip(&self.gpus) {
            let counters = by_gpu.entry(gpus.id(uuid).unwrap_or(UNKNOWN_GPU)).or_default();
            *counters = combined(*counters, self.page(page), u64::saturating_add);
        }
        // Read before those of the GPUs: what remains is at most what no page has.
        let counted = by_gpu.values().fold(Counters::default(), |sum, each| combined(sum, *each, u64::saturating_add));
        self.rest = combined(self.rest, combined(all, counted, u64::saturating_sub), u64::max);
        let unknown = by_gpu.entry(UNKNOWN_GPU).or_default();
        *unknown = combined(*unknown, self.rest, u64::saturating_add);
        for (gpu, counters) in by_gpu {
            tallies.add_gpu(gpu, counters);
        }
        tallies.counts
    }
}

fn combined(one: Counters, other: Counters, with: impl Fn(u64, u64) -> u64) -> Counters {
    Counters {
        fault_entries: with(one.fault_entries, other.fault_entries),
        cpu_faults: with(one.cpu_faults, other.cpu_faults),
        bytes_htod: with(one.bytes_htod, other.bytes_htod),
        bytes_dtoh: with(one.bytes_dtoh, other.bytes_dtoh),
    }
}

/// Counts of a VA space, without those that are zero.
struct Tallies {
    generation: Generation,
    counts: Vec<(CountKey, Tally)>,
}

impl Tallies {
    fn add(&mut self, gpu: u32, kind: Kind, detail: u16, tally: Tally) {
        if tally != Tally::NONE {
            self.counts.push((CountKey { generation: self.generation, gpu, kind: kind as u16, detail }, tally));
        }
    }

    fn add_gpu(&mut self, gpu: u32, counters: Counters) {
        let Counters { fault_entries, bytes_htod, bytes_dtoh, .. } = counters;
        self.add(gpu, Kind::GpuFault, UNKNOWN_ACCESS, Tally { events: fault_entries, amount: 0 });
        self.add(gpu, Kind::CopyHtod, UNKNOWN_CAUSE, Tally { events: 0, amount: bytes_htod });
        self.add(gpu, Kind::CopyDtoh, UNKNOWN_CAUSE, Tally { events: 0, amount: bytes_dtoh });
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap as Map, sync::atomic::Ordering};

    use super::*;

    const A: GpuUuid = GpuUuid([1; 16]);
    const B: GpuUuid = GpuUuid([2; 16]);

    fn space(gpus: &Gpus) -> Space {
        let opener = Opener { pid: 7, start_ticks: 5, uid: 1000, comm: [0; 16] };
        let process = PidFd::open(std::process::id()).unwrap();
        let mut space = Space::new(opener, Arc::new(process), (7, 3), gpus).unwrap();
        assert!(space.counts_in(ALL));
        space
    }

    /// Adds GPU faults to a page, as the driver does.
    fn fault(space: &Space, page: usize, faults: u64) {
        space.memory.page(page).unwrap()[9].fetch_add(faults, Ordering::Relaxed);
    }

    fn faults(space: &mut Space, gpus: &Gpus) -> Map<u32, u64> {
        let counts = space.counts(FIRST, gpus).into_iter().filter(|(key, _)| key.kind == Kind::GpuFault as u16);
        counts.map(|(key, tally)| (key.gpu, tally.events)).collect()
    }

    const FIRST: Generation = 1 << 63;

    #[test]
    fn all_counts_are_those_of_the_only_gpu() {
        let mut gpus = Gpus::default();
        let mut space = space(&gpus);
        assert!(gpus.see(&[(1, A)].into()));
        fault(&space, 0, 5);
        assert_eq!(faults(&mut space, &gpus), [(1, 5)].into());
    }

    #[test]
    fn counts_before_another_gpu_is_shown_stay_at_the_first_one() {
        let mut gpus = Gpus::default();
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
        assert_eq!(faults(&mut space, &gpus), [(1, 8), (2, 4), (UNKNOWN_GPU, 2)].into());
    }

    #[test]
    fn counts_of_no_gpu_never_decrease() {
        let mut gpus = Gpus::default();
        gpus.see(&[(1, A), (2, B)].into());
        let mut space = space(&gpus);
        fault(&space, 0, 2);
        assert_eq!(faults(&mut space, &gpus), [(UNKNOWN_GPU, 2)].into());
        // The driver adds to one page after the other.
        fault(&space, 1, 3);
        assert_eq!(faults(&mut space, &gpus), [(1, 3), (UNKNOWN_GPU, 2)].into());
        fault(&space, 0, 3);
        assert_eq!(faults(&mut space, &gpus), [(1, 3), (UNKNOWN_GPU, 2)].into());
    }
}

//! Recent samples of each process, GPU and owner, in bounded memory. No I/O: the collector feeds it
//! with published snapshots.
//!
//! Time is divided into slots of a second, or of the collector's interval if that is longer. A
//! reading ends the slot whose end is nearest, and the counts since the previous reading belong to
//! that slot. The samples of a period therefore add up to exactly its counts. A slot without a
//! reading is missing, and its counts are in the next.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant, SystemTime},
};

use model::{
    Counters, GpuKey, History, HistoryOf, HistoryRequest, OwnerKey, Process, ProcessId, Reuse, Sample, Snapshot,
    SourceState,
};

use ring::{Ring, Steps};

mod ring;
mod series;

/// Maximum bytes of all samples of processes and owners: more than a hundred processes that are
/// busy all day.
const BYTES_MAX: usize = 64 << 20;
/// Idle time after which only a short history is guaranteed.
const IDLE_MIN: Duration = Duration::from_mins(10);

/// Histories of a node.
#[derive(Debug)]
pub(crate) struct Histories {
    /// Start: a slot before the first reading.
    begin: Option<Instant>,
    steps: Steps,
    bytes_max: usize,
    /// Slot that ended last.
    last: u64,
    processes: HashMap<ProcessId, Track>,
    owners: BTreeMap<OwnerKey, Track>,
    gpus: BTreeMap<GpuKey, OfGpu>,
}

/// History of a process or an owner.
#[derive(Debug, Default)]
struct Track {
    ring: Ring,
    counted: Counted,
    /// Refetched bytes, by GPU.
    refetched: BTreeMap<GpuKey, u64>,
    /// Slot in which it was listed last.
    listed: u64,
}

#[derive(Debug, Default)]
struct OfGpu {
    ring: Ring,
    counted: Counted,
}

/// Cumulative counts at a reading.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    fault_entries: u64,
    cpu_faults: u64,
    bytes_htod: u64,
    bytes_dtoh: u64,
    evicted_bytes: u64,
}

impl Histories {
    /// History for readings at this interval.
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            begin: None,
            steps: Steps::of(interval),
            bytes_max: BYTES_MAX,
            last: 0,
            processes: HashMap::new(),
            owners: BTreeMap::new(),
            gpus: BTreeMap::new(),
        }
    }

    /// Adds a regular reading. Not for readings between two intervals.
    pub(crate) fn take(&mut self, snapshot: &Snapshot, now: Instant) {
        let begin = *self.begin.get_or_insert_with(|| self.steps.before(now));
        let slot = self.steps.ended_by(now.saturating_duration_since(begin));
        if slot <= self.last || !matches!(snapshot.source.state, SourceState::Counting { .. }) {
            return;
        }
        self.last = slot;
        let mut of_gpus: BTreeMap<GpuKey, Sample> = BTreeMap::new();
        for process in &snapshot.processes {
            self.take_process(slot, process, &mut of_gpus);
        }
        self.processes.retain(|_, of| of.listed == slot);
        self.take_owners(slot, snapshot);
        for (key, counters) in &snapshot.gpu_totals {
            // Counts with a pending GPU move to it at once, as part of its next sample.
            if !matches!(key, GpuKey::Pending(_)) {
                let sample = of_gpus.remove(key).unwrap_or_default();
                let of = self.gpus.entry(*key).or_default();
                of.ring.push(&self.steps, slot, of.counted.until(Counted::of([counters].into_iter()), sample));
            }
        }
        self.bound();
    }

    fn take_process(&mut self, slot: u64, process: &Process, of_gpus: &mut BTreeMap<GpuKey, Sample>) {
        let of = self.processes.entry(process.id).or_default();
        of.listed = slot;
        let mut resident_bytes = 0;
        for (key, residency) in &process.residency {
            of_gpus.entry(*key).or_default().resident_bytes += residency.bytes;
            resident_bytes += residency.bytes;
        }
        for (key, reuse) in &process.reuse {
            let before = of.refetched.get(key).copied().unwrap_or_default();
            of_gpus.entry(*key).or_default().refetched_bytes += reuse.refetched_bytes.saturating_sub(before);
        }
        let counted = Counted::of(process.gpus.values().chain([&process.host]));
        of.push(&self.steps, slot, counted, &process.reuse, resident_bytes);
    }

    /// Adds the owners' samples. Their resident bytes are those of their listed processes.
    fn take_owners(&mut self, slot: u64, snapshot: &Snapshot) {
        let mut resident: BTreeMap<OwnerKey, u64> = BTreeMap::new();
        for process in &snapshot.processes {
            let key = Some(process.owner.key()).filter(|key| snapshot.owners.contains_key(key));
            let bytes: u64 = process.residency.values().map(|residency| residency.bytes).sum();
            *resident.entry(key.unwrap_or(OwnerKey::Other)).or_default() += bytes;
        }
        for (key, totals) in &snapshot.owners {
            let of = self.owners.entry(key.clone()).or_default();
            of.listed = slot;
            let counted = Counted::of(totals.gpus.values().chain([&totals.host]));
            let resident = resident.get(key).copied().unwrap_or_default();
            of.push(&self.steps, slot, counted, &totals.reuse, resident);
        }
        self.owners.retain(|_, of| of.listed == slot);
    }

    /// Frees memory, more than currently needed, so that it is rarely done. Subjects idle for
    /// longest lose all samples; busy ones lose the older half, the largest first.
    fn bound(&mut self) {
        let mut bytes: usize = self.processes.values().chain(self.owners.values()).map(|of| of.ring.bytes()).sum();
        if bytes <= self.bytes_max {
            return;
        }
        let busy_since = self.last.saturating_sub(self.steps.ended_by(IDLE_MIN));
        while bytes > self.bytes_max - self.bytes_max / 8 {
            let all = self.processes.values_mut().chain(self.owners.values_mut());
            let mut rings: Vec<_> = all.map(|of| &mut of.ring).collect();
            rings.sort_by_key(|ring| (ring.busy().min(busy_since), Reverse(ring.bytes())));
            for ring in rings {
                if bytes <= self.bytes_max - self.bytes_max / 8 {
                    return;
                }
                bytes -= ring.bytes();
                if ring.busy() < busy_since {
                    ring.clear();
                } else {
                    ring.halve();
                }
                bytes += ring.bytes();
            }
        }
    }

    /// The requested history, as far as it reaches back; `None` without any. `now` and `time` are
    /// the same moment.
    pub(crate) fn lately(&self, request: &HistoryRequest, now: Instant, time: SystemTime) -> Option<History> {
        let ring = match &request.of {
            HistoryOf::Process(process) => &self.processes.get(process)?.ring,
            HistoryOf::Gpu(gpu) => &self.gpus.get(gpu)?.ring,
            HistoryOf::Owner(owner) => &self.owners.get(owner)?.ring,
        };
        let found = ring.lately(&self.steps, self.last, request.back, request.samples_max);
        let age = now.saturating_duration_since(self.begin?).saturating_sub(found.begin);
        Some(History { begin: time.checked_sub(age).unwrap_or(time), interval: found.interval, samples: found.samples })
    }
}

impl Track {
    /// Adds the sample of a slot, with the counts since the slot before.
    fn push(
        &mut self,
        steps: &Steps,
        slot: u64,
        counted: Counted,
        reuse: &BTreeMap<GpuKey, Reuse>,
        resident_bytes: u64,
    ) {
        let refetched: BTreeMap<_, _> = reuse.iter().map(|(key, reuse)| (*key, reuse.refetched_bytes)).collect();
        let sum = |refetched: &BTreeMap<_, u64>| refetched.values().sum::<u64>();
        let refetched_bytes = sum(&refetched).saturating_sub(sum(&self.refetched));
        self.refetched = refetched;
        let sample = Sample { refetched_bytes, resident_bytes, ..Sample::default() };
        let sample = self.counted.until(counted, sample);
        self.ring.push(steps, slot, sample);
    }
}

impl Counted {
    fn of<'a>(counters: impl Iterator<Item = &'a Counters>) -> Self {
        let mut sum = Self::default();
        for counters in counters {
            for (counter, value) in [
                (&mut sum.fault_entries, counters.fault_entries.total()),
                (&mut sum.cpu_faults, counters.cpu_faults()),
                (&mut sum.bytes_htod, counters.bytes_htod.total()),
                (&mut sum.bytes_dtoh, counters.bytes_dtoh.total()),
                (&mut sum.evicted_bytes, counters.evicted_bytes()),
            ] {
                *counter = counter.saturating_add(value);
            }
        }
        sum
    }

    /// Advances to the current counts: `sample` with the differences. Differences are never
    /// negative, even if counts were dropped as wrong.
    fn until(&mut self, now: Self, sample: Sample) -> Sample {
        let before = std::mem::replace(self, now);
        Sample {
            fault_entries: now.fault_entries.saturating_sub(before.fault_entries),
            cpu_faults: now.cpu_faults.saturating_sub(before.cpu_faults),
            bytes_htod: now.bytes_htod.saturating_sub(before.bytes_htod),
            bytes_dtoh: now.bytes_dtoh.saturating_sub(before.bytes_dtoh),
            evicted_bytes: now.evicted_bytes.saturating_sub(before.evicted_bytes),
            ..sample
        }
    }
}

#[cfg(test)]
mod tests;

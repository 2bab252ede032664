//! Usage of managed memory by owner and job step. It outlives processes and verdicts, as long as the owner is listed.
//!
//! Memory is bounded: the list of owners has a quota per user, and at most [`STEPS_MAX`] steps of an owner have separate sums.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::AddAssign,
    sync::Arc,
    time::Duration,
};

use crate::{Counters, GpuKey, OwnerKey, Process, ProcessId, Reuse, Snapshot, Verdict, VerdictKind};

/// Maximum number of an owner's steps with separate sums. Further steps are summed under no step.
pub const STEPS_MAX: usize = 32;

/// Usage of all listed owners.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    owners: BTreeMap<OwnerKey, Arc<OwnerUsage>>,
    /// Highest counts of each process up to the last snapshot.
    counted: Arc<BTreeMap<ProcessId, Traffic>>,
}

/// Usage of one owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnerUsage {
    /// By step; `None` has processes in no step, and steps beyond [`STEPS_MAX`].
    pub steps: BTreeMap<Option<String>, StepUsage>,
    /// Maximum of the managed memory of its running processes at a GPU over that GPU's memory; `None` if unknown.
    pub peak_oversubscription: Option<f64>,
    /// As [`Self::peak_oversubscription`], of all processes at a GPU, while this owner used the GPU.
    pub peak_gpu_oversubscription: Option<f64>,
    /// User of its first process.
    pub uid: Option<u32>,
    /// Name of that user.
    pub user: Option<String>,
    /// Worst verdict.
    pub worst: Option<Arc<WorstVerdict>>,
}

/// Usage of one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepUsage {
    /// Traffic.
    pub traffic: Traffic,
    /// Time under each kind of verdict, summed over processes and GPUs.
    pub verdict_time: BTreeMap<VerdictKind, Duration>,
    /// As [`OwnerUsage::peak_oversubscription`].
    pub peak_oversubscription: Option<f64>,
}

/// Verdict with most copied bytes, thrashing ones first, and a copy of its process.
#[derive(Clone, Debug, PartialEq)]
pub struct WorstVerdict {
    /// Verdict.
    pub verdict: Verdict,
    /// Process, with the ranges of the verdict only.
    pub process: Process,
}

/// Counts of traffic, over all GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// GPU fault entries.
    pub fault_entries: u64,
    /// Bytes copied from the host to GPUs.
    pub bytes_htod: u64,
    /// Bytes copied from GPUs to the host.
    pub bytes_dtoh: u64,
    /// Bytes evicted, for any process.
    pub evicted_bytes: u64,
    /// Bytes of any process evicted for these processes.
    pub induced_eviction_bytes: u64,
    /// Bytes copied to GPUs, by block records.
    pub fetched_bytes: u64,
    /// Refetched part of `fetched_bytes`.
    pub refetched_bytes: u64,
    /// CPU-reclaimed part of `fetched_bytes`.
    pub cpu_reclaimed_bytes: u64,
}

/// Managed bytes at a GPU, of the processes of an owner or step.
type Managed<K> = BTreeMap<(K, GpuKey), u64>;

impl Usage {
    /// Usage of an owner.
    #[must_use]
    pub fn of(&self, owner: &OwnerKey) -> Option<&OwnerUsage> {
        self.owners.get(owner).map(AsRef::as_ref)
    }

    /// Adds the counts since the last snapshot. They count for the current owner and step of a process.
    pub fn observe(&mut self, snapshot: &Snapshot) {
        self.owners.retain(|owner, _| snapshot.owners.contains_key(owner));
        let mut counted = BTreeMap::new();
        for process in &snapshot.processes {
            let before = self.counted.get(&process.id).copied().unwrap_or_default();
            let now = Traffic::of_process(process);
            // A count decreases if it was moved or discarded. What follows is new only above the earlier maximum.
            counted.insert(process.id, now.max(before));
            let Some(owner) = listed(process, snapshot) else { continue };
            let new = now.since(before);
            if new != Traffic::default() || !self.owners.contains_key(&owner) {
                let usage = self.usage(owner);
                if usage.uid.is_none() {
                    (usage.uid, usage.user) = (Some(process.uid), process.user.clone());
                }
                usage.step(step(process)).traffic += new;
            }
        }
        self.counted = Arc::new(counted);
        self.observe_peaks(snapshot);
    }

    /// Adds time under a verdict.
    pub fn add_verdict_time(&mut self, owner: OwnerKey, step: Option<&str>, kind: VerdictKind, duration: Duration) {
        if owner == OwnerKey::Other || duration.is_zero() {
            return;
        }
        let sum = self.usage(owner).step(step).verdict_time.entry(kind).or_default();
        *sum = sum.saturating_add(duration);
    }

    /// Stores a verdict if it is the worst of its owner. `process` is that of the verdict in this snapshot.
    pub fn judge(&mut self, verdict: &Verdict, process: &Process, snapshot: &Snapshot) {
        let Some(owner) = listed(process, snapshot) else { return };
        let worst = self.owners.get(&owner).and_then(|usage| usage.worst.as_ref());
        if worst.is_none_or(|worst| is_same(&worst.verdict, verdict) || rank(&worst.verdict) < rank(verdict)) {
            let process = with_ranges_of(verdict, process);
            self.usage(owner).worst = Some(Arc::new(WorstVerdict { verdict: verdict.clone(), process }));
        }
    }

    fn usage(&mut self, owner: OwnerKey) -> &mut OwnerUsage {
        Arc::make_mut(self.owners.entry(owner).or_default())
    }

    fn observe_peaks(&mut self, snapshot: &Snapshot) {
        let mut of_owners: Managed<OwnerKey> = BTreeMap::new();
        let mut of_steps: Managed<(OwnerKey, Option<&str>)> = BTreeMap::new();
        let mut of_gpus: BTreeMap<GpuKey, u64> = BTreeMap::new();
        for process in snapshot.processes.iter().filter(|process| process.exited_at.is_none()) {
            let Some(bytes) = process.managed_bytes else { continue };
            let gpus: BTreeSet<GpuKey> = process.gpus.keys().chain(process.residency.keys()).copied().collect();
            for gpu in gpus {
                add(of_gpus.entry(gpu).or_default(), bytes);
                if let Some(owner) = listed(process, snapshot) {
                    add(of_steps.entry(((owner.clone(), step(process)), gpu)).or_default(), bytes);
                    add(of_owners.entry((owner, gpu)).or_default(), bytes);
                }
            }
        }
        let ratio = |gpu: &GpuKey, bytes: u64| {
            let size = snapshot.gpus.get(gpu)?.memory_bytes.filter(|size| *size > 0)?;
            Some(bytes as f64 / size as f64)
        };
        for ((owner, gpu), bytes) in of_owners {
            let all = of_gpus.get(&gpu).copied().unwrap_or_default();
            let known = self.owners.get(&owner);
            let (own, all) = (ratio(&gpu, bytes), ratio(&gpu, all));
            if known.is_none_or(|known| known.peak_oversubscription < own || known.peak_gpu_oversubscription < all) {
                let usage = self.usage(owner);
                raise(&mut usage.peak_oversubscription, own);
                raise(&mut usage.peak_gpu_oversubscription, all);
            }
        }
        for (((owner, step), gpu), bytes) in of_steps {
            let own = ratio(&gpu, bytes);
            let known = self.owners.get(&owner).and_then(|usage| usage.steps.get(&usage.key(step)));
            if known.is_none_or(|known| known.peak_oversubscription < own) {
                raise(&mut self.usage(owner).step(step).peak_oversubscription, own);
            }
        }
    }
}

impl OwnerUsage {
    /// Usage of a step, or of the steps without separate sums.
    fn step(&mut self, step: Option<&str>) -> &mut StepUsage {
        let key = self.key(step);
        self.steps.entry(key).or_default()
    }

    /// Key of the sums of a step.
    fn key(&self, step: Option<&str>) -> Option<String> {
        let step = Some(step?.to_owned());
        let named = self.steps.keys().flatten().count();
        if named < STEPS_MAX || self.steps.contains_key(&step) { step } else { None }
    }

    /// Sum over all steps.
    #[must_use]
    pub fn total(&self) -> StepUsage {
        let mut total = StepUsage { peak_oversubscription: self.peak_oversubscription, ..StepUsage::default() };
        for StepUsage { traffic, verdict_time, peak_oversubscription: _ } in self.steps.values() {
            total.traffic += *traffic;
            for (kind, duration) in verdict_time {
                let sum = total.verdict_time.entry(*kind).or_default();
                *sum = sum.saturating_add(*duration);
            }
        }
        total
    }
}

impl Traffic {
    /// Traffic of these counts.
    #[must_use]
    pub fn of(counters: &Counters, reuse: &Reuse) -> Self {
        let Reuse { fetched_bytes, refetched_bytes, cpu_reclaimed_bytes, bounces: _ } = *reuse;
        Self {
            fault_entries: counters.fault_entries.total(),
            bytes_htod: counters.bytes_htod.total(),
            bytes_dtoh: counters.bytes_dtoh.total(),
            evicted_bytes: counters.evicted_bytes(),
            induced_eviction_bytes: counters.induced_eviction_bytes,
            fetched_bytes,
            refetched_bytes,
            cpu_reclaimed_bytes,
        }
    }

    fn of_process(process: &Process) -> Self {
        let mut reuse = Reuse::default();
        process.reuse.values().for_each(|each| reuse += each);
        Self::of(&process.total(), &reuse)
    }

    fn since(self, before: Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    fn max(self, other: Self) -> Self {
        self.with(other, u64::max)
    }

    fn with(self, other: Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            fault_entries: of(self.fault_entries, other.fault_entries),
            bytes_htod: of(self.bytes_htod, other.bytes_htod),
            bytes_dtoh: of(self.bytes_dtoh, other.bytes_dtoh),
            evicted_bytes: of(self.evicted_bytes, other.evicted_bytes),
            induced_eviction_bytes: of(self.induced_eviction_bytes, other.induced_eviction_bytes),
            fetched_bytes: of(self.fetched_bytes, other.fetched_bytes),
            refetched_bytes: of(self.refetched_bytes, other.refetched_bytes),
            cpu_reclaimed_bytes: of(self.cpu_reclaimed_bytes, other.cpu_reclaimed_bytes),
        }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        *self = self.with(other, u64::saturating_add);
    }
}

/// Owner of a process, if it is listed.
fn listed(process: &Process, snapshot: &Snapshot) -> Option<OwnerKey> {
    Some(process.owner.key()).filter(|owner| *owner != OwnerKey::Other && snapshot.owners.contains_key(owner))
}

/// Step of a process; `None` without one.
#[must_use]
pub fn step(process: &Process) -> Option<&str> {
    process.owner.job.as_ref()?.step.as_deref()
}

fn is_same(one: &Verdict, other: &Verdict) -> bool {
    let identity = |verdict: &Verdict| (verdict.process, verdict.gpu, verdict.kind, verdict.started_at);
    identity(one) == identity(other)
}

const fn rank(verdict: &Verdict) -> (bool, u64) {
    (verdict.kind.is_thrashing(), verdict.total.copied_bytes())
}

/// Copy of a process without its large fields, with the ranges of a verdict only.
fn with_ranges_of(verdict: &Verdict, process: &Process) -> Process {
    let mut small = Process {
        started_at: process.started_at,
        uid: process.uid,
        user: process.user.clone(),
        exited_at: process.exited_at,
        host: process.host.clone(),
        gpus: process.gpus.clone(),
        counted_from: process.counted_from,
        managed_bytes: process.managed_bytes,
        owner: process.owner.clone(),
        residency: process.residency.clone(),
        reuse: process.reuse.clone(),
        ..Process::new(process.id, process.name.clone())
    };
    let is_involved = |begin| verdict.ranges.iter().any(|range| range.begin == begin);
    small.ranges.busiest = process.ranges.busiest.iter().filter(|range| is_involved(range.begin)).cloned().collect();
    small
}

fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

fn raise(peak: &mut Option<f64>, ratio: Option<f64>) {
    if *peak < ratio {
        *peak = ratio;
    }
}

//! Capacity of GPUs, and the processes that oversubscribe them: without one of them, the memory of
//! the others would fit.

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    rc::Rc,
};

use model::{GpuKey, Process, ProcessId, Snapshot, Verdict, VerdictKind, Verdicts};

use crate::gpus;

/// Use of one GPU's memory in the last window.
#[derive(Default)]
pub(super) struct GpuUse {
    /// Managed bytes that fit; `None` if unknown.
    pub(super) capacity_bytes: Option<u64>,
    /// Running processes that took part in evictions in the last window: victims and evictors of
    /// others, and those that thrash, also by evictions of their own memory alone.
    parties: HashSet<ProcessId>,
    /// Evictors without which the rest would fit, those for which most bytes were evicted first. At
    /// most two: one of them is not the victim.
    oversubscribers: Vec<ProcessId>,
}

impl GpuUse {
    /// Oversubscriber that causes this victim's evictions; `None` if the process is neither victim
    /// nor evictor. Preferred over the largest evictor, which may differ from window to window.
    pub(super) fn oversubscriber(&self, victim: ProcessId) -> Option<ProcessId> {
        self.parties.contains(&victim).then_some(())?;
        self.oversubscribers.iter().copied().find(|process| *process != victim)
    }
}

/// Use of each GPU, determined where it is asked for, once.
#[derive(Default)]
pub(super) struct GpuUseCache(RefCell<HashMap<GpuKey, Rc<GpuUse>>>);

impl GpuUseCache {
    /// Use of a GPU.
    pub(super) fn at(&self, gpu: GpuKey, snapshot: &Snapshot, verdicts: &Verdicts) -> Rc<GpuUse> {
        let gpu = gpus::resolved(gpu);
        let mut known = self.0.borrow_mut();
        Rc::clone(known.entry(gpu).or_insert_with(|| Rc::new(gpu_use(gpu, snapshot, verdicts))))
    }
}

fn gpu_use(gpu: GpuKey, snapshot: &Snapshot, verdicts: &Verdicts) -> GpuUse {
    let capacity_bytes = gpus::memory(snapshot, gpu).capacity_bytes(snapshot.gpus.get(&gpu));
    let evicted_bytes = evicted_bytes(gpu, verdicts);
    if evicted_bytes.is_empty() {
        return GpuUse { capacity_bytes, ..GpuUse::default() };
    }
    let running = || snapshot.processes.iter().filter(|process| process.exited_at.is_none());
    let oversubscribers = capacity_bytes
        .and_then(|capacity_bytes| oversubscribers(gpu, capacity_bytes, running(), &evicted_bytes))
        .unwrap_or_default();
    let parties = running().map(|process| process.id).filter(|id| evicted_bytes.contains_key(id)).collect();
    GpuUse { capacity_bytes, parties, oversubscribers }
}

/// Bytes evicted at a GPU for each party in the last window; 0 for a victim alone.
fn evicted_bytes(gpu: GpuKey, verdicts: &Verdicts) -> BTreeMap<ProcessId, u64> {
    let mut evicted_bytes: BTreeMap<ProcessId, u64> = BTreeMap::new();
    let is_here = |each: GpuKey| gpus::resolved(each) == gpu;
    for eviction in verdicts.victims.iter().filter(|eviction| is_here(eviction.gpu)) {
        evicted_bytes.entry(eviction.victim).or_default();
        let sum = evicted_bytes.entry(eviction.evictor).or_default();
        *sum = sum.saturating_add(eviction.bytes);
    }
    let is_thrash = |verdict: &&Verdict| verdict.kind == VerdictKind::CapacityThrash && is_here(verdict.gpu);
    for Verdict { process, inputs, .. } in verdicts.active.iter().filter(is_thrash) {
        // Its evictions of others are among these.
        let sum = evicted_bytes.entry(*process).or_default();
        *sum = inputs.induced_eviction_bytes.max(*sum);
    }
    evicted_bytes
}

/// `None` if the managed memory of a party is unknown.
fn oversubscribers<'a>(
    gpu: GpuKey,
    capacity_bytes: u64,
    running: impl Iterator<Item = &'a Process>,
    evicted_bytes: &BTreeMap<ProcessId, u64>,
) -> Option<Vec<ProcessId>> {
    // A party uses all of its memory in turn; another process, what it has at the GPU.
    let demand_bytes = |process: &Process| {
        if evicted_bytes.contains_key(&process.id) {
            return process.managed_bytes;
        }
        let here = process.residency.iter().filter(|(each, _)| gpus::resolved(**each) == gpu);
        Some(here.fold(0, |sum: u64, (_, resident)| sum.saturating_add(resident.bytes)))
    };
    let demands: Option<Vec<_>> = running.map(|process| Some((process.id, demand_bytes(process)?))).collect();
    let demands = demands?;
    let total_bytes = demands.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
    if total_bytes <= capacity_bytes {
        return None;
    }
    let mut oversubscribers: Vec<_> = demands
        .into_iter()
        .filter(|(_, bytes)| total_bytes.saturating_sub(*bytes) <= capacity_bytes)
        .filter_map(|(id, _)| Some((Reverse(*evicted_bytes.get(&id).filter(|bytes| **bytes > 0)?), id)))
        .collect();
    oversubscribers.sort_unstable();
    Some(oversubscribers.into_iter().map(|(_, id)| id).take(2).collect())
}

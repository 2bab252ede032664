//! Capacity of GPUs, and the processes that oversubscribe them: without one of them, the memory of
//! the others would fit.

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    rc::Rc,
};

use model::{GpuKey, Process, ProcessId, Snapshot, verdict::Victim};

use crate::gpus;

/// Use of one GPU's memory in the last window.
#[derive(Default)]
pub(super) struct GpuUse {
    /// Managed bytes that fit; `None` if unknown.
    pub(super) capacity_bytes: Option<u64>,
    /// Running victims and evictors of the last window.
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
    /// Use of a GPU. `evictions` are those of other processes' memory, at all GPUs.
    pub(super) fn at<'a>(
        &self,
        gpu: GpuKey,
        snapshot: &Snapshot,
        evictions: impl Iterator<Item = &'a Victim>,
    ) -> Rc<GpuUse> {
        let gpu = gpus::resolved(gpu);
        let mut known = self.0.borrow_mut();
        Rc::clone(known.entry(gpu).or_insert_with(|| Rc::new(gpu_use(gpu, snapshot, evictions))))
    }
}

fn gpu_use<'a>(gpu: GpuKey, snapshot: &Snapshot, evictions: impl Iterator<Item = &'a Victim>) -> GpuUse {
    let capacity_bytes = gpus::memory(snapshot, gpu).capacity_bytes(snapshot.gpus.get(&gpu));
    let evictions: Vec<_> = evictions.filter(|eviction| gpus::resolved(eviction.gpu) == gpu).collect();
    if evictions.is_empty() {
        return GpuUse { capacity_bytes, ..GpuUse::default() };
    }
    let parties: HashSet<_> = evictions.iter().flat_map(|eviction| [eviction.victim, eviction.evictor]).collect();
    let running: Vec<_> = snapshot.processes.iter().filter(|process| process.exited_at.is_none()).collect();
    let oversubscribers = capacity_bytes
        .and_then(|capacity_bytes| oversubscribers(gpu, capacity_bytes, &running, &parties, &evictions))
        .unwrap_or_default();
    let parties = running.iter().map(|process| process.id).filter(|id| parties.contains(id)).collect();
    GpuUse { capacity_bytes, parties, oversubscribers }
}

/// `None` if the managed memory of a party is unknown.
fn oversubscribers(
    gpu: GpuKey,
    capacity_bytes: u64,
    running: &[&Process],
    parties: &HashSet<ProcessId>,
    evictions: &[&Victim],
) -> Option<Vec<ProcessId>> {
    // A party uses all of its memory in turn; another process, what it has at the GPU.
    let demand_bytes = |process: &Process| {
        if parties.contains(&process.id) {
            return process.managed_bytes;
        }
        let here = process.residency.iter().filter(|(each, _)| gpus::resolved(**each) == gpu);
        Some(here.fold(0, |sum: u64, (_, resident)| sum.saturating_add(resident.bytes)))
    };
    let demands: Option<Vec<_>> = running.iter().map(|process| Some((process.id, demand_bytes(process)?))).collect();
    let demands = demands?;
    let total_bytes = demands.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
    if total_bytes <= capacity_bytes {
        return None;
    }
    let mut evicted_bytes: BTreeMap<ProcessId, u64> = BTreeMap::new();
    for Victim { evictor, bytes, .. } in evictions {
        let sum = evicted_bytes.entry(*evictor).or_default();
        *sum = sum.saturating_add(*bytes);
    }
    let mut oversubscribers: Vec<_> = demands
        .into_iter()
        .filter(|(_, bytes)| total_bytes.saturating_sub(*bytes) <= capacity_bytes)
        .filter_map(|(id, _)| Some((Reverse(*evicted_bytes.get(&id)?), id)))
        .collect();
    oversubscribers.sort_unstable();
    Some(oversubscribers.into_iter().map(|(_, id)| id).take(2).collect())
}

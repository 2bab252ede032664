//! Processes that oversubscribe a GPU: without one of them, the memory of the others would fit.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use model::{GpuKey, Process, ProcessId, Snapshot, verdict::Victim};

use crate::gpus;

/// Oversubscribers of each GPU where processes evicted memory of others in the last window, those
/// for which most bytes were evicted first. At most two: one of them is not the victim.
///
/// In one window, most of a victim's memory may be evicted for a process that would fit beside it;
/// an oversubscriber is the cause in all of them.
#[derive(Default)]
pub(super) struct Oversubscribers(HashMap<GpuKey, Vec<ProcessId>>);

impl Oversubscribers {
    pub(super) fn new<'a>(
        snapshot: &Snapshot,
        processes: &HashMap<ProcessId, &Process>,
        evictions: impl Iterator<Item = &'a Victim>,
    ) -> Self {
        let mut by_gpu: BTreeMap<GpuKey, Vec<&Victim>> = BTreeMap::new();
        for eviction in evictions {
            by_gpu.entry(gpus::resolved(eviction.gpu)).or_default().push(eviction);
        }
        let of_gpu = |(gpu, evictions): (GpuKey, Vec<&Victim>)| {
            let capacity_bytes = gpus::memory(snapshot, gpu).capacity_bytes(snapshot.gpus.get(&gpu))?;
            Some((gpu, of_gpu(capacity_bytes, processes, &evictions)?))
        };
        Self(by_gpu.into_iter().filter_map(of_gpu).collect())
    }

    /// Oversubscriber of a GPU, other than the victim.
    pub(super) fn other_than(&self, victim: ProcessId, gpu: GpuKey) -> Option<ProcessId> {
        self.0.get(&gpus::resolved(gpu))?.iter().copied().find(|process| *process != victim)
    }
}

/// `None` if the managed memory of a victim or an evictor is unknown.
fn of_gpu(
    capacity_bytes: u64,
    processes: &HashMap<ProcessId, &Process>,
    evictions: &[&Victim],
) -> Option<Vec<ProcessId>> {
    let mut evicted_bytes: BTreeMap<ProcessId, u64> = BTreeMap::new();
    for Victim { evictor, bytes, .. } in evictions {
        let sum = evicted_bytes.entry(*evictor).or_default();
        *sum = sum.saturating_add(*bytes);
    }
    let parties: BTreeSet<_> = evictions.iter().flat_map(|eviction| [eviction.victim, eviction.evictor]).collect();
    let managed_bytes = |id: &ProcessId| processes.get(id)?.managed_bytes;
    let total_bytes = parties.iter().try_fold(0_u64, |sum, id| Some(sum.saturating_add(managed_bytes(id)?)))?;
    let mut oversubscribers: Vec<_> = evicted_bytes
        .into_iter()
        .filter(|(id, _)| managed_bytes(id).is_some_and(|bytes| total_bytes.saturating_sub(bytes) <= capacity_bytes))
        .collect();
    oversubscribers.sort_by_key(|(id, bytes)| (Reverse(*bytes), *id));
    Some(oversubscribers.into_iter().map(|(id, _)| id).take(2).collect())
}

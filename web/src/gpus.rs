//! Every GPU that a snapshot knows of, with its sums.

use std::{collections::BTreeMap, ops::AddAssign};

use model::{Counters, GpuKey, Residency, Reuse, Snapshot};

use crate::capabilities::Capabilities;

/// One GPU of a snapshot.
pub(crate) struct GpuTotal<'a> {
    pub(crate) key: GpuKey,
    /// The driver's processor id that it had last.
    pub(crate) id: Option<u32>,
    pub(crate) name: Option<&'a str>,
    pub(crate) total: Counters,
}

/// All of them, in the order of their ids, whether or not anything was counted there yet.
pub(crate) fn totals(snapshot: &Snapshot) -> Vec<GpuTotal<'_>> {
    let mut totals = shown(&snapshot.gpu_totals);
    for key in snapshot.gpus.keys() {
        totals.entry(shown_as(*key)).or_default();
    }
    let mut gpus: Vec<_> = totals
        .into_iter()
        .map(|(key, total)| {
            let name = snapshot.gpus.get(&key).and_then(|gpu| gpu.name.as_deref());
            GpuTotal { key, id: id(snapshot, key), name, total }
        })
        .collect();
    gpus.sort_by_key(|gpu| (gpu.id.is_none(), gpu.id, gpu.key));
    gpus
}

/// What is known by GPU, as it is shown now.
pub(crate) fn shown<T>(gpus: &BTreeMap<GpuKey, T>) -> BTreeMap<GpuKey, T>
where
    T: Default + for<'a> AddAssign<&'a T>,
{
    let mut shown: BTreeMap<GpuKey, T> = BTreeMap::new();
    for (key, each) in gpus {
        *shown.entry(shown_as(*key)).or_default() += each;
    }
    shown
}

/// What is pending is not known yet, and shown with what never will be.
pub(crate) const fn shown_as(key: GpuKey) -> GpuKey {
    match key {
        GpuKey::Known(_) | GpuKey::Unknown(_) => key,
        GpuKey::Pending(id) => GpuKey::Unknown(id),
    }
}

/// The driver's processor id that a GPU had last.
pub(crate) fn id(snapshot: &Snapshot, key: GpuKey) -> Option<u32> {
    match key {
        GpuKey::Known(_) => snapshot.gpus.get(&key)?.id,
        GpuKey::Pending(id) | GpuKey::Unknown(id) => Some(id),
    }
}

/// A GPU's UUID as text.
pub(crate) fn uuid(key: GpuKey) -> Option<String> {
    key.uuid().map(|uuid| uuid.to_string())
}

/// Managed memory of the processes that use a GPU.
pub(crate) struct Memory {
    /// All of it. A process that uses several GPUs is counted at each.
    pub(crate) managed_bytes: u64,
    /// What of it is in this GPU's memory; `None` where that is not counted.
    pub(crate) resident: Option<Residency>,
    /// All of it over the GPU's memory, where that is known.
    pub(crate) oversubscription_ratio: Option<f64>,
}

/// Of those that live.
pub(crate) fn memory(snapshot: &Snapshot, key: GpuKey) -> Memory {
    let mut managed_bytes: u64 = 0;
    let mut resident = Residency::default();
    for process in snapshot.processes.iter().filter(|process| process.exited_at.is_none()) {
        let is_here = |each: &&GpuKey| shown_as(**each) == key;
        if process.gpus.keys().chain(process.residency.keys()).any(|each| is_here(&each)) {
            managed_bytes = managed_bytes.saturating_add(process.managed_bytes.unwrap_or_default());
        }
        for (_, bytes) in process.residency.iter().filter(|(each, _)| is_here(each)) {
            resident += bytes;
        }
    }
    let card_bytes = snapshot.gpus.get(&key).and_then(|gpu| gpu.memory_bytes).filter(|bytes| *bytes > 0);
    let oversubscription_ratio = card_bytes.map(|bytes| managed_bytes as f64 / bytes as f64);
    Memory { managed_bytes, resident: Capabilities::of(snapshot).resident(resident), oversubscription_ratio }
}

/// What of the traffic at a GPU came back, of every process ever seen.
pub(crate) fn reuse(snapshot: &Snapshot, key: GpuKey) -> Reuse {
    shown(&snapshot.reuse_totals).remove(&key).unwrap_or_default()
}

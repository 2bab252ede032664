//! All GPUs of a snapshot, with their sums.

use std::{collections::BTreeMap, ops::AddAssign};

use api::GpuId;
use model::{Capabilities, Counters, Gpu, GpuKey, Quantity, Residency, Reuse, Snapshot};

/// One GPU of a snapshot.
pub(crate) struct GpuTotal<'a> {
    pub(crate) key: GpuKey,
    pub(crate) name: Option<&'a str>,
    pub(crate) total: Counters,
}

/// Sums of all GPUs by index, then by UUID, also of those without counts yet.
pub(crate) fn totals(snapshot: &Snapshot) -> Vec<GpuTotal<'_>> {
    let mut totals = by_gpu(&snapshot.gpu_totals);
    for key in snapshot.gpus.keys() {
        totals.entry(resolved(*key)).or_default();
    }
    let mut gpus: Vec<_> = totals
        .into_iter()
        .map(|(key, total)| {
            let name = snapshot.gpus.get(&key).and_then(|gpu| gpu.name.as_deref());
            GpuTotal { key, name, total }
        })
        .collect();
    let index = |gpu: &GpuTotal<'_>| snapshot.gpus.get(&gpu.key).and_then(|known| known.index);
    gpus.sort_by_key(|gpu| (index(gpu).is_none(), index(gpu), gpu.key));
    gpus
}

/// Values by GPU, with pending processor ids as unknown ones.
pub(crate) fn by_gpu<T>(gpus: &BTreeMap<GpuKey, T>) -> BTreeMap<GpuKey, T>
where
    T: Default + for<'a> AddAssign<&'a T>,
{
    let mut by_gpu: BTreeMap<GpuKey, T> = BTreeMap::new();
    for (key, each) in gpus {
        *by_gpu.entry(resolved(*key)).or_default() += each;
    }
    by_gpu
}

/// Key for reports: a pending processor id is reported as an unknown one.
pub(crate) const fn resolved(key: GpuKey) -> GpuKey {
    match key {
        GpuKey::Known(_) | GpuKey::Unknown(_) => key,
        GpuKey::Pending(id) => GpuKey::Unknown(id),
    }
}

/// Names of a GPU.
pub(crate) fn id(snapshot: &Snapshot, key: GpuKey) -> GpuId {
    let known = snapshot.gpus.get(&key);
    let processor_id = match key {
        GpuKey::Known(_) => known.and_then(|gpu| gpu.id),
        GpuKey::Pending(id) | GpuKey::Unknown(id) => Some(id),
    };
    GpuId { gpu: known.and_then(|gpu| gpu.index), processor_id, uuid: uuid(key) }
}

/// UUID of a GPU as text.
pub(crate) fn uuid(key: GpuKey) -> Option<String> {
    key.uuid().map(|uuid| uuid.to_string())
}

/// Managed memory of the processes that use a GPU.
pub(crate) struct Memory {
    /// Mapped bytes. A process that uses several GPUs is counted at each.
    pub(crate) managed_bytes: u64,
    /// Resident bytes in this GPU; `None` if they are not counted.
    pub(crate) resident: Option<Residency>,
    /// Mapped bytes over the GPU's memory, if its size is known.
    pub(crate) oversubscription_ratio: Option<f64>,
}

impl Memory {
    /// Managed bytes that fit into a GPU; see [`api::GpuDetail::managed_capacity_bytes`].
    pub(crate) fn capacity_bytes(&self, gpu: Option<&Gpu>) -> Option<u64> {
        let resident = self.resident.map(|resident| resident.bytes);
        let used = gpu.and_then(|gpu| gpu.memory_used_bytes);
        let unmanaged = match (used, resident) {
            // The used memory may be managed or not.
            (Some(_), None) => None,
            (used, resident) => Some(used.unwrap_or(0).saturating_sub(resident.unwrap_or(0))),
        };
        let size = gpu.and_then(|gpu| gpu.memory_bytes);
        let capacity = size.zip(unmanaged).map(|(size, unmanaged)| size.saturating_sub(unmanaged));
        capacity.or(resident).filter(|capacity| *capacity > 0)
    }
}

/// Managed memory of the running processes at a GPU.
pub(crate) fn memory(snapshot: &Snapshot, key: GpuKey) -> Memory {
    let mut managed_bytes: u64 = 0;
    let mut resident = Residency::default();
    for process in snapshot.processes.iter().filter(|process| process.exited_at.is_none()) {
        let is_here = |each: &&GpuKey| resolved(**each) == key;
        if process.gpus.keys().chain(process.residency.keys()).any(|each| is_here(&each)) {
            managed_bytes = managed_bytes.saturating_add(process.managed_bytes.unwrap_or_default());
        }
        for (_, bytes) in process.residency.iter().filter(|(each, _)| is_here(each)) {
            resident += bytes;
        }
    }
    let gpu_bytes = snapshot.gpus.get(&key).and_then(|gpu| gpu.memory_bytes).filter(|bytes| *bytes > 0);
    let oversubscription_ratio = gpu_bytes.map(|bytes| managed_bytes as f64 / bytes as f64);
    Memory {
        managed_bytes,
        resident: Capabilities::of(snapshot).counted(Quantity::Resident, resident),
        oversubscription_ratio,
    }
}

/// Reuse of the traffic at a GPU, of all processes since the start.
pub(crate) fn reuse(snapshot: &Snapshot, key: GpuKey) -> Reuse {
    by_gpu(&snapshot.reuse_totals).remove(&key).unwrap_or_default()
}

//! GPUs, with their memory.

use model::{Capabilities, GpuKey, GpuSource, Quantity, Snapshot};

use super::{status::gpu, time};
use crate::gpus::{self, GpuTotal};

/// GPUs by index, then UUID.
pub(crate) fn gpus(snapshot: &Snapshot) -> api::Gpus {
    let gpus = gpus::totals(snapshot);
    api::Gpus { time: time(snapshot.taken), gpus: gpus.iter().map(|each| detail(snapshot, each)).collect() }
}

/// One GPU; `None` if it was neither seen nor counted on.
pub(super) fn gpu_of(snapshot: &Snapshot, key: GpuKey) -> Option<api::GpuDetail> {
    let key = gpus::resolved(key);
    gpus::totals(snapshot).iter().find(|each| each.key == key).map(|each| detail(snapshot, each))
}

fn detail(snapshot: &Snapshot, each: &GpuTotal<'_>) -> api::GpuDetail {
    let known = snapshot.gpus.get(&each.key);
    let (memory, capabilities) = (gpus::memory(snapshot, each.key), Capabilities::of(snapshot));
    api::GpuDetail {
        gpu: gpu(snapshot, each, capabilities),
        pci_address: known.and_then(|gpu| gpu.pci_address.clone()),
        memory_bytes: known.and_then(|gpu| gpu.memory_bytes),
        memory_used_bytes: known.and_then(|gpu| gpu.memory_used_bytes),
        managed_capacity_bytes: memory.capacity_bytes(known),
        managed_bytes: memory.managed_bytes,
        resident: memory.resident,
        oversubscription_ratio: memory.oversubscription_ratio,
        reuse: capabilities.counted(Quantity::Reuse, gpus::reuse(snapshot, each.key)),
        source: known.and_then(|gpu| gpu.source).map(GpuSource::name).map(str::to_owned),
    }
}

//! Memory of GPUs.

use model::{Gpu, GpuKey, Snapshot};

use super::labels_of_gpu;
use crate::gpus::{self, Memory};

/// Memory of one GPU with a known UUID.
pub(in crate::metrics) struct MemoryRow {
    /// Values of `gpu` and `UUID`.
    pub(in crate::metrics) labels: Vec<String>,
    /// Product name.
    pub(in crate::metrics) name: Option<String>,
    pub(in crate::metrics) pci_address: Option<String>,
    /// Size of the GPU's memory.
    pub(in crate::metrics) total_bytes: Option<u64>,
    /// Used memory of the GPU.
    pub(in crate::metrics) used_bytes: Option<u64>,
    /// Managed memory of the GPU's users, and its resident part.
    pub(in crate::metrics) managed: Memory,
}

pub(super) fn rows(snapshot: &Snapshot) -> Vec<MemoryRow> {
    let row = |(key, gpu): (&GpuKey, &Gpu)| MemoryRow {
        labels: labels_of_gpu(snapshot, *key),
        name: gpu.name.clone(),
        pci_address: gpu.pci_address.clone(),
        total_bytes: gpu.memory_bytes,
        used_bytes: gpu.memory_used_bytes,
        managed: gpus::memory(snapshot, *key),
    };
    snapshot.gpus.iter().filter(|(key, _)| key.uuid().is_some()).map(row).collect()
}

//! The memory of GPUs.

use model::{Gpu, GpuKey, Snapshot};

use super::labels_of_gpu;
use crate::gpus::{self, Memory};

/// One GPU that is known.
pub(in crate::metrics) struct MemoryRow {
    /// `gpu`, `UUID`.
    pub(in crate::metrics) labels: Vec<String>,
    /// The product's name.
    pub(in crate::metrics) name: Option<String>,
    pub(in crate::metrics) pci_address: Option<String>,
    /// All of the card's.
    pub(in crate::metrics) card_bytes: Option<u64>,
    /// What is taken of it.
    pub(in crate::metrics) used_bytes: Option<u64>,
    /// What of it is managed, and what of managed memory there is.
    pub(in crate::metrics) managed: Memory,
}

pub(super) fn rows(snapshot: &Snapshot) -> Vec<MemoryRow> {
    let row = |(key, gpu): (&GpuKey, &Gpu)| MemoryRow {
        labels: labels_of_gpu(snapshot, *key),
        name: gpu.name.clone(),
        pci_address: gpu.pci_address.clone(),
        card_bytes: gpu.memory_bytes,
        used_bytes: gpu.memory_used_bytes,
        managed: gpus::memory(snapshot, *key),
    };
    snapshot.gpus.iter().filter(|(key, _)| key.uuid().is_some()).map(row).collect()
}

//! GPUs.

use serde::{Deserialize, Serialize};

use super::{Counts, Residency, Reuse};

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gpu {
    /// The driver's processor id that the GPU had last; null once another GPU has that id.
    pub gpu: Option<u32>,
    /// The GPU's UUID; null for what was counted on a GPU that is not known.
    pub uuid: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Sums over every process seen on it since uvmd counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Body of `GET /api/v1/gpus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gpus {
    /// Time of the snapshot.
    pub time: String,
    /// By index, then UUID.
    pub gpus: Vec<GpuDetail>,
}

/// One GPU, with its memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GpuDetail {
    /// As in the status.
    #[serde(flatten)]
    pub gpu: Gpu,
    /// NVML's index, by which nvidia-smi and DCGM name it.
    pub index: Option<u32>,
    /// Address on the PCI bus.
    pub pci_address: Option<String>,
    /// All of its memory.
    pub memory_bytes: Option<u64>,
    /// What of it is taken, by managed memory and everything else.
    pub memory_used_bytes: Option<u64>,
    /// Managed memory of the living processes that use it. One that uses several GPUs is counted at each.
    pub managed_bytes: u64,
    /// How much managed memory is in it; null where unknown.
    pub resident: Option<Residency>,
    /// `managed_bytes` over `memory_bytes`.
    pub oversubscription_ratio: Option<f64>,
    /// Reuse of evicted and reclaimed memory.
    pub reuse: Reuse,
    /// `nvml` or `procfs`; null where nothing was told.
    pub source: Option<String>,
}

//! GPUs.

use serde::{Deserialize, Serialize};

use super::{Counts, Residency, Reuse};

/// Names of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GpuId {
    /// NVML's index, as in nvidia-smi and DCGM; null without NVML.
    pub gpu: Option<u32>,
    /// The driver's processor id that the GPU had last; null once another GPU has that id.
    pub processor_id: Option<u32>,
    /// UUID; null if it is not known.
    pub uuid: Option<String>,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gpu {
    /// Its names.
    #[serde(flatten)]
    pub id: GpuId,
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
    /// Address on the PCI bus.
    pub pci_address: Option<String>,
    /// Size of its memory.
    pub memory_bytes: Option<u64>,
    /// Memory in use, managed and unmanaged.
    pub memory_used_bytes: Option<u64>,
    /// Managed memory that the GPU has room for: its size without unmanaged memory in use. Without a size it is the resident memory, as a GPU that evicts
    /// is full. Null where neither is known.
    pub managed_capacity_bytes: Option<u64>,
    /// Managed memory of the living processes that use it. One that uses several GPUs is counted at each.
    pub managed_bytes: u64,
    /// Managed memory resident in it; null where unknown.
    pub resident: Option<Residency>,
    /// `managed_bytes` over `memory_bytes`.
    pub oversubscription_ratio: Option<f64>,
    /// Reuse of evicted and reclaimed memory.
    pub reuse: Reuse,
    /// `nvml` or `procfs`; null without either.
    pub source: Option<String>,
}

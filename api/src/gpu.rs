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

impl GpuId {
    /// `0`, NVML's index; without NVML `GPU-6f0e1c2d`, the begin of the UUID; a dash without either.
    #[must_use]
    pub fn short(&self) -> String {
        const CHARACTERS: usize = "GPU-6f0e1c2d".len();
        match (self.gpu, &self.uuid) {
            (Some(index), _) => index.to_string(),
            (None, Some(uuid)) => uuid.chars().take(CHARACTERS).collect(),
            (None, None) => "-".to_owned(),
        }
    }

    /// `GPU0`, `GPU-6f0e1c2d`, or `GPU?`.
    #[must_use]
    pub fn label(&self) -> String {
        match (self.gpu, &self.uuid) {
            (Some(index), _) => format!("GPU{index}"),
            (None, Some(_)) => self.short(),
            (None, None) => "GPU?".to_owned(),
        }
    }
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
    /// Reuse of evicted and reclaimed memory; null where the source has no block records.
    pub reuse: Option<Reuse>,
    /// `nvml` or `procfs`; null without either.
    pub source: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_named_by_index_or_by_the_begin_of_their_uuid() {
        let named = |gpu, uuid: Option<&str>| {
            let id = GpuId { gpu, processor_id: None, uuid: uuid.map(str::to_owned) };
            (id.short(), id.label())
        };
        let uuid = Some("GPU-6f0e1c2d-aaaa");
        assert_eq!(named(Some(3), uuid), ("3".to_owned(), "GPU3".to_owned()));
        assert_eq!(named(None, uuid), ("GPU-6f0e1c2d".to_owned(), "GPU-6f0e1c2d".to_owned()));
        assert_eq!(named(None, None), ("-".to_owned(), "GPU?".to_owned()));
    }
}

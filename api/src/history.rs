//! Recent counts.

use serde::{Deserialize, Serialize};

/// Body of `GET /api/v1/processes/{pid}/history` and `GET /api/v1/gpus/{uuid}/history`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct History {
    /// Start of the first interval.
    pub started_at: String,
    /// Seconds of each interval.
    pub interval_seconds: f64,
    /// Oldest first, without gaps; null where nothing was read.
    pub samples: Vec<Option<HistorySample>>,
}

/// Counts of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistorySample {
    /// GPU fault entries.
    pub fault_entries: u64,
    /// CPU faults.
    pub cpu_faults: u64,
    /// Bytes copied from host to GPU.
    pub bytes_htod: u64,
    /// Bytes copied from GPU to host.
    pub bytes_dtoh: u64,
    /// Bytes evicted; null where the source does not count them.
    pub evicted_bytes: Option<u64>,
    /// Bytes fetched again; null where the source has no block records.
    pub refetched_bytes: Option<u64>,
    /// Bytes in GPU memory at the interval's end; null where unknown.
    pub resident_bytes: Option<u64>,
}

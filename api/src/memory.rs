//! Where in a process's memory it happens.

use model::{CopiedBytes, Residency, Reuse};
use serde::{Deserialize, Serialize};

/// One VA block of 2 MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Block {
    /// Its first address, in hexadecimal, with `0x`.
    pub address: String,
    /// UUID of the GPU that last faulted on it, received it or lost it.
    pub gpu_uuid: Option<String>,
    /// GPU fault entries; null where they are not counted by block.
    pub fault_entries: Option<u64>,
    /// CPU faults; null where they are not counted by block.
    pub cpu_faults: Option<u64>,
    /// Bytes copied from host to GPU.
    pub bytes_htod: u64,
    /// Bytes copied from GPU to host.
    pub bytes_dtoh: u64,
    /// Bytes copied from one GPU to another.
    pub bytes_dtod: u64,
    /// Bytes that became resident at a GPU with nothing to copy; null where the driver cannot count them.
    pub populated_bytes: Option<u64>,
    /// Bytes evicted.
    pub evicted_bytes: u64,
    /// Evictions of it or of a part of it; null where they are not counted.
    pub evictions: Option<u64>,
    /// `bytes_htod` by what brought them.
    pub bytes_htod_by_cause: CopiedBytes,
    /// `bytes_dtoh` by what brought them.
    pub bytes_dtoh_by_cause: CopiedBytes,
    /// Bytes copied to a GPU after an eviction.
    pub refetched_bytes: u64,
    /// Bytes copied to a GPU after a CPU fault had taken them.
    pub cpu_reclaimed_bytes: u64,
    /// Times that it bounced between a faulting CPU and a GPU.
    pub bounces: u64,
    /// Resident part; null where unknown.
    pub resident: Option<Residency>,
    /// Time of the last event.
    pub last_seen_at: String,
}

/// Body of `GET /api/v1/processes/{pid}/ranges`. Needs read permission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ranges {
    /// Time of the snapshot.
    pub time: String,
    /// The busiest, busiest first.
    pub ranges: Vec<Range>,
    /// Number of ranges.
    pub ranges_known: u64,
    /// Number of mappings. Where they are too many, neighbours form one range.
    pub mappings: u64,
    /// Ranges forgotten to make room, none of them mapped.
    pub ranges_forgotten: u64,
    /// Blocks forgotten to make room: if not 0, counts are lower bounds.
    pub blocks_forgotten: u64,
    /// Block records left out by sampling; likewise.
    pub block_records_sampled_out: u64,
    /// Block records dropped for lack of space; likewise.
    pub block_records_dropped: u64,
    /// Limits of what faults show, as sentences.
    pub caveats: Vec<String>,
}

/// A range of managed memory: one allocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Range {
    /// First address, in hexadecimal, with `0x`.
    pub begin: String,
    /// Address behind the last one, likewise.
    pub end: String,
    /// Its length.
    pub bytes: u64,
    /// Whether it is mapped still.
    pub mapped: bool,
    /// Resident part; null where unknown.
    pub resident: Option<Residency>,
    /// Access pattern.
    pub pattern: Pattern,
    /// Counts.
    #[serde(flatten)]
    pub counts: RangeCounts,
}

/// Counts of a range, from block records. Monotonic while the range exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RangeCounts {
    /// GPU fault entries; null where they are not counted by block.
    pub fault_entries: Option<u64>,
    /// CPU faults; null where they are not counted by block.
    pub cpu_faults: Option<u64>,
    /// Bytes copied from the host to a GPU.
    pub bytes_htod: u64,
    /// Bytes copied from a GPU to the host.
    pub bytes_dtoh: u64,
    /// Bytes copied from one GPU to another.
    pub bytes_dtod: u64,
    /// Bytes that became resident at a GPU with nothing to copy; null where the driver cannot count them.
    pub populated_bytes: Option<u64>,
    /// Bytes evicted; they are in the copied bytes too.
    pub evicted_bytes: u64,
    /// Evictions of a block or of a part of it; null where they are not counted.
    pub evictions: Option<u64>,
    /// Reuse.
    pub reuse: Reuse,
}

/// Order of the faults on a range. Accesses to resident memory raise no fault, and are unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pattern {
    /// `sequential`, `strided`, `cyclic`, `random`, `hot_set` or `unknown`.
    pub kind: String,
    /// Stride of a strided pattern in bytes; negative downwards.
    pub stride_bytes: Option<i64>,
    /// Share of the recent steps that fit the pattern, from 0 to 1.
    pub confidence: f64,
    /// Recent steps from fault to fault that were classified.
    pub steps: u64,
}

/// Body of `GET /api/v1/processes/{pid}/heatmap`. Needs read permission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeatMap {
    /// Time of the snapshot.
    pub time: String,
    /// In the order of addresses.
    pub ranges: Vec<HeatRange>,
    /// Ranges omitted, beyond the limit of a response.
    pub ranges_omitted: u64,
}

/// Heat of one range, by cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeatRange {
    /// First address, in hexadecimal, with `0x`.
    pub begin: String,
    /// Address behind the last one, likewise.
    pub end: String,
    /// Bytes of a cell; the last one may be cut short.
    pub cell_bytes: u64,
    /// In the order of addresses.
    pub cells: Vec<HeatCell>,
}

/// Some neighbouring blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeatCell {
    /// GPU fault entries; null where they are not counted by block.
    pub fault_entries: Option<u64>,
    /// CPU faults; null where they are not counted by block.
    pub cpu_faults: Option<u64>,
    /// Bytes copied to a GPU.
    pub fetched_bytes: u64,
    /// Bytes copied to the host.
    pub bytes_dtoh: u64,
    /// Bytes evicted.
    pub evicted_bytes: u64,
    /// Bytes fetched again after an eviction.
    pub refetched_bytes: u64,
    /// Bytes in GPU memory; null where unknown.
    pub resident: Option<Residency>,
    /// Seconds since anything was last seen of it; null where nothing ever was.
    pub idle_seconds: Option<f64>,
}

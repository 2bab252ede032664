//! Counts, and distributions of counted quantities.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts, as sums and by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Counts {
    /// GPU fault entries, after the driver merged equal faults of a batch.
    pub fault_entries: u64,
    /// GPU faults before merging.
    pub fault_instances: u64,
    /// CPU faults on managed memory. 0 in a GPU's own counts: they belong to no GPU.
    pub cpu_faults: u64,
    /// Bytes copied from host to GPU.
    pub bytes_htod: u64,
    /// Bytes copied from GPU to host.
    pub bytes_dtoh: u64,
    /// Bytes received from another GPU.
    pub bytes_dtod: u64,
    /// Bytes evicted from GPU memory.
    pub evicted_bytes: u64,
    /// Bytes of each copy from host to GPU; one is within a block of 2 MiB.
    pub migration_size_htod_bytes: Distribution,
    /// Bytes of each copy from GPU to host.
    pub migration_size_dtoh_bytes: Distribution,
    /// Bytes that became resident at the GPU with nothing to copy, as on first touch; null where the driver cannot count them.
    pub populated_bytes: Option<u64>,
    /// Chunks of at most 2 MiB evicted from GPU memory.
    pub evictions: u64,
    /// Evictions that needed memory for this process, of any process's chunks, its own included.
    pub induced_evictions: u64,
    /// Bytes evicted in `induced_evictions`.
    pub induced_eviction_bytes: u64,
    /// Fault batches that held faults of it.
    pub batches: u64,
    /// Its fault entries in each of those batches.
    pub batch_entries: Distribution,
    /// Nanoseconds of each of those batches, from its first fault entry to its replay.
    pub batch_duration_ns: Distribution,
    /// Replays after such batches.
    pub replays: u64,
    /// Nanoseconds of each run of the driver's fault handler, which services several batches. Only in a GPU's totals.
    pub fault_handler_duration_ns: Distribution,
    /// Pages that the driver found to be thrashing. It does not see thrashing by evictions.
    pub thrashing_pages: u64,
    /// Times that the driver throttled a processor's access to a thrashing page.
    pub throttles: u64,
    /// Sum of the time throttled, in nanoseconds.
    pub throttled_ns: u64,
    /// Mappings to memory that stays on another processor.
    pub remote_mappings: u64,
    /// Bytes so mapped; what is mapped again counts again.
    pub remote_mapped_bytes: u64,
    /// Calls of the application about its memory: prefetches and advice.
    pub api_calls: u64,
    /// Events dropped that belong here.
    pub dropped_events: u64,
    /// `fault_entries` by access type.
    pub fault_entries_by_access: BTreeMap<String, u64>,
    /// `fault_instances` by access type.
    pub fault_instances_by_access: BTreeMap<String, u64>,
    /// `cpu_faults` by access type.
    pub cpu_faults_by_access: BTreeMap<String, u64>,
    /// Bytes by direction (`htod`, `dtoh`, `dtod`), then by cause.
    pub bytes_by_cause: BTreeMap<String, BTreeMap<String, u64>>,
    /// `remote_mappings` by cause.
    pub remote_mappings_by_cause: BTreeMap<String, u64>,
    /// `remote_mapped_bytes` by cause.
    pub remote_mapped_bytes_by_cause: BTreeMap<String, u64>,
    /// `api_calls` by kind.
    pub api_calls_by_kind: BTreeMap<String, u64>,
    /// Bytes in the ranges that those calls named, by kind.
    pub api_bytes_by_kind: BTreeMap<String, u64>,
    /// Calls of other processes, such as uvmd itself, about the process's memory, by kind.
    pub tool_calls_by_kind: BTreeMap<String, u64>,
    /// Bytes in the ranges that those calls named, by kind.
    pub tool_bytes_by_kind: BTreeMap<String, u64>,
}

/// Distribution of a quantity: quantiles to one significant digit, count and sum exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Sum of the values.
    pub sum: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}

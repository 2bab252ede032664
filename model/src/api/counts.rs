//! What is counted, and what follows from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What was counted, as sums and by kind.
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
    /// Bytes pushed out of GPU memory because it was needed.
    pub evicted_bytes: u64,
    /// Bytes of each copy from host to GPU; one is within a block of 2 MiB.
    pub migration_bytes_htod: Distribution,
    /// Bytes of each copy from GPU to host.
    pub migration_bytes_dtoh: Distribution,
    /// Bytes that became resident at the GPU with nothing to copy, as on first touch; null where that cannot be counted.
    pub populated_bytes: Option<u64>,
    /// Pieces of memory, of at most 2 MiB, pushed out of GPU memory because it was needed.
    pub evictions: u64,
    /// The same, by whom the memory was needed for; of anybody's, its own among them.
    pub evictions_caused: u64,
    /// Bytes copied out in `evictions_caused`.
    pub evicted_bytes_caused: u64,
    /// Fault batches that held faults of it.
    pub batches: u64,
    /// Its fault entries in each of those batches.
    pub batch_entries: Distribution,
    /// From fault to replay: nanoseconds that each of those batches took, from its first fault entry to its replay.
    pub batch_service_ns: Distribution,
    /// Times that the GPU was told to try again after such a batch.
    pub replays: u64,
    /// Service time: nanoseconds of each run of the driver's fault handler, which serves several batches. Only in a GPU's totals.
    pub handler_ns: Distribution,
    /// Pages that the driver found to be thrashing. It does not see thrashing by evictions.
    pub thrashing_pages: u64,
    /// Times that the driver held a processor back from a thrashing page.
    pub throttles: u64,
    /// How long, together.
    pub throttled_ns: u64,
    /// Mappings to memory that stays on another processor.
    pub remote_mappings: u64,
    /// Bytes so mapped; what is mapped again counts again.
    pub remote_mapped_bytes: u64,
    /// Calls of the application about its memory: prefetches and advice.
    pub api_calls: u64,
    /// Events that belong here and could not be counted.
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
    /// The same calls by other processes, such as uvmd itself, by kind.
    pub tool_calls_by_kind: BTreeMap<String, u64>,
    /// Bytes in the ranges that those calls named, by kind.
    pub tool_bytes_by_kind: BTreeMap<String, u64>,
}

/// How a quantity was distributed: quantiles to one significant digit, count and sum exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Distribution {
    /// How many values.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// Half of the values are at most this.
    pub p50: u64,
    /// Nine of ten values are.
    pub p90: u64,
    /// 99 of 100 values are.
    pub p99: u64,
    /// All values are.
    pub max: u64,
}

//! Counts, and distributions of counted quantities.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Defines [`CountsSummary`] of the first fields, and [`Counts`] of all.
macro_rules! counts {
    (
        $($(#[$sum_doc:meta])* $sum:ident: $sum_type:ty,)*;
        $($(#[$doc:meta])* $field:ident: $type:ty,)*
    ) => {
        /// Counts, as sums and by kind. A count is null where the driver has no function to count
        /// it by; `probes` and `reasons` of the status name that.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub struct Counts {
            $($(#[$sum_doc])* pub $sum: $sum_type,)*
            $($(#[$doc])* pub $field: $type,)*
        }

        /// Counts without the breakdowns and most distributions.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub struct CountsSummary {
            $($(#[$sum_doc])* pub $sum: $sum_type,)*
        }

        impl From<CountsSummary> for Counts {
            /// Breakdowns are empty.
            fn from(CountsSummary { $($sum,)* }: CountsSummary) -> Self {
                Self { $($sum,)* ..Self::default() }
            }
        }
    };
}

counts! {
    /// GPU fault entries, after the driver merged equal faults of a batch.
    fault_entries: u64,
    /// GPU faults before merging.
    fault_instances: u64,
    /// CPU faults on managed memory. 0 in a GPU's own counts: they belong to no GPU.
    cpu_faults: u64,
    /// Bytes copied from host to GPU.
    bytes_htod: u64,
    /// Bytes copied from GPU to host.
    bytes_dtoh: u64,
    /// Bytes received from another GPU.
    bytes_dtod: u64,
    /// Bytes evicted from GPU memory.
    evicted_bytes: u64,
    /// Bytes that became resident at the GPU with nothing to copy, as on first touch.
    populated_bytes: Option<u64>,
    /// Chunks of at most 2 MiB evicted from GPU memory.
    evictions: Option<u64>,
    /// Evictions that needed memory for this process, of any process's chunks, its own included.
    induced_evictions: Option<u64>,
    /// Bytes evicted in `induced_evictions`.
    induced_eviction_bytes: Option<u64>,
    /// Fault batches that held faults of it.
    batches: u64,
    /// Nanoseconds of each of those batches, from its first fault entry to its replay.
    batch_duration_ns: Distribution,
    /// Replays after such batches.
    replays: Option<u64>,
    /// Pages that the driver found to be thrashing. It does not see thrashing by evictions.
    thrashing_pages: Option<u64>,
    /// Times that the driver throttled a processor's access to a thrashing page.
    throttles: Option<u64>,
    /// Sum of the time throttled, in nanoseconds.
    throttled_ns: Option<u64>,
    /// Mappings to memory that stays on another processor.
    remote_mappings: Option<u64>,
    /// Bytes so mapped; memory that is mapped again counts again.
    remote_mapped_bytes: Option<u64>,
    /// Calls of the application about its memory: prefetches and advice.
    api_calls: u64,
    /// Events dropped that belong here.
    dropped_events: u64,
    ;
    /// Bytes of each copy from host to GPU; one is within a block of 2 MiB.
    migration_size_htod_bytes: Distribution,
    /// Bytes of each copy from GPU to host.
    migration_size_dtoh_bytes: Distribution,
    /// Its fault entries in each of `batches`.
    batch_entries: Distribution,
    /// Nanoseconds of each run of the driver's fault handler, which services several batches. Only in a GPU's totals.
    fault_handler_duration_ns: Option<Distribution>,
    /// `fault_entries` by access type.
    fault_entries_by_access: BTreeMap<String, u64>,
    /// `fault_instances` by access type.
    fault_instances_by_access: BTreeMap<String, u64>,
    /// `cpu_faults` by access type.
    cpu_faults_by_access: BTreeMap<String, u64>,
    /// Bytes by direction (`htod`, `dtoh`, `dtod`), then by cause.
    bytes_by_cause: BTreeMap<String, BTreeMap<String, u64>>,
    /// `remote_mappings` by cause.
    remote_mappings_by_cause: Option<BTreeMap<String, u64>>,
    /// `remote_mapped_bytes` by cause.
    remote_mapped_bytes_by_cause: Option<BTreeMap<String, u64>>,
    /// `api_calls` by kind.
    api_calls_by_kind: BTreeMap<String, u64>,
    /// Bytes in the ranges that those calls named, by kind.
    api_bytes_by_kind: BTreeMap<String, u64>,
    /// Calls of other processes, such as uvmd itself, about the process's memory, by kind.
    tool_calls_by_kind: BTreeMap<String, u64>,
    /// Bytes in the ranges that those calls named, by kind.
    tool_bytes_by_kind: BTreeMap<String, u64>,
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

//! Counts, and distributions of counted quantities.

use std::{collections::BTreeMap, ops::Index};

use model::{
    ApiCall, Capabilities, Cause, Counters, Direction, Quantity, RemoteCause, counters::PerVariant, single_counts,
};
use serde::{Deserialize, Serialize};

/// Defines [`CountsSummary`] of the first rows and of [`single_counts`], and [`Counts`] of all. A row is
/// a field, its type and its value. A count that some drivers lack is an `Option`, and `if` names its
/// [`Quantity`].
macro_rules! counts {
    (
        {
            |$counters:ident|
            CountsSummary { $($(#[$sum_doc:meta])* $sum:ident: $sum_type:ty = $sum_value:expr $(, if $sum_quantity:ident)?;)* }
            Counts { ..CountsSummary, $($(#[$doc:meta])* $field:ident: $type:ty = $value:expr $(, if $quantity:ident)?;)* }
        }
        $($(#[$single_doc:meta])* $single:ident: $single_quantity:ident $(, $rows:ident $metric:literal $help:literal)?;)*
    ) => {
        counts! {
            |$counters|
            CountsSummary {
                $($(#[$sum_doc])* $sum: $sum_type = $sum_value $(, if $sum_quantity)?;)*
                $($(#[$single_doc])* $single: Option<u64> = $counters.$single, if $single_quantity;)*
            }
            Counts { ..CountsSummary, $($(#[$doc])* $field: $type = $value $(, if $quantity)?;)* }
        }
    };
    (
        |$counters:ident|
        CountsSummary { $($(#[$sum_doc:meta])* $sum:ident: $sum_type:ty = $sum_value:expr $(, if $sum_quantity:ident)?;)* }
        Counts { ..CountsSummary, $($(#[$doc:meta])* $field:ident: $type:ty = $value:expr $(, if $quantity:ident)?;)* }
    ) => {
        /// Counts, as sums and by kind. A count is null where the source does not count it, or the
        /// driver has no function to count it by; `source`, `probes` and `reasons` of the status name that.
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
            /// Breakdowns are unknown.
            fn from(CountsSummary { $($sum,)* }: CountsSummary) -> Self {
                Self { $($sum,)* ..Self::default() }
            }
        }

        impl CountsSummary {
            /// Counts of these counters.
            #[must_use]
            pub fn new($counters: &Counters, capabilities: Capabilities) -> Self {
                Self { $($sum: value!(capabilities, $sum_value $(, $sum_quantity)?),)* }
            }
        }

        impl Counts {
            /// Counts of these counters.
            #[must_use]
            pub fn new($counters: &Counters, capabilities: Capabilities) -> Self {
                Self {
                    $($field: value!(capabilities, $value $(, $quantity)?),)*
                    ..CountsSummary::new($counters, capabilities).into()
                }
            }
        }
    };
}

/// Value of a row of [`counts!`].
macro_rules! value {
    ($capabilities:ident, $value:expr) => {
        $value
    };
    ($capabilities:ident, $value:expr, $quantity:ident) => {
        $capabilities.counted(Quantity::$quantity, $value)
    };
}

single_counts! { counts {
    |counters|
    CountsSummary {
        /// GPU fault entries, after the driver merged equal faults of a batch.
        fault_entries: u64 = counters.fault_entries.total();
        /// GPU faults before merging.
        fault_instances: Option<u64> = counters.fault_instances.total(), if FaultInstances;
        /// CPU faults on managed memory. 0 in a GPU's own counts: they belong to no GPU.
        cpu_faults: u64 = counters.cpu_faults();
        /// Bytes copied from host to GPU.
        bytes_htod: u64 = counters.bytes_htod.total();
        /// Bytes copied from GPU to host.
        bytes_dtoh: u64 = counters.bytes_dtoh.total();
        /// Bytes received from another GPU.
        bytes_dtod: Option<u64> = counters.bytes_dtod.total(), if CopyCauses;
        /// Bytes evicted from GPU memory.
        evicted_bytes: Option<u64> = counters.evicted_bytes(), if CopyCauses;
        /// Fault batches that held faults of it.
        batches: Option<u64> = counters.batches.entries.count(), if Batches;
        /// Nanoseconds of each of those batches, from its first fault entry to its replay.
        batch_duration_ns: Option<Distribution> = (&counters.batches.service_ns).into(), if Batches;
        /// Mappings to memory that stays on another processor.
        remote_mappings: Option<u64> = counters.remote_mappings.total(), if RemoteMappings;
        /// Bytes so mapped; memory that is mapped again counts again.
        remote_mapped_bytes: Option<u64> = counters.remote_mapped_bytes.total(), if RemoteMappings;
        /// Calls of the application about its memory: prefetches and advice.
        api_calls: Option<u64> = counters.api_calls.total(), if ApiCalls;
        /// Events dropped that belong here.
        dropped_events: u64 = counters.dropped_events;
    }
    Counts {
        ..CountsSummary,
        /// Bytes of each copy from host to GPU; one is within a block of 2 MiB.
        migration_size_htod_bytes: Option<Distribution> = (&counters.migration_size_htod_bytes).into(), if CopyCauses;
        /// Bytes of each copy from GPU to host.
        migration_size_dtoh_bytes: Option<Distribution> = (&counters.migration_size_dtoh_bytes).into(), if CopyCauses;
        /// Its fault entries in each of `batches`.
        batch_entries: Option<Distribution> = (&counters.batches.entries).into(), if Batches;
        /// Nanoseconds of each run of the driver's fault handler, which services several batches. Only in a GPU's totals.
        fault_handler_duration_ns: Option<Distribution> = (&counters.fault_handler_duration_ns).into(), if HandlerRuns;
        /// `fault_entries` by access type. `unknown`, if there is one: faults whose record was dropped.
        fault_entries_by_access: Option<BTreeMap<String, u64>> = by_access(&counters.fault_entries), if FaultAccess;
        /// `fault_instances` by access type, likewise.
        fault_instances_by_access: Option<BTreeMap<String, u64>> = by_access(&counters.fault_instances), if FaultAccess;
        /// `cpu_faults` by access type, likewise.
        cpu_faults_by_access: Option<BTreeMap<String, u64>> = cpu_faults_by_access(counters), if CpuFaultAccess;
        /// Bytes by direction (`htod`, `dtoh`, `dtod`), then by cause.
        bytes_by_cause: Option<BTreeMap<String, BTreeMap<String, u64>>> = bytes_by_cause(counters), if CopyCauses;
        /// `remote_mappings` by cause.
        remote_mappings_by_cause: Option<BTreeMap<String, u64>> =
            by(RemoteCause::ALL, RemoteCause::name, &counters.remote_mappings), if RemoteMappings;
        /// `remote_mapped_bytes` by cause.
        remote_mapped_bytes_by_cause: Option<BTreeMap<String, u64>> =
            by(RemoteCause::ALL, RemoteCause::name, &counters.remote_mapped_bytes), if RemoteMappings;
        /// `api_calls` by kind.
        api_calls_by_kind: Option<BTreeMap<String, u64>> = by(ApiCall::ALL, ApiCall::name, &counters.api_calls), if ApiCalls;
        /// Bytes in the ranges that those calls named, by kind.
        api_bytes_by_kind: Option<BTreeMap<String, u64>> = by(ApiCall::ALL, ApiCall::name, &counters.api_bytes), if ApiCalls;
        /// Calls of other processes, such as uvmd itself, about the process's memory, by kind.
        tool_calls_by_kind: Option<BTreeMap<String, u64>> = by(ApiCall::ALL, ApiCall::name, &counters.tool_calls), if ApiCalls;
        /// Bytes in the ranges that those calls named, by kind.
        tool_bytes_by_kind: Option<BTreeMap<String, u64>> = by(ApiCall::ALL, ApiCall::name, &counters.tool_bytes), if ApiCalls;
    }
} }

/// Counts by the names of their variants.
fn by<T: Copy, const LISTED: usize, const N: usize>(
    variants: [T; LISTED],
    name: impl Fn(T) -> &'static str,
    counts: &PerVariant<N>,
) -> BTreeMap<String, u64>
where
    PerVariant<N>: Index<T, Output = u64>,
{
    variants.map(|variant| (name(variant).to_owned(), counts[variant])).into()
}

fn by_access(counts: &PerVariant<6>) -> BTreeMap<String, u64> {
    counts.accesses().iter().map(|access| (access.name().to_owned(), counts[*access])).collect()
}

fn cpu_faults_by_access(counters: &Counters) -> BTreeMap<String, u64> {
    counters.cpu_faults_by_access().map(|(access, faults)| (access.name().to_owned(), faults)).collect()
}

fn bytes_by_cause(counters: &Counters) -> BTreeMap<String, BTreeMap<String, u64>> {
    Direction::ALL
        .map(|direction| (direction.name().to_owned(), by(Cause::ALL, Cause::name, counters.bytes(direction))))
        .into()
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

impl From<&model::Distribution> for Distribution {
    fn from(of: &model::Distribution) -> Self {
        Self {
            count: of.count(),
            sum: of.sum(),
            p50: of.quantile(0.5),
            p90: of.quantile(0.9),
            p99: of.quantile(0.99),
            max: of.quantile(1.0),
        }
    }
}

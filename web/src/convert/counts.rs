//! Counts of the model as those of the API.

use std::collections::BTreeMap;

use model::{Access, ApiCall, Cause, Counters, Direction, Distribution, RemoteCause, api, counters::PerVariant};

use crate::capabilities::{Capabilities, Quantity};

/// Pages faulted on or copied. Faults alone would miss processes that only prefetch, bytes alone
/// those that only touch new memory.
pub(crate) fn busyness<'a>(counters: impl IntoIterator<Item = &'a Counters>) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let (mut faults, mut bytes): (u64, u64) = (0, 0);
    for each in counters {
        faults = faults.saturating_add(each.fault_entries.total()).saturating_add(each.cpu_faults());
        for direction in Direction::ALL {
            bytes = bytes.saturating_add(each.bytes(direction).total());
        }
    }
    faults.saturating_add(bytes / PAGE_BYTES)
}

pub(super) fn summary(counters: &Counters, capabilities: Capabilities) -> api::CountsSummary {
    api::CountsSummary {
        fault_entries: counters.fault_entries.total(),
        fault_instances: counters.fault_instances.total(),
        cpu_faults: counters.cpu_faults(),
        bytes_htod: counters.bytes_htod.total(),
        bytes_dtoh: counters.bytes_dtoh.total(),
        bytes_dtod: counters.bytes_dtod.total(),
        evicted_bytes: counters.evicted_bytes(),
        populated_bytes: capabilities.counted(Quantity::Populated, counters.populated_bytes),
        evictions: capabilities.counted(Quantity::Evictions, counters.evictions),
        induced_evictions: capabilities.counted(Quantity::Evictions, counters.induced_evictions),
        induced_eviction_bytes: capabilities.counted(Quantity::Evictions, counters.induced_eviction_bytes),
        batches: counters.batches.entries.count(),
        batch_duration_ns: distribution(&counters.batches.service_ns),
        replays: capabilities.counted(Quantity::Replays, counters.replays),
        thrashing_pages: capabilities.counted(Quantity::ThrashingPages, counters.thrashing_pages),
        throttles: capabilities.counted(Quantity::Throttles, counters.throttles),
        throttled_ns: capabilities.counted(Quantity::ThrottledTime, counters.throttled_ns),
        remote_mappings: capabilities.counted(Quantity::RemoteMappings, counters.remote_mappings.total()),
        remote_mapped_bytes: capabilities.counted(Quantity::RemoteMappings, counters.remote_mapped_bytes.total()),
        api_calls: counters.api_calls.total(),
        dropped_events: counters.dropped_events,
    }
}

pub(super) fn counts(counters: &Counters, capabilities: Capabilities) -> api::Counts {
    let by_access =
        |counts: &PerVariant<5>| Access::ALL.map(|access| (access.name().to_owned(), counts[access])).into();
    let by_cause = |bytes: &PerVariant<7>| Cause::ALL.map(|cause| (cause.name().to_owned(), bytes[cause])).into();
    let by_remote_cause =
        |counts: &PerVariant<6>| RemoteCause::ALL.map(|cause| (cause.name().to_owned(), counts[cause])).into();
    let by_call = |counts: &PerVariant<8>| ApiCall::ALL.map(|call| (call.name().to_owned(), counts[call])).into();
    api::Counts {
        migration_size_htod_bytes: distribution(&counters.migration_size_htod_bytes),
        migration_size_dtoh_bytes: distribution(&counters.migration_size_dtoh_bytes),
        batch_entries: distribution(&counters.batches.entries),
        fault_handler_duration_ns: capabilities
            .counted(Quantity::HandlerRuns, distribution(&counters.fault_handler_duration_ns)),
        fault_entries_by_access: by_access(&counters.fault_entries),
        fault_instances_by_access: by_access(&counters.fault_instances),
        cpu_faults_by_access: BTreeMap::from([
            (Access::Read.name().to_owned(), counters.cpu_read_faults),
            (Access::Write.name().to_owned(), counters.cpu_write_faults),
        ]),
        bytes_by_cause: Direction::ALL
            .map(|direction| (direction.name().to_owned(), by_cause(counters.bytes(direction))))
            .into(),
        remote_mappings_by_cause: capabilities
            .counted(Quantity::RemoteMappings, by_remote_cause(&counters.remote_mappings)),
        remote_mapped_bytes_by_cause: capabilities
            .counted(Quantity::RemoteMappings, by_remote_cause(&counters.remote_mapped_bytes)),
        api_calls_by_kind: by_call(&counters.api_calls),
        api_bytes_by_kind: by_call(&counters.api_bytes),
        tool_calls_by_kind: by_call(&counters.tool_calls),
        tool_bytes_by_kind: by_call(&counters.tool_bytes),
        ..summary(counters, capabilities).into()
    }
}

fn distribution(of: &Distribution) -> api::Distribution {
    api::Distribution {
        count: of.count(),
        sum: of.sum(),
        p50: of.quantile(0.5),
        p90: of.quantile(0.9),
        p99: of.quantile(0.99),
        max: of.quantile(1.0),
    }
}

//! Addition of tallies to counters.

use abi::{
    CountKey, Kind, Tally,
    count::{REQUESTED_BY_TOOL, UNKNOWN_ACCESS, first_of_bucket},
};
use model::{Access, ApiCall, Cause, Counters, Distribution, GpuKey, RemoteCause};

use super::Counts;

impl Counts {
    /// Adds a tally of a VA space, with the GPU of the key's id.
    pub(super) fn add_tally(&mut self, key: &CountKey, gpu: GpuKey, tally: Tally) {
        let Some(kind) = Kind::from_index(key.kind.into()) else { return };
        let counters = match (kind, key.gpu) {
            (kind, _) if kind.is_of_gpu() => self.handlers.entry(gpu).or_default(),
            // Processor 0 is the host.
            (_, 0) => &mut self.host,
            (..) => self.gpus.entry(gpu).or_default(),
        };
        add(counters, kind, key.detail, tally);
    }
}

fn add(counters: &mut Counters, kind: Kind, detail: u16, tally: Tally) {
    let Tally { events, amount } = tally;
    let add = |counter: &mut u64, value: u64| *counter = counter.saturating_add(value);
    match kind {
        Kind::GpuFault | Kind::GpuFaultDuplicate => {
            if let Some(access) = Access::ALL.get(usize::from(detail)) {
                add(&mut counters.fault_entries[*access], events);
                add(&mut counters.fault_instances[*access], amount);
            }
        }
        Kind::CpuFault if detail == 0 => add(&mut counters.cpu_read_faults, events),
        Kind::CpuFault if detail == UNKNOWN_ACCESS => add(&mut counters.cpu_unknown_faults, events),
        Kind::CpuFault => add(&mut counters.cpu_write_faults, events),
        Kind::SitelessCpuFault => {
            add(&mut counters.siteless_cpu_faults, events);
            add(&mut counters.siteless_bytes_dtoh, amount);
        }
        Kind::CopyHtod => add(&mut counters.bytes_htod[cause(detail)], amount),
        Kind::CopyDtoh => add(&mut counters.bytes_dtoh[cause(detail)], amount),
        Kind::CopyDtod => add(&mut counters.bytes_dtod[cause(detail)], amount),
        Kind::Populated => add(&mut counters.populated_bytes, amount),
        Kind::Evicted => add(&mut counters.evictions, events),
        Kind::InducedEviction => {
            add(&mut counters.induced_evictions, events);
            add(&mut counters.induced_eviction_bytes, amount);
        }
        Kind::Replay | Kind::GpuReplay => add(&mut counters.replays, events),
        Kind::FreedBlock => add(&mut counters.freed_blocks, events),
        Kind::HmmMove => add(&mut counters.hmm_moves, events),
        Kind::Thrashing => add(&mut counters.thrashing_pages, events),
        Kind::Throttle => {
            add(&mut counters.throttles, events);
            add(&mut counters.throttled_ns, amount);
        }
        Kind::MapRemote => {
            let cause = remote_cause(detail);
            add(&mut counters.remote_mappings[cause], events);
            add(&mut counters.remote_mapped_bytes[cause], amount);
        }
        Kind::ApiCall => {
            if let Some(call) = ApiCall::ALL.get(usize::from(detail)) {
                add(&mut counters.api_calls[*call], events);
                add(&mut counters.api_bytes[*call], amount);
            }
        }
        Kind::ToolCall => {
            if let Some(call) = ApiCall::ALL.get(usize::from(detail)) {
                add(&mut counters.tool_calls[*call], events);
                add(&mut counters.tool_bytes[*call], amount);
            }
        }
        Kind::BatchEntries | Kind::GpuBatchEntries => observe(&mut counters.batches.entries, detail, tally),
        Kind::BatchNs | Kind::GpuBatchNs => observe(&mut counters.batches.service_ns, detail, tally),
        Kind::HandlerNs => observe(&mut counters.fault_handler_duration_ns, detail, tally),
        Kind::HtodMigrationBytes => observe(&mut counters.migration_size_htod_bytes, detail, tally),
        Kind::DtohMigrationBytes => observe(&mut counters.migration_size_dtoh_bytes, detail, tally),
    }
}

/// Adds the values of a bucket, all as its first: their mean changes with further values, and
/// numbers of values up to a bound would decrease.
fn observe(distribution: &mut Distribution, bucket: u16, Tally { events, amount }: Tally) {
    distribution.record(first_of_bucket(bucket), events, amount);
}

/// Cause of the driver's `uvm_make_resident_cause_t`, and of the requester.
pub(super) const fn cause(number: u16) -> Cause {
    match number & !REQUESTED_BY_TOOL {
        // Replayable and non-replayable; CPU faults are among the former.
        0 | 1 => Cause::Fault,
        2 => Cause::AccessCounter,
        3 => Cause::TreePrefetch,
        4 => Cause::Eviction,
        // Tools, migrate, range groups, hints.
        5..=8 if number & REQUESTED_BY_TOOL != 0 => Cause::Tool,
        5..=8 => Cause::Api,
        _ => Cause::Other,
    }
}

/// Cause of the driver's `UvmEventMapRemoteCause`.
const fn remote_cause(number: u16) -> RemoteCause {
    match number {
        1 => RemoteCause::Coherence,
        2 => RemoteCause::Thrashing,
        3 => RemoteCause::Policy,
        4 => RemoteCause::OutOfMemory,
        5 => RemoteCause::Eviction,
        _ => RemoteCause::Other,
    }
}

#[cfg(test)]
mod tests {
    use abi::count::bucket;

    use super::*;

    #[test]
    fn api_calls_of_probes_and_model_are_the_same_in_equal_order() {
        let probes = abi::ApiCall::ALL.iter().map(|call| call.name().trim_start_matches("uvm_api_"));
        // The driver's name is less specific than the API's.
        let model = ApiCall::ALL.map(|call| if call == ApiCall::Prefetch { "migrate" } else { call.name() });
        assert_eq!(probes.collect::<Vec<_>>(), model);
    }

    #[test]
    fn migrations_requested_by_a_tool_have_a_separate_cause() {
        assert_eq!([5, 6, 8].map(cause), [Cause::Api; 3]);
        assert_eq!([5, 6, 8].map(|number| cause(number | REQUESTED_BY_TOOL)), [Cause::Tool; 3]);
    }

    #[test]
    fn bucket_counts_its_first_value_with_the_exact_sum() {
        let mut counters = Counters::default();
        add(&mut counters, Kind::BatchEntries, bucket(25), Tally { events: 3, amount: 75 });
        let entries = &counters.batches.entries;
        assert_eq!((entries.count(), entries.sum(), entries.quantile(1.0)), (3, 75, 24));
        assert_eq!(counters.batches.service_ns.count(), 0);
    }

    #[test]
    fn cumulative_bucket_counts_never_decrease() {
        let up_to_32 = |values: &[u64]| {
            let mut counters = Counters::default();
            let tally = Tally { events: values.len() as u64, amount: values.iter().sum() };
            add(&mut counters, Kind::BatchEntries, bucket(32), tally);
            counters.batches.entries.at_most(32)
        };
        // All of one bucket, whose mean goes from 32 to 34.
        assert_eq!([up_to_32(&[32]), up_to_32(&[32, 35]), up_to_32(&[32, 35, 35, 35])], [1, 2, 4]);
    }
}

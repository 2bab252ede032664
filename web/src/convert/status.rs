//! State of the service and of its source.

use std::sync::atomic::Ordering;

use model::{Capabilities, ComparisonResult, Crosschecks, ProcessId, Snapshot, SourceState};

use super::time;
use crate::{
    Node,
    gpus::{self, GpuTotal},
};

/// Status, with the permissions of the requester. `warnings` are about the file of overrides and
/// the advice journal.
pub(crate) fn status(
    node: &Node,
    snapshot: &Snapshot,
    [can_read, can_write]: [bool; 2],
    warnings: impl Iterator<Item = String>,
) -> api::Status {
    let (source, capabilities) = (&snapshot.source, Capabilities::of(snapshot));
    let (reasons, counting_started_at) = match &source.state {
        SourceState::Waiting { missing } => (missing.clone(), None),
        SourceState::Refused { reason } => (vec![reason.clone()], None),
        SourceState::Counting { since } => (Vec::new(), Some(time(*since))),
    };
    let degraded = source.degraded.iter().map(|each| each.description.clone());
    let reasons = reasons.into_iter().chain(degraded).chain(source.warnings.iter().cloned()).chain(warnings).collect();
    api::Status {
        version: node.version.to_owned(),
        hostname: node.hostname.clone(),
        time: time(snapshot.taken),
        can_read,
        can_write,
        backend: source.backend.to_owned(),
        source: api::Source {
            backend: source.backend.to_owned(),
            not_counted: capabilities.not_counted().map(str::to_owned).collect(),
            crosscheck: source.crosschecks.as_ref().map(crosscheck),
        },
        state: source.state.name().to_owned(),
        degraded: source.degraded.iter().map(degradation).collect(),
        quota_refusals: source.quota_refusals.iter().map(refusals).collect(),
        reasons,
        counting_started_at,
        driver: source.driver.as_ref().map(|driver| driver.version.clone()),
        driver_fatal_error: source.fatal_error.map(|error| error.to_string()),
        layout: source.driver.as_ref().and_then(|driver| driver.layout.clone()),
        attachment: source.driver.as_ref().and_then(|driver| driver.attachment).map(str::to_owned),
        driver_parameters: source.driver.as_ref().map(|driver| driver.parameters.clone()).unwrap_or_default(),
        gpus: gpus::totals(snapshot).iter().map(|each| gpu(snapshot, each, capabilities)).collect(),
        probes: source.probes.iter().map(probe).collect(),
        dropped_events: snapshot.dropped_events(),
        dropped_events_by_reason: source
            .dropped_events
            .iter()
            .map(|(reason, count)| ((*reason).to_owned(), *count))
            .collect(),
        block_records: source.block_records.written,
        block_records_sampled_out: source.block_records.sampled_out,
        block_records_dropped: source.block_records.dropped,
        log_lines_dropped: node.log_lines_dropped.load(Ordering::Relaxed),
        audit_lines_dropped: node.audit_lines_dropped.load(Ordering::Relaxed),
        warnings: node.warnings.list(),
        configuration: node.reloads.configuration(),
        total: api::Counts::new(&snapshot.gpu_totals.values().chain([&snapshot.host_totals]).sum(), capabilities),
    }
}

pub(super) fn gpu(snapshot: &Snapshot, each: &GpuTotal<'_>, capabilities: Capabilities) -> api::Gpu {
    let name = each.name.map(str::to_owned);
    let counts = api::Counts::new(&each.total, capabilities.of_a_gpu(snapshot));
    api::Gpu { id: gpus::id(snapshot, each.key), name, counts }
}

fn crosscheck(done: &Crosschecks) -> api::Crosscheck {
    let process = |ProcessId { pid, start_ticks }| api::CheckedProcess { pid, start_ticks };
    api::Crosscheck {
        checks: done.checks,
        comparisons: ComparisonResult::ALL.map(|result| done.with(result)).iter().sum(),
        disagreements: done.with(ComparisonResult::Disagreed),
        inconclusive: done.with(ComparisonResult::Inconclusive),
        last_process: done.last_process.map(process),
    }
}

fn degradation(each: &model::Degradation) -> api::Degradation {
    let model::Degradation { reason, uid, user, pid, description } = each;
    api::Degradation {
        reason: reason.name().to_owned(),
        uid: *uid,
        user: user.clone(),
        pid: *pid,
        description: description.clone(),
    }
}

fn refusals(each: &model::QuotaRefusals) -> api::QuotaRefusals {
    let model::QuotaRefusals { uid, user, resource, refusals } = each;
    api::QuotaRefusals { uid: *uid, user: user.clone(), resource: (*resource).to_owned(), refusals: *refusals }
}

fn probe(probe: &model::ProbeStatus) -> api::Probe {
    let run_time_ns = probe.run_time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    api::Probe { name: probe.name.clone(), hits: probe.hits, run_time_ns, unavailable_reason: probe.missing.clone() }
}

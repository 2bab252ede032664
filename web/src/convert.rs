//! From a snapshot to the API's types.

use std::{cmp::Reverse, collections::BTreeMap, sync::atomic::Ordering, time::SystemTime};

use model::{
    Access, ApiCall, Cause, Counters, Direction, Distribution, RemoteCause, Snapshot, SourceState, api,
    counters::PerVariant,
};

use crate::{
    Node,
    gpus::{self, GpuTotal},
};

pub(crate) fn status(node: &Node, snapshot: &Snapshot) -> api::Status {
    let source = &snapshot.source;
    let (state, reasons, counting_since) = match &source.state {
        SourceState::Waiting { missing } => ("waiting", missing.clone(), None),
        SourceState::Refused { reason } => ("refused", vec![reason.clone()], None),
        SourceState::Counting { since } => ("counting", Vec::new(), Some(time(*since))),
    };
    let reasons = reasons.into_iter().chain(source.warnings.iter().cloned()).collect();
    api::Status {
        version: node.version.to_owned(),
        hostname: node.hostname.clone(),
        time: time(snapshot.taken),
        backend: source.backend.to_owned(),
        state: state.to_owned(),
        reasons,
        counting_since,
        driver: source.driver.as_ref().map(|driver| driver.version.clone()),
        layout: source.driver.as_ref().and_then(|driver| driver.layout.clone()),
        driver_parameters: source.driver.as_ref().map(|driver| driver.parameters.clone()).unwrap_or_default(),
        gpus: gpus::totals(snapshot).iter().map(gpu).collect(),
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
        total: counts(&snapshot.gpu_totals.values().chain([&snapshot.host_totals]).sum()),
    }
}

/// The processes that are `wanted`: living ones first, then those that moved or faulted most memory.
pub(crate) fn processes(snapshot: &Snapshot, wanted: impl Fn(&model::Process) -> bool) -> api::Processes {
    let mut chosen: Vec<_> =
        snapshot.processes.iter().filter(|process| wanted(process)).map(|process| (process, process.total())).collect();
    chosen.sort_by_key(|(process, total)| (process.ended.is_some(), Reverse(busyness(total)), process.id));
    api::Processes {
        time: time(snapshot.taken),
        processes: chosen.iter().map(|(each, total)| process(snapshot, each, total)).collect(),
    }
}

/// Pages faulted on or copied. Faults alone would hide who only prefetches, bytes alone who only touches new memory.
pub(crate) fn busyness(counters: &Counters) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let bytes: u64 = Direction::ALL.iter().map(|direction| counters.bytes(*direction).total()).sum();
    counters.fault_entries.total().saturating_add(counters.cpu_faults()).saturating_add(bytes / PAGE_BYTES)
}

/// Everything about one process, with the `blocks_max` busiest blocks of its memory.
pub(crate) fn detail(snapshot: &Snapshot, each: &model::Process, blocks_max: usize) -> api::ProcessDetail {
    let model::Blocks { busiest, known, forgotten, sampled_out_records, dropped_records } = &each.blocks;
    api::ProcessDetail {
        process: process(snapshot, each, &each.total()),
        blocks: busiest.iter().take(blocks_max).map(block).collect(),
        blocks_known: *known,
        blocks_forgotten: *forgotten,
        block_records_sampled_out: *sampled_out_records,
        block_records_dropped: *dropped_records,
        command_line: each.command_line.clone(),
    }
}

fn process(snapshot: &Snapshot, process: &model::Process, total: &Counters) -> api::Process {
    api::Process {
        pid: process.id.pid,
        start_ticks: process.id.start_ticks,
        started: process.started.map(time),
        name: process.name.clone(),
        uid: process.uid,
        user: process.user.clone(),
        cgroup: process.cgroup.as_ref().map(|path| path.to_string_lossy().into_owned()),
        state: if process.ended.is_some() { "ended" } else { "running" }.to_owned(),
        ended: process.ended.map(time),
        managed_bytes: process.managed_bytes,
        owner: owner(&process.owner),
        resident: residency(sum(process.residency.values().copied())),
        reuse: reuse(sum(process.reuse.values())),
        verdicts: Vec::new(),
        victim_of: None,
        counts: counts(total),
        gpus: gpus::shown(&process.gpus)
            .iter()
            .map(|(key, counters)| api::ProcessGpu {
                gpu: gpus::id(snapshot, *key),
                uuid: gpus::uuid(*key),
                resident: residency(process.residency.get(key).copied().unwrap_or_default()),
                reuse: reuse(process.reuse.get(key).copied().unwrap_or_default()),
                counts: counts(counters),
            })
            .collect(),
    }
}

fn sum<T: Default + std::ops::AddAssign<U>, U>(all: impl Iterator<Item = U>) -> T {
    all.fold(T::default(), |mut sum, each| {
        sum += each;
        sum
    })
}

fn owner(owner: &model::Owner) -> api::Owner {
    let model::Owner { container, pod, job, unit } = owner;
    let key = owner.key();
    api::Owner {
        kind: key.kind().to_owned(),
        id: key.id().to_owned(),
        container: container.as_ref().map(|container| container.id.clone()),
        container_runtime: container.as_ref().and_then(|container| container.runtime).map(str::to_owned),
        pod_uid: pod.as_ref().map(|pod| pod.uid.clone()),
        slurm_job: job.as_ref().map(|job| job.id.clone()),
        slurm_step: job.as_ref().and_then(|job| job.step.clone()),
        unit: unit.clone(),
    }
}

const fn residency(of: model::Residency) -> api::Residency {
    let model::Residency { bytes, min_bytes, max_bytes } = of;
    api::Residency { bytes, min_bytes, max_bytes }
}

const fn reuse(of: model::Reuse) -> api::Reuse {
    let model::Reuse { fetched_bytes, refetched_bytes, returned_bytes, alternations } = of;
    api::Reuse { fetched_bytes, refetched_bytes, returned_bytes, alternations }
}

fn counts(counters: &Counters) -> api::Counts {
    let by_access =
        |counts: &PerVariant<5>| Access::ALL.map(|access| (access.name().to_owned(), counts[access])).into();
    let by_cause = |bytes: &PerVariant<7>| Cause::ALL.map(|cause| (cause.name().to_owned(), bytes[cause])).into();
    let by_remote_cause =
        |counts: &PerVariant<6>| RemoteCause::ALL.map(|cause| (cause.name().to_owned(), counts[cause])).into();
    let by_call = |counts: &PerVariant<8>| ApiCall::ALL.map(|call| (call.name().to_owned(), counts[call])).into();
    api::Counts {
        fault_entries: counters.fault_entries.total(),
        fault_instances: counters.fault_instances.total(),
        cpu_faults: counters.cpu_faults(),
        bytes_htod: counters.bytes_htod.total(),
        bytes_dtoh: counters.bytes_dtoh.total(),
        bytes_dtod: counters.bytes_dtod.total(),
        evicted_bytes: counters.evicted_bytes(),
        populated_bytes: counters.populated_bytes,
        evictions: counters.evictions,
        evictions_caused: counters.evictions_caused,
        evicted_bytes_caused: counters.evicted_bytes_caused,
        batches: counters.batches.entries.count(),
        batch_entries: distribution(&counters.batches.entries),
        batch_service_ns: distribution(&counters.batches.service_ns),
        replays: counters.replays,
        handler_ns: distribution(&counters.handler_ns),
        thrashing_pages: counters.thrashing_pages,
        throttles: counters.throttles,
        throttled_ns: counters.throttled_ns,
        remote_mappings: counters.remote_mappings.total(),
        remote_mapped_bytes: counters.remote_mapped_bytes.total(),
        api_calls: counters.api_calls.total(),
        dropped_events: counters.dropped_events,
        fault_entries_by_access: by_access(&counters.fault_entries),
        fault_instances_by_access: by_access(&counters.fault_instances),
        cpu_faults_by_access: BTreeMap::from([
            (Access::Read.name().to_owned(), counters.cpu_read_faults),
            (Access::Write.name().to_owned(), counters.cpu_write_faults),
        ]),
        bytes_by_cause: Direction::ALL
            .map(|direction| (direction.name().to_owned(), by_cause(counters.bytes(direction))))
            .into(),
        remote_mappings_by_cause: by_remote_cause(&counters.remote_mappings),
        remote_mapped_bytes_by_cause: by_remote_cause(&counters.remote_mapped_bytes),
        api_calls_by_kind: by_call(&counters.api_calls),
        api_bytes_by_kind: by_call(&counters.api_bytes),
        tool_calls_by_kind: by_call(&counters.tool_calls),
        tool_bytes_by_kind: by_call(&counters.tool_bytes),
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

fn block(block: &model::Block) -> api::Block {
    api::Block {
        address: format!("{:#x}", block.address),
        gpu_uuid: block.gpu.and_then(gpus::uuid),
        fault_entries: block.fault_entries,
        cpu_faults: block.cpu_faults,
        bytes_htod: block.bytes_htod,
        bytes_dtoh: block.bytes_dtoh,
        bytes_dtod: block.bytes_dtod,
        populated_bytes: block.populated_bytes,
        evicted_bytes: block.evicted_bytes,
        evictions: block.evictions,
        last_seen: time(block.last_seen),
    }
}

fn gpu(each: &GpuTotal<'_>) -> api::Gpu {
    let name = each.name.map(str::to_owned);
    api::Gpu { gpu: each.id, uuid: gpus::uuid(each.key), name, counts: counts(&each.total) }
}

fn probe(probe: &model::ProbeStatus) -> api::Probe {
    let run_time_ns = probe.run_time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    api::Probe { name: probe.name.clone(), hits: probe.hits, run_time_ns, missing: probe.missing.clone() }
}

fn time(at: SystemTime) -> String {
    // A clock that was never set may read as earlier than 1970, which RFC 3339 could say and the formatter cannot.
    humantime::format_rfc3339_millis(at.max(SystemTime::UNIX_EPOCH)).to_string()
}

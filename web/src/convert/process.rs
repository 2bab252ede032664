//! Processes.

use std::{cmp::Reverse, collections::BTreeMap};

use model::{Counters, ProcessId, api};

use super::{
    INFERRED, View, address,
    counts::{busyness, counts},
    owner::owner,
    rate, sum, time,
};
use crate::gpus;

/// The processes that are `wanted`: living ones first, then those that moved or faulted most memory.
pub(crate) fn processes(view: &View<'_>, wanted: impl Fn(&model::Process) -> bool) -> api::Processes {
    let all = view.snapshot.processes.iter();
    let mut chosen: Vec<_> = all.filter(|process| wanted(process)).map(|process| (process, process.total())).collect();
    chosen.sort_by_key(|(process, total)| (process.ended.is_some(), Reverse(busyness(total)), process.id));
    api::Processes {
        time: time(view.snapshot.taken),
        processes: chosen.iter().map(|(each, total)| process(view, each, total)).collect(),
    }
}

/// Everything about one process, with the `blocks_max` busiest blocks of its memory.
pub(crate) fn detail(view: &View<'_>, each: &model::Process, blocks_max: usize) -> api::ProcessDetail {
    let model::Blocks { busiest, known, forgotten, sampled_out_records, dropped_records } = &each.blocks;
    api::ProcessDetail {
        process: process(view, each, &each.total()),
        redacted: false,
        command_line: each.command_line.clone(),
        blocks: busiest.iter().take(blocks_max).map(block).collect(),
        blocks_known: *known,
        blocks_forgotten: *forgotten,
        block_records_sampled_out: *sampled_out_records,
        block_records_dropped: *dropped_records,
    }
}

/// Without what not everybody may read.
pub(crate) fn redacted(detail: api::ProcessDetail) -> api::ProcessDetail {
    api::ProcessDetail { redacted: true, command_line: None, blocks: Vec::new(), ..detail }
}

fn process(view: &View<'_>, process: &model::Process, total: &Counters) -> api::Process {
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
        resident: sum(process.residency.values()),
        reuse: sum(process.reuse.values()),
        verdicts: verdicts(view, process.id),
        victim_of: victim_of(view, process.id),
        decisions: decisions(view, process.id),
        counts: counts(total),
        gpus: by_gpu(view, process),
    }
}

/// It on each GPU where anything is known of it.
fn by_gpu(view: &View<'_>, process: &model::Process) -> Vec<api::ProcessGpu> {
    let mut counters = gpus::shown(&process.gpus);
    let (residencies, reuses) = (gpus::shown(&process.residency), gpus::shown(&process.reuse));
    for key in residencies.keys().chain(reuses.keys()) {
        counters.entry(*key).or_default();
    }
    counters
        .iter()
        .map(|(key, counters)| api::ProcessGpu {
            gpu: gpus::id(view.snapshot, *key),
            uuid: gpus::uuid(*key),
            resident: residencies.get(key).copied().unwrap_or_default(),
            reuse: reuses.get(key).copied().unwrap_or_default(),
            counts: counts(counters),
        })
        .collect()
}

/// What is wrong with it. The one with most traffic is the worst, and they are in that order.
fn verdicts(view: &View<'_>, id: ProcessId) -> Vec<api::VerdictSummary> {
    let active = view.verdicts.active.iter().filter(|verdict| verdict.process == id);
    active
        .map(|verdict| api::VerdictSummary {
            gpu_uuid: gpus::uuid(verdict.gpu),
            kind: verdict.kind.name().to_owned(),
            since: time(verdict.since),
        })
        .collect()
}

/// What is in force about it, or would be.
fn decisions(view: &View<'_>, id: ProcessId) -> Vec<api::DecisionSummary> {
    let open = view.decisions.iter().filter(|decision| decision.process == id && decision.stage.is_open());
    open.map(|decision| api::DecisionSummary {
        id: decision.id.0,
        gpu_uuid: decision.gpu.to_string(),
        policy: decision.policy.to_owned(),
        stage: decision.stage.name().to_owned(),
        expected: decision.expected,
        link_bytes_saved: decision.link_bytes_saved(),
        faults_saved: decision.faults_saved(),
    })
    .collect()
}

/// Of the others whom its memory was pushed out for, all GPUs together, the one that it lost most to.
fn victim_of(view: &View<'_>, id: ProcessId) -> Option<api::VictimOf> {
    let mut rates: BTreeMap<ProcessId, u64> = BTreeMap::new();
    for lost in view.verdicts.victims.iter().filter(|lost| lost.victim == id && lost.evictor != id) {
        let bytes_per_second = rates.entry(lost.evictor).or_default();
        *bytes_per_second = bytes_per_second.saturating_add(rate(lost.bytes, lost.window));
    }
    let (evictor, bytes_per_second) = rates.into_iter().max_by_key(|(evictor, rate)| (*rate, Reverse(*evictor)))?;
    Some(api::VictimOf {
        pid: evictor.pid,
        start_ticks: evictor.start_ticks,
        name: view.process(evictor).map(|process| process.name.clone()).unwrap_or_default(),
        bytes_per_second,
        inferred: INFERRED,
    })
}

fn block(block: &model::Block) -> api::Block {
    api::Block {
        address: address(block.address),
        gpu_uuid: block.gpu.and_then(gpus::uuid),
        fault_entries: block.fault_entries,
        cpu_faults: block.cpu_faults,
        bytes_htod: block.bytes_htod,
        bytes_dtoh: block.bytes_dtoh,
        bytes_dtod: block.bytes_dtod,
        populated_bytes: block.populated_bytes,
        evicted_bytes: block.evicted_bytes,
        evictions: block.evictions,
        bytes_htod_by_cause: block.htod_by_cause,
        bytes_dtoh_by_cause: block.dtoh_by_cause,
        refetched_bytes: block.refetched_bytes,
        returned_bytes: block.returned_bytes,
        alternations: block.alternations,
        resident: block.resident,
        last_seen: time(block.last_seen),
    }
}

//! Lists and details of processes.

use std::{cmp::Reverse, collections::BTreeSet};

use model::{Capabilities, Counters, GpuKey, PeerReuse, ProcessId, Quantity};

use super::{View, address, busyness::busyness, diagnosis, of, owner::owner, sum, time};
use crate::{
    gpus,
    paging::{Cursors, Order, Page, PageRequest},
    problem::Problem,
};

/// Page of the selected processes: running ones first, then those that migrated or faulted most
/// memory.
pub(crate) fn processes(
    view: &View<'_>,
    order: Order,
    is_selected: impl Fn(&model::Process) -> bool,
    cursors: &Cursors,
    page_request: &PageRequest,
) -> Result<Page, Problem> {
    cursors.page(page_request, keyed(view, order, is_selected), |each| process(view, each, &each.total()))
}

/// Page of summaries of the selected processes.
pub(crate) fn summaries(
    view: &View<'_>,
    order: Order,
    is_selected: impl Fn(&model::Process) -> bool,
    cursors: &Cursors,
    page_request: &PageRequest,
) -> Result<Page, Problem> {
    cursors.page(page_request, keyed(view, order, is_selected), |each| process_summary(view, each, &each.total()))
}

/// Sort key of a process. By activity, exited processes are last.
type SortKey = (bool, Reverse<u64>, ProcessId);

fn keyed<'a>(
    view: &View<'a>,
    order: Order,
    is_selected: impl Fn(&model::Process) -> bool,
) -> Vec<(SortKey, &'a model::Process)> {
    let selected = view.snapshot.processes.iter().filter(|process| is_selected(process));
    let key = |process: &model::Process| {
        let rank = order.rank(|| busyness(process.gpus.values().chain([&process.host])));
        // By id, an exit between two pages must not make a page skip the process.
        let is_last = order == Order::Activity && process.exited_at.is_some();
        (is_last, Reverse(rank), process.id)
    };
    selected.map(|process| (key(process), process)).collect()
}

/// Detail of a process, with the `blocks_max` busiest blocks of its memory.
pub(crate) fn detail(view: &View<'_>, each: &model::Process, blocks_max: usize) -> api::ProcessDetail {
    let model::Blocks { busiest, known, forgotten, sampled_out_records, dropped_records } = &each.blocks;
    api::ProcessDetail {
        process: process(view, each, &each.total()),
        redacted: false,
        command_line: each.command_line.clone(),
        blocks: busiest.iter().take(blocks_max).map(|each| block(each, Capabilities::of(view.snapshot))).collect(),
        blocks_known: *known,
        blocks_forgotten: *forgotten,
        block_records_sampled_out: *sampled_out_records,
        block_records_dropped: *dropped_records,
    }
}

/// Detail without the fields that require read permission.
pub(crate) fn redacted(detail: api::ProcessDetail) -> api::ProcessDetail {
    api::ProcessDetail { redacted: true, command_line: None, blocks: Vec::new(), ..detail }
}

pub(super) fn process(view: &View<'_>, process: &model::Process, total: &Counters) -> api::Process {
    let summary = process_summary(view, process, total);
    api::Process {
        counts: api::Counts::new(total, Capabilities::of(view.snapshot)),
        gpus: by_gpu(view, process),
        ..summary.into()
    }
}

fn process_summary(view: &View<'_>, process: &model::Process, total: &Counters) -> api::ProcessSummary {
    let gpus = process.gpus.keys().chain(process.residency.keys()).chain(process.reuse.keys());
    let gpus: BTreeSet<GpuKey> = gpus.map(|key| gpus::resolved(*key)).collect();
    let capabilities = Capabilities::of(view.snapshot);
    api::ProcessSummary {
        pid: process.id.pid,
        start_ticks: process.id.start_ticks,
        started_at: process.started_at.map(time),
        counted_from: process.counted_from.map(time),
        name: process.name.clone(),
        uid: process.uid,
        user: process.user.clone(),
        cgroup: process.cgroup.as_ref().map(|path| path.to_string_lossy().into_owned()),
        state: if process.exited_at.is_some() { "exited" } else { "running" }.to_owned(),
        exited_at: process.exited_at.map(time),
        managed_bytes: process.managed_bytes,
        owner: owner(&view.snapshot.owner_names, &process.owner),
        resident: capabilities.counted(Quantity::Resident, sum(process.residency.values())),
        reuse: capabilities.counted(Quantity::Reuse, sum(process.reuse.values())),
        diagnosis: diagnosis::diagnosis(view, process.id),
        verdicts: of(&view.active, process.id).map(diagnosis::verdict).collect(),
        victim_of: diagnosis::victim_of(view, process.id),
        decisions: of(&view.decisions, process.id).map(diagnosis::decision).collect(),
        counts: api::CountsSummary::new(total, capabilities),
        gpus: gpus.into_iter().map(|key| gpus::id(view.snapshot, key)).collect(),
    }
}

/// Counts and memory of a process on each GPU that it used.
fn by_gpu(view: &View<'_>, process: &model::Process) -> Vec<api::ProcessGpu> {
    let capabilities = Capabilities::of(view.snapshot);
    let mut counters = gpus::by_gpu(&process.gpus);
    let (residencies, reuses) = (gpus::by_gpu(&process.residency), gpus::by_gpu(&process.reuse));
    for key in residencies.keys().chain(reuses.keys()) {
        counters.entry(*key).or_default();
    }
    let of_peers = |at: GpuKey| {
        process.peer_reuse.iter().filter(move |(key, _)| gpus::resolved(**key) == at).map(|(_, reuse)| reuse)
    };
    let of_a_gpu = capabilities.of_a_gpu(view.snapshot);
    counters
        .iter()
        .map(|(key, counters)| api::ProcessGpu {
            id: gpus::id(view.snapshot, *key),
            resident: capabilities.counted(Quantity::Resident, residencies.get(key).copied().unwrap_or_default()),
            reuse: capabilities.counted(Quantity::Reuse, reuses.get(key).copied().unwrap_or_default()),
            peer_bounces: capabilities.counted(Quantity::Reuse, of_peers(*key).map(PeerReuse::total_bounces).sum()),
            peer_reclaimed_bytes: capabilities
                .counted(Quantity::Reuse, of_peers(*key).map(|reuse| reuse.reclaimed_bytes).sum()),
            counts: api::Counts::new(counters, of_a_gpu),
        })
        .collect()
}

fn block(block: &model::Block, capabilities: Capabilities) -> api::Block {
    api::Block {
        address: address(block.address),
        gpu_uuid: block.gpu.and_then(gpus::uuid),
        fault_entries: capabilities.counted(Quantity::BlockFaults, block.fault_entries),
        cpu_faults: capabilities.counted(Quantity::BlockFaults, block.cpu_faults),
        bytes_htod: block.bytes_htod,
        bytes_dtoh: block.bytes_dtoh,
        bytes_dtod: block.bytes_dtod,
        populated_bytes: capabilities.counted(Quantity::Populated, block.populated_bytes),
        evicted_bytes: block.evicted_bytes,
        evictions: capabilities.counted(Quantity::Evictions, block.evictions),
        bytes_htod_by_cause: block.htod_by_cause,
        bytes_dtoh_by_cause: block.dtoh_by_cause,
        refetched_bytes: block.refetched_bytes,
        cpu_reclaimed_bytes: block.cpu_reclaimed_bytes,
        bounces: block.bounces,
        resident: capabilities.counted(Quantity::Resident, block.resident),
        last_seen_at: time(block.last_seen_at),
    }
}

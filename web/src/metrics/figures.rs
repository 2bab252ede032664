//! Source of samples: a snapshot, with its counts sorted into the series of the exposition.

mod memory;
mod owners;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::rule::PolicyState;
pub(super) use memory::MemoryRow;
use model::{
    Capabilities, Counters, Decision, Direction, GpuKey, GpuUuid, Process, Quantity, Reuse, Snapshot, Verdicts,
};
pub(super) use owners::{OwnerRows, listed, names};

use sys::{Roots, host_memory::HostMemory};

use super::{http::Http, listed::Listing, own::Own};
use crate::{AdviceJournal, Node, Sources, events::Tally, gpus};

/// `UUID` of GPUs whose UUID is unknown.
const UNKNOWN_UUID: &str = "unknown";
/// `UUID` of counts of CPUs.
const CPU_UUID: &str = "cpu";

/// Counters of a GPU without counts.
static ZERO: Counters = Counters::ZERO;

/// Source of all samples.
pub(super) struct Figures<'a> {
    pub(super) node: &'a Node,
    pub(super) snapshot: &'a Snapshot,
    pub(super) verdicts: &'a Verdicts,
    pub(super) capabilities: Capabilities,
    /// The same for figures by GPU.
    pub(super) capabilities_of_a_gpu: Capabilities,
    pub(super) policy_counts: PolicyCounts,
    pub(super) http: Http,
    /// All GPUs seen, with or without counts, and those without a known UUID as one.
    pub(super) gpus: Vec<Row<'a>>,
    /// Counts that belong to no GPU.
    pub(super) cpu: Row<'a>,
    /// Memory of each GPU with a known UUID.
    pub(super) memory: Vec<MemoryRow>,
    /// Listed owners.
    pub(super) owners: Vec<OwnerRows<'a>>,
    /// Processes with series.
    pub(super) processes: Vec<ProcessRows<'a>>,
    /// Number of processes without series for want of room; `None` unless such series are enabled.
    pub(super) omitted: Option<usize>,
    /// Resources of uvmd itself; `None` if they cannot be read.
    pub(super) own: Option<Own>,
    pub(super) host: Option<HostMemory>,
}

/// State and counts of policies.
pub(super) struct PolicyCounts {
    pub(super) state: PolicyState,
    /// State of the advice journal; `None` without one.
    pub(super) journal: Option<AdviceJournal>,
    pub(super) decisions: Arc<[Decision]>,
    pub(super) tally: Tally,
    /// Events dropped because readers were too slow.
    pub(super) events_dropped: u64,
}

/// Counts with their label values. A row of a GPU begins with `gpu` and `UUID`.
pub(super) struct Row<'a> {
    pub(super) labels: Vec<String>,
    /// UUID of the GPU, if known.
    pub(super) uuid: Option<GpuUuid>,
    pub(super) counters: Cow<'a, Counters>,
    pub(super) reuse: Reuse,
}

/// Rows of one process.
pub(super) struct ProcessRows<'a> {
    pub(super) process: &'a Process,
    /// Values of `pid`, `process` and `cgroup`.
    pub(super) labels: Vec<String>,
    /// Rows of its GPUs: labels of the GPU, then of the process.
    pub(super) gpus: Vec<Row<'a>>,
}

impl PolicyCounts {
    pub(super) fn now(Sources { decisions, events, controls, .. }: &Sources) -> Self {
        Self {
            state: controls.now().state(),
            journal: controls.now().journal(),
            decisions: decisions.now(),
            tally: events.tally(),
            events_dropped: events.dropped(),
        }
    }
}

impl<'a> Figures<'a> {
    pub(super) fn new(
        node: &'a Node,
        snapshot: &'a Snapshot,
        verdicts: &'a Verdicts,
        policy_counts: PolicyCounts,
        http: Http,
        listing: Option<Listing<'a>>,
    ) -> Self {
        let mut totals: BTreeMap<_, _> = snapshot.gpu_totals.iter().map(|(key, total)| (*key, total)).collect();
        for key in snapshot.gpus.keys() {
            totals.entry(*key).or_insert(&ZERO);
        }
        let omitted = listing.as_ref().map(|listing| listing.omitted);
        let listed = listing.map(|listing| listing.processes).unwrap_or_default();
        let cpu = Row {
            labels: gpu_labels(None, CPU_UUID.to_owned()),
            uuid: None,
            counters: Cow::Borrowed(&snapshot.host_totals),
            reuse: Reuse::default(),
        };
        Self {
            node,
            snapshot,
            verdicts,
            capabilities: Capabilities::of(snapshot),
            capabilities_of_a_gpu: Capabilities::of(snapshot).of_a_gpu(snapshot),
            policy_counts,
            http,
            gpus: rows(snapshot, &totals, &snapshot.reuse_totals),
            cpu,
            memory: memory::rows(snapshot),
            owners: owners::rows(snapshot),
            processes: listed.into_iter().map(|(process, names)| process_rows(snapshot, process, names)).collect(),
            omitted,
            own: Own::read(),
            host: HostMemory::read(&Roots::default()),
        }
    }

    /// Directions in which copies are counted.
    pub(super) fn directions(&self) -> &'static [Direction] {
        if self.capabilities.has(Quantity::CopyCauses) { &Direction::ALL } else { &[Direction::Htod, Direction::Dtoh] }
    }

    /// Rows of GPUs, and of the CPUs.
    pub(super) fn processors(&self) -> impl Iterator<Item = &Row<'a>> {
        self.gpus.iter().chain([&self.cpu])
    }

    /// Sum of all counts.
    pub(super) fn total(&self) -> Counters {
        // The sum includes pending counts, which the rows lack: they only move within the sum.
        self.snapshot.gpu_totals.values().chain([&self.snapshot.host_totals]).sum()
    }
}

/// Values of `gpu` and `UUID` for a GPU that may be unknown.
pub(super) fn labels_of_gpu(snapshot: &Snapshot, key: GpuKey) -> Vec<String> {
    match gpus::uuid(key) {
        Some(uuid) => gpu_labels(snapshot.gpus.get(&key).and_then(|gpu| gpu.index), uuid),
        None => gpu_labels(None, UNKNOWN_UUID.to_owned()),
    }
}

fn gpu_labels(index: Option<u32>, uuid: String) -> Vec<String> {
    vec![index.map(|index| index.to_string()).unwrap_or_default(), uuid]
}

type ByGpu<'a> = BTreeMap<GpuKey, &'a Counters>;

fn by_gpu(counts: &BTreeMap<GpuKey, Counters>) -> ByGpu<'_> {
    counts.iter().map(|(key, counters)| (*key, counters)).collect()
}

/// Rows of GPUs: one for each known UUID, by index, and one for all others together if they have
/// counts.
///
/// Pending counts are in neither row: they move to one of them later, and a counter cannot
/// decrease.
fn rows<'a>(snapshot: &Snapshot, counts: &ByGpu<'a>, reuses: &BTreeMap<GpuKey, Reuse>) -> Vec<Row<'a>> {
    let keys: BTreeSet<GpuKey> = counts.keys().chain(reuses.keys()).copied().collect();
    let mut rows: Vec<_> = keys
        .iter()
        .filter_map(|key| {
            let index = snapshot.gpus.get(key).and_then(|gpu| gpu.index);
            let row = Row {
                labels: key.uuid().map(|_| labels_of_gpu(snapshot, *key))?,
                uuid: key.uuid(),
                counters: Cow::Borrowed(counts.get(key).copied().unwrap_or(&ZERO)),
                reuse: reuses.get(key).copied().unwrap_or_default(),
            };
            Some((index, row))
        })
        .collect();
    rows.sort_by_key(|(index, _)| (index.is_none(), *index));
    let mut rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    let is_unknown = |key: &GpuKey| matches!(key, GpuKey::Unknown(_));
    let mut reuse = Reuse::default();
    for (_, each) in reuses.iter().filter(|(key, _)| is_unknown(key)) {
        reuse += each;
    }
    let counters: Counters = counts.iter().filter(|(key, _)| is_unknown(key)).map(|(_, counters)| *counters).sum();
    if counters != ZERO || reuse != Reuse::default() {
        let labels = gpu_labels(None, UNKNOWN_UUID.to_owned());
        rows.push(Row { labels, uuid: None, counters: Cow::Owned(counters), reuse });
    }
    rows
}

fn process_rows<'a>(snapshot: &Snapshot, process: &'a Process, names: [String; 3]) -> ProcessRows<'a> {
    let mut gpus = rows(snapshot, &by_gpu(&process.gpus), &process.reuse);
    for row in &mut gpus {
        row.labels.extend(names.iter().cloned());
    }
    ProcessRows { process, labels: names.into(), gpus }
}

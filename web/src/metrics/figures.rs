//! What a scrape is answered from: a snapshot, with its counts sorted by the series that they are shown in.

mod memory;
mod owners;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub(super) use memory::MemoryRow;
use model::{Counters, Decision, GpuKey, GpuUuid, Process, Reuse, Snapshot, Verdicts, api::rule::PolicyState};
pub(super) use owners::{OwnerRows, listed, names};

use super::{http::Http, listed::Listing, own::Own};
use crate::{AdviceJournal, Node, Sources, capabilities::Capabilities, events::Tally, gpus};

/// Stands for the UUIDs of GPUs that it was never learned of.
const UNKNOWN_UUID: &str = "unknown";
/// Stands where what is counted belongs to a CPU.
const CPU_UUID: &str = "cpu";

/// What is counted where nothing is.
static NOTHING: Counters = Counters::ZERO;

/// What every sample is taken from.
pub(super) struct Figures<'a> {
    pub(super) node: &'a Node,
    pub(super) snapshot: &'a Snapshot,
    pub(super) verdicts: &'a Verdicts,
    pub(super) capabilities: Capabilities,
    pub(super) deeds: Deeds,
    pub(super) http: Http,
    /// Every GPU seen, whether or not anything was counted there yet, and those not known, as one.
    pub(super) gpus: Vec<Row<'a>>,
    /// What belongs to no GPU.
    pub(super) cpu: Row<'a>,
    /// The memory of each GPU that is known.
    pub(super) memory: Vec<MemoryRow>,
    /// Owners that are listed.
    pub(super) owners: Vec<OwnerRows<'a>>,
    /// Processes with series of their own.
    pub(super) processes: Vec<ProcessRows<'a>>,
    /// How many processes have none for want of room; `None` if none was asked for.
    pub(super) left_out: Option<usize>,
    /// uvmd itself; `None` if that cannot be read.
    pub(super) own: Option<Own>,
}

/// What is done about what is wrong.
pub(super) struct Deeds {
    pub(super) state: PolicyState,
    /// `None` where there is none.
    pub(super) journal: Option<AdviceJournal>,
    pub(super) decisions: Arc<[Decision]>,
    pub(super) tally: Tally,
    /// Events that readers were too slow for.
    pub(super) events_dropped: u64,
}

/// Counts and the values of the labels that name them. A row of a GPU begins with `gpu` and `UUID`.
pub(super) struct Row<'a> {
    pub(super) labels: Vec<String>,
    /// Of the GPU, if it is known.
    pub(super) uuid: Option<GpuUuid>,
    pub(super) counters: Cow<'a, Counters>,
    pub(super) reuse: Reuse,
}

/// One process.
pub(super) struct ProcessRows<'a> {
    pub(super) process: &'a Process,
    /// `pid`, `process`, `cgroup`.
    pub(super) labels: Vec<String>,
    /// It on each GPU: the GPU's labels, and its own.
    pub(super) gpus: Vec<Row<'a>>,
}

impl Deeds {
    pub(super) fn now(Sources { decisions, events, controls, .. }: &Sources) -> Self {
        Self {
            state: controls.now().state(),
            journal: controls.now().journal(),
            decisions: decisions.now(),
            tally: events.tally(),
            events_dropped: events.lost(),
        }
    }
}

impl<'a> Figures<'a> {
    pub(super) fn new(
        node: &'a Node,
        snapshot: &'a Snapshot,
        verdicts: &'a Verdicts,
        deeds: Deeds,
        http: Http,
        listing: Option<Listing<'a>>,
    ) -> Self {
        let mut totals: BTreeMap<_, _> = snapshot.gpu_totals.iter().map(|(key, total)| (*key, total)).collect();
        for key in snapshot.gpus.keys() {
            totals.entry(*key).or_insert(&NOTHING);
        }
        let left_out = listing.as_ref().map(|listing| listing.left_out);
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
            deeds,
            http,
            gpus: rows(snapshot, &totals, &snapshot.reuse_totals),
            cpu,
            memory: memory::rows(snapshot),
            owners: owners::rows(snapshot),
            processes: listed.into_iter().map(|(process, names)| process_rows(snapshot, process, names)).collect(),
            left_out,
            own: Own::read(),
        }
    }

    /// GPUs, and what belongs to none.
    pub(super) fn processors(&self) -> impl Iterator<Item = &Row<'a>> {
        self.gpus.iter().chain([&self.cpu])
    }

    /// Everything together.
    pub(super) fn total(&self) -> Counters {
        // What is pending is in here, unlike in the rows: it moves within this sum.
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

/// A row for each GPU whose UUID is known, by index, and one for all others together once something was counted there.
///
/// Pending counts are in neither row: they move to one of them later, and a counter cannot decrease.
fn rows<'a>(snapshot: &Snapshot, counts: &ByGpu<'a>, reuses: &BTreeMap<GpuKey, Reuse>) -> Vec<Row<'a>> {
    let keys: BTreeSet<GpuKey> = counts.keys().chain(reuses.keys()).copied().collect();
    let mut rows: Vec<_> = keys
        .iter()
        .filter_map(|key| {
            let index = snapshot.gpus.get(key).and_then(|gpu| gpu.index);
            let row = Row {
                labels: key.uuid().map(|_| labels_of_gpu(snapshot, *key))?,
                uuid: key.uuid(),
                counters: Cow::Borrowed(counts.get(key).copied().unwrap_or(&NOTHING)),
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
    if counters != NOTHING || reuse != Reuse::default() {
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

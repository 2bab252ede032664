//! What a scrape is answered from: a snapshot, with its counts sorted by the series that they are shown in.

use std::{borrow::Cow, collections::BTreeMap};

use model::{Counters, GpuKey, Process, Snapshot};

use super::listed::Listing;
use crate::{Node, gpus};

/// Stands for the UUIDs of GPUs that it was never learned of.
const UNKNOWN_UUID: &str = "unknown";
/// Stands where what is counted belongs to a CPU.
const CPU_UUID: &str = "cpu";

/// What every sample is taken from.
pub(super) struct Figures<'a> {
    pub(super) node: &'a Node,
    pub(super) snapshot: &'a Snapshot,
    /// Every GPU seen, whether or not anything was counted there yet, and those not known, as one.
    pub(super) gpus: Vec<Row<'a>>,
    /// What belongs to no GPU.
    pub(super) cpu: Row<'a>,
    /// Processes with series of their own.
    pub(super) processes: Vec<ProcessRows<'a>>,
    /// How many processes have none for want of room; `None` if none was asked for.
    pub(super) left_out: Option<usize>,
}

/// Counters and the values of the labels that name them. A row of a GPU begins with `gpu`, `UUID` and `hostname`.
pub(super) struct Row<'a> {
    pub(super) labels: Vec<String>,
    pub(super) counters: Cow<'a, Counters>,
}

/// One process.
pub(super) struct ProcessRows<'a> {
    pub(super) process: &'a Process,
    /// `hostname`, `pid`, `process`, `cgroup`.
    pub(super) labels: Vec<String>,
    /// It on each GPU: the GPU's labels, and its own.
    pub(super) gpus: Vec<Row<'a>>,
}

impl<'a> Figures<'a> {
    pub(super) fn new(node: &'a Node, snapshot: &'a Snapshot, listing: Option<Listing<'a>>) -> Self {
        let mut totals: BTreeMap<_, _> = snapshot.gpu_totals.iter().map(|(key, total)| (*key, total)).collect();
        for key in snapshot.gpus.keys() {
            totals.entry(*key).or_insert(const { &Counters::ZERO });
        }
        let mut gpus = known(node, snapshot, &totals);
        if !totals.is_empty() {
            gpus.push(unknown(node, &totals));
        }
        let left_out = listing.as_ref().map(|listing| listing.left_out);
        let listed = listing.map(|listing| listing.processes).unwrap_or_default();
        Self {
            node,
            snapshot,
            gpus,
            cpu: Row::new(node, None, CPU_UUID.to_owned(), Cow::Borrowed(&snapshot.host_totals)),
            processes: listed
                .into_iter()
                .map(|(process, names)| process_rows(node, snapshot, process, names))
                .collect(),
            left_out,
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

impl<'a> Row<'a> {
    fn new(node: &Node, id: Option<u32>, uuid: String, counters: Cow<'a, Counters>) -> Self {
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        Self { labels: vec![id, uuid, node.hostname.clone()], counters }
    }
}

type ByGpu<'a> = BTreeMap<GpuKey, &'a Counters>;

/// A row for each GPU whose UUID is known, in the order of their numbers.
fn known<'a>(node: &Node, snapshot: &Snapshot, counts: &ByGpu<'a>) -> Vec<Row<'a>> {
    let mut rows: Vec<_> = counts
        .iter()
        .filter_map(|(key, counters)| {
            let id = snapshot.gpus.get(key).and_then(|gpu| gpu.first_id);
            Some((id, Row::new(node, id, gpus::uuid(*key)?, Cow::Borrowed(*counters))))
        })
        .collect();
    rows.sort_by_key(|(id, _)| (id.is_none(), *id));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The row of the others. What is pending will be in one or the other; shown before, it would have to be taken back, and a counter cannot be.
fn unknown<'a>(node: &Node, counts: &ByGpu<'a>) -> Row<'a> {
    let unknown = counts.iter().filter(|(key, _)| matches!(key, GpuKey::Unknown(_)));
    let sum = unknown.map(|(_, counters)| *counters).sum();
    Row::new(node, None, UNKNOWN_UUID.to_owned(), Cow::Owned(sum))
}

fn process_rows<'a>(node: &Node, snapshot: &Snapshot, process: &'a Process, names: [String; 3]) -> ProcessRows<'a> {
    let counts: ByGpu<'a> = process.gpus.iter().map(|(key, counters)| (*key, counters)).collect();
    let mut gpus = known(node, snapshot, &counts);
    if counts.keys().any(|key| matches!(key, GpuKey::Unknown(_))) {
        gpus.push(unknown(node, &counts));
    }
    for row in &mut gpus {
        row.labels.extend(names.iter().cloned());
    }
    ProcessRows { process, labels: [node.hostname.clone()].into_iter().chain(names).collect(), gpus }
}

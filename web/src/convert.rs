//! Conversion of the collector's data to the API's types.

mod busyness;
mod diagnosis;
mod eviction;
mod gpu;
mod history;
mod memory;
mod oversubscription;
mod owner;
mod owner_detail;
mod owner_report;
mod process;
mod site;
mod status;
mod verdict;

use std::{collections::HashMap, ops::AddAssign, rc::Rc, time::Duration};

use model::{
    Decision, GpuKey, Process, ProcessId, Snapshot, Verdict, Verdicts,
    text::{address, time},
    verdict::Victim,
};

pub(crate) use busyness::busyness;
pub(crate) use eviction::evictions;
pub(crate) use gpu::gpus;
pub(crate) use history::history;
pub(crate) use memory::{heat_map, ranges};
use oversubscription::{GpuUse, GpuUseCache};
pub(crate) use owner::owners;
pub(crate) use owner_detail::owner_detail;
pub(crate) use owner_report::owner_report;
pub(crate) use process::{detail, processes, redacted, summaries};
pub(crate) use site::sites;
pub(crate) use status::status;
pub use verdict::verdict_events;
pub(crate) use verdict::{unavailable, verdicts, verdicts_of};

/// Whether evictors are inferred: from probes, without a comparison with a GPU's own behaviour.
pub(crate) const INFERRED: bool = true;

/// Input of a response, indexed by process, since there may be thousands of each and lists name
/// many.
pub(crate) struct View<'a> {
    snapshot: &'a Snapshot,
    verdicts: &'a Verdicts,
    processes: HashMap<ProcessId, &'a Process>,
    /// Verdicts in effect by process, those with most traffic first.
    active: HashMap<ProcessId, Vec<&'a Verdict>>,
    /// Evictions of each process's memory by other processes.
    lost: HashMap<ProcessId, Vec<&'a Victim>>,
    caused: HashMap<ProcessId, Vec<&'a Victim>>,
    uses: GpuUseCache,
    /// Decisions that are open: in effect or in shadow.
    decisions: HashMap<ProcessId, Vec<&'a Decision>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, verdicts: &'a Verdicts, decisions: &'a [Decision]) -> Self {
        let others = || verdicts.victims.iter().filter(|lost| lost.victim != lost.evictor);
        Self {
            snapshot,
            verdicts,
            processes: snapshot.processes.iter().map(|process| (process.id, process)).collect(),
            uses: GpuUseCache::default(),
            active: by(verdicts.active.iter(), |verdict| verdict.process),
            lost: by(others(), |lost| lost.victim),
            caused: by(others(), |lost| lost.evictor),
            decisions: by(decisions.iter().filter(|decision| decision.stage.is_open()), |decision| decision.process),
        }
    }

    /// Use of a GPU's memory in the last window.
    fn gpu_use(&self, gpu: GpuKey) -> Rc<GpuUse> {
        self.uses.at(gpu, self.snapshot, self.verdicts)
    }

    pub(crate) fn process(&self, id: ProcessId) -> Option<&'a Process> {
        self.processes.get(&id).copied()
    }
}

fn by<'a, T>(all: impl Iterator<Item = &'a T>, process: impl Fn(&T) -> ProcessId) -> HashMap<ProcessId, Vec<&'a T>> {
    let mut by: HashMap<ProcessId, Vec<&T>> = HashMap::new();
    for each in all {
        by.entry(process(each)).or_default().push(each);
    }
    by
}

/// Entries of one process, in their order.
fn of<'b, 'a, T>(
    by: &'b HashMap<ProcessId, Vec<&'a T>>,
    id: ProcessId,
) -> impl Iterator<Item = &'a T> + use<'b, 'a, T> {
    by.get(&id).into_iter().flatten().copied()
}

fn sum<T: Default + AddAssign<U>, U>(all: impl Iterator<Item = U>) -> T {
    all.fold(T::default(), |mut sum, each| {
        sum += each;
        sum
    })
}

/// Bytes per second; a window below 1 ms counts as 1 ms.
fn rate(bytes: u64, window: Duration) -> u64 {
    let rate = u128::from(bytes) * 1000 / window.as_millis().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

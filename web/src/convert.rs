//! From what is known to the API's types.

mod counts;
mod eviction;
mod gpu;
mod history;
mod memory;
mod owner;
mod process;
mod status;
mod verdict;

use std::{collections::HashMap, ops::AddAssign, time::Duration};

use model::{
    Decision, Process, ProcessId, Snapshot, Verdicts,
    api::text::{address, time},
};

pub(crate) use counts::busyness;
pub(crate) use eviction::evictions;
pub(crate) use gpu::gpus;
pub(crate) use history::history;
pub(crate) use memory::{heat_map, ranges};
pub(crate) use owner::owners;
pub(crate) use process::{detail, processes, redacted};
pub(crate) use status::status;
pub use verdict::verdict_event;
pub(crate) use verdict::verdicts;

/// Who pushed whose memory out follows from what the probes see; it has not been compared with what a GPU itself does.
const INFERRED: bool = true;

/// What an answer is made of.
pub(crate) struct View<'a> {
    snapshot: &'a Snapshot,
    verdicts: &'a Verdicts,
    decisions: &'a [Decision],
    /// There may be thousands, each named in many pairs.
    processes: HashMap<ProcessId, &'a Process>,
}

impl<'a> View<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, verdicts: &'a Verdicts, decisions: &'a [Decision]) -> Self {
        let processes = snapshot.processes.iter().map(|process| (process.id, process)).collect();
        Self { snapshot, verdicts, decisions, processes }
    }

    fn process(&self, id: ProcessId) -> Option<&'a Process> {
        self.processes.get(&id).copied()
    }
}

fn sum<T: Default + AddAssign<U>, U>(all: impl Iterator<Item = U>) -> T {
    all.fold(T::default(), |mut sum, each| {
        sum += each;
        sum
    })
}

/// Bytes a second; 0 where there was no time.
fn rate(bytes: u64, window: Duration) -> u64 {
    let rate = u128::from(bytes) * 1000 / window.as_millis().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

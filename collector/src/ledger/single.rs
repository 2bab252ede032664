//! Processes with one VA space, and its counts.

use std::collections::BTreeMap;

use model::{Counters, ProcessId};

use super::{Counts, Generation, Ledger, NO_SPACE, Presence};

impl Ledger {
    /// Processes that are not known to have exited and have one VA space that is not destroyed.
    pub(crate) fn with_one_space(&self) -> BTreeMap<ProcessId, Generation> {
        let mut spaces: BTreeMap<ProcessId, Vec<Generation>> = BTreeMap::new();
        for (generation, space) in self.spaces.iter().filter(|(generation, _)| **generation != NO_SPACE) {
            if let Some(process) = space.process.filter(|_| !space.destroyed) {
                spaces.entry(process).or_default().push(*generation);
            }
        }
        let is_here =
            |process: &ProcessId| self.processes.get(process).is_some_and(|entry| entry.presence != Presence::Gone);
        let single = spaces.into_iter().filter(|(process, _)| is_here(process));
        single.filter_map(|(process, spaces)| Some((process, <[_; 1]>::try_from(spaces).ok()?[0]))).collect()
    }

    /// Counts of a VA space at all processors; `None` if it is destroyed or unknown.
    pub(crate) fn counts_of(&self, generation: Generation) -> Option<Counters> {
        let space = self.spaces.get(&generation).filter(|space| !space.destroyed)?;
        let mut counts = Counts::default();
        counts.add_space(space);
        Some(counts.gpus.values().chain([&counts.host]).sum())
    }
}

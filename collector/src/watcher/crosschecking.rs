//! Cross-check of the source: choice of a process, and readings of both sources.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Bound,
};

use model::{Crosschecks, Degradation, ProcessId};
use sys::uvm::tracker::Counters;
use tokio::time::Instant;

use super::{Counting, State, Watcher, turn::Turn};
use crate::{
    crosscheck::{Crosscheck, Target},
    handle::Exempt,
    ledger::Ledger,
    tenants::Tenants,
    tools::SingleTracker,
};

/// Turns of processes to be checked: of users first, so that one with many processes has no more.
#[derive(Debug, Default)]
pub(super) struct Turns {
    by_user: BTreeMap<u32, Turn>,
    last: Option<u32>,
}

impl Turns {
    fn take(&mut self, targets: &[Target]) -> Option<Target> {
        let users: BTreeSet<u32> = targets.iter().map(|target| target.uid).collect();
        self.by_user.retain(|uid, _| users.contains(uid));
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let uid = users.range((after, Bound::Unbounded)).next().or_else(|| users.first()).copied()?;
        self.last = Some(uid);
        let mut processes: Vec<_> =
            targets.iter().filter(|target| target.uid == uid).map(|target| target.process).collect();
        processes.sort_unstable();
        let next = self.by_user.entry(uid).or_default().take(&processes, 1);
        targets.iter().find(|target| next.contains(&target.process)).copied()
    }
}

impl Watcher {
    /// Sets the processes that are not checked. A check of one of them ends.
    pub(crate) fn exempt(&mut self, exempt: Exempt) {
        self.exempt = exempt;
        self.look_at_crosscheck();
    }

    /// Goes on with a check, or begins one.
    pub(super) fn look_at_crosscheck(&mut self) {
        if !self.config.crosscheck {
            return;
        }
        let State::Counting(Counting { module, source, .. }) = &self.state else { return };
        // Two trackers of one kind would count the same.
        if source.probes().is_none() {
            return;
        }
        if self.crosscheck.is_none() {
            let version = module.version.as_deref().unwrap_or_default();
            let single = SingleTracker::new(&self.config.roots, &self.config.program, version);
            self.crosscheck = Some(Crosscheck::new(Box::new(single), self.crosschecked.clone()));
        }
        let Self { crosscheck: Some(crosscheck), exempt, turns_of_checks, ledger, tenants, .. } = self else { return };
        if crosscheck.target().is_some_and(|target| exempt.contains(&target.process)) {
            crosscheck.end();
        }
        crosscheck.look(Instant::now(), || turns_of_checks.take(&targets(ledger, tenants, exempt)));
    }

    /// Reads the driver's counters before the probes are read, if both are to be compared.
    pub(super) fn begin_comparison(&self) -> Option<Counters> {
        self.crosscheck.as_ref()?.begin_reading(Instant::now())
    }

    /// Compares the counts of the probes, which were read just now.
    pub(super) fn end_comparison(&mut self, before: Counters) {
        let State::Counting(Counting { source, .. }) = &self.state else { return };
        let dropped_events = self.running_totals.dropped(source.figures()).values().sum();
        let Some(crosscheck) = &mut self.crosscheck else { return };
        let Some(Target { process, generation, .. }) = crosscheck.target() else { return };
        // With another VA space, it is unknown which of them the tracker has.
        let is_single = self.ledger.with_one_space().get(&process) == Some(&generation);
        match self.ledger.counts_of(generation).filter(|_| is_single) {
            Some(counts) => crosscheck.end_reading(before, in_form_of_driver(&counts), dropped_events, Instant::now()),
            None => crosscheck.end(),
        }
    }

    /// Ends the cross-checks of this loading of the driver.
    pub(super) fn end_crosscheck(&mut self) {
        if let Some(crosscheck) = self.crosscheck.take() {
            self.crosschecked = crosscheck.done().clone();
        }
    }

    /// Cross-checks so far; `None` where they are off, and where the tools count.
    pub(super) fn crosschecks(&self) -> Option<Crosschecks> {
        if matches!(&self.state, State::Counting(counting) if counting.source.probes().is_none()) {
            return None;
        }
        let done = self.crosscheck.as_ref().map_or(&self.crosschecked, Crosscheck::done);
        self.config.crosscheck.then(|| done.clone())
    }

    /// Figures that both sources count differently.
    pub(super) fn disagreements(&self) -> impl Iterator<Item = Degradation> + '_ {
        self.crosscheck.iter().flat_map(Crosscheck::degradations)
    }

    /// Sentences about cross-checks.
    pub(super) fn crosscheck_warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.crosscheck.iter().flat_map(Crosscheck::warnings)
    }
}

/// Processes that may be checked: with one VA space, whose counts are of no other.
fn targets(ledger: &Ledger, tenants: &Tenants, exempt: &HashSet<ProcessId>) -> Vec<Target> {
    let shared: HashSet<_> = tenants.shared(0).into_iter().map(|shared| shared.generation).collect();
    let single = ledger.with_one_space().into_iter();
    let single = single.filter(|(process, generation)| !exempt.contains(process) && !shared.contains(generation));
    let target = |(process, generation)| Some(Target { process, uid: ledger.identity(process)?.uid, generation });
    single.filter_map(target).collect()
}

/// Counts of the probes in the form of the driver's.
fn in_form_of_driver(counts: &model::Counters) -> Counters {
    Counters {
        fault_entries: counts.fault_entries.total(),
        cpu_faults: counts.cpu_faults(),
        bytes_htod: counts.bytes_htod.total(),
        bytes_dtoh: counts.bytes_dtoh.total(),
    }
}

#[cfg(test)]
mod tests;

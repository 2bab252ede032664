//! Processes that a degraded state names for a minute. Their number is bounded by user and node, so
//! that one user cannot displace the processes of others.

use std::{collections::BTreeMap, time::Duration};

use model::{Degradation, DegradedReason};

use super::finder::Opener;

/// Time after its last addition for which a process is named, also when it has exited.
const NAMED: Duration = Duration::from_mins(1);
/// Maximum of processes that are named.
const NAMED_MAX: usize = 16;
/// The same of one user.
const NAMED_OF_USER_MAX: usize = 4;

/// Processes with a fact about each.
#[derive(Debug)]
pub(super) struct NamedProcesses<T>(BTreeMap<u32, Process<T>>);

#[derive(Debug)]
struct Process<T> {
    uid: u32,
    /// Time since boot of the last addition.
    at: Duration,
    fact: T,
}

impl<T> Default for NamedProcesses<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> NamedProcesses<T> {
    /// Names a process, if there is room.
    pub(super) fn add(&mut self, opener: &Opener, fact: T, now: Duration) {
        let Opener { pid, uid, .. } = *opener;
        let of_user = self.0.values().filter(|process| process.uid == uid).count();
        if self.0.contains_key(&pid) || (self.0.len() < NAMED_MAX && of_user < NAMED_OF_USER_MAX) {
            self.0.insert(pid, Process { uid, at: now, fact });
        }
    }

    /// Fact about a process that is named.
    pub(super) fn get(&self, pid: u32) -> Option<&T> {
        self.0.get(&pid).map(|process| &process.fact)
    }

    /// Forgets those of more than a minute ago.
    pub(super) fn settle(&mut self, now: Duration) {
        self.0.retain(|_, process| now.saturating_sub(process.at) < NAMED);
    }

    /// The processes as states. `user`: name of a user; `description`: sentence about a process.
    pub(super) fn degradations(
        &self,
        reason: DegradedReason,
        user: &dyn Fn(u32) -> Option<String>,
        description: impl Fn(u32, &T) -> String,
    ) -> Vec<Degradation> {
        let state = |(pid, Process { uid, fact, .. }): (&u32, &Process<T>)| Degradation {
            reason,
            uid: Some(*uid),
            user: user(*uid),
            pid: Some(*pid),
            description: description(*pid, fact),
        };
        self.0.iter().map(state).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_four_processes_of_a_user_and_sixteen_in_all_are_named() {
        let mut named = NamedProcesses::default();
        let at = Duration::ZERO;
        let number = |named: &NamedProcesses<()>| {
            named.degradations(DegradedReason::QueueFull, &|_| None, |_, ()| String::new()).len()
        };
        let opener = |pid, uid| Opener { pid, start_ticks: 1, uid, comm: [0; 16] };
        for pid in 0..10 {
            named.add(&opener(pid, 1000), (), at);
        }
        assert_eq!(number(&named), 4);
        for pid in 10..100 {
            named.add(&opener(pid, pid), (), at);
        }
        assert_eq!(number(&named), 16);
        // One that is named stays so.
        named.add(&opener(0, 1000), (), NAMED);
        named.settle(NAMED);
        assert_eq!(number(&named), 1);
    }
}

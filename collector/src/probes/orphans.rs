//! Orphaned VA spaces, whose end was not reported because the ring was full: found by comparison
//! with the probes' map. One whose end the probes missed stays until its address is reused.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use crate::ledger::Generation;

/// Interval of searches without a hint.
const EVERY: Duration = Duration::from_mins(1);

/// Search for orphaned VA spaces.
#[derive(Debug)]
pub(super) struct Orphans {
    /// VA spaces unknown to the probes at the last search. One search is not enough: the record of
    /// their end may have been pending.
    suspects: HashSet<Generation>,
    looked: Instant,
    /// Dropped records by then.
    ring_full: u64,
}

impl Orphans {
    pub(super) fn new(now: Instant) -> Self {
        Self { suspects: HashSet::new(), looked: now, ring_full: 0 }
    }

    /// Whether a search is due.
    pub(super) fn is_due(&self, ring_full: u64, now: Instant) -> bool {
        !self.suspects.is_empty() || ring_full > self.ring_full || now.duration_since(self.looked) >= EVERY
    }

    /// VA spaces of `open` that the probes know neither now nor at the last search. `known` must
    /// have been read after `open`.
    pub(super) fn look(
        &mut self,
        open: impl IntoIterator<Item = Generation>,
        known: &HashSet<Generation>,
        ring_full: u64,
        now: Instant,
    ) -> Vec<Generation> {
        let absent: HashSet<_> = open.into_iter().filter(|generation| !known.contains(generation)).collect();
        let (gone, suspects): (HashSet<_>, _) =
            absent.into_iter().partition(|generation| self.suspects.contains(generation));
        *self = Self { suspects, looked: now, ring_full };
        gone.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn va_space_unknown_to_the_probes_twice_in_a_row_is_an_orphan() {
        let now = Instant::now();
        let mut orphans = Orphans::new(now);
        let known = [1].into();
        assert_eq!(orphans.look([1, 2], &known, 0, now), [0; 0]);
        assert!(orphans.is_due(0, now));
        assert_eq!(orphans.look([1, 2], &known, 0, now), [2]);
        assert_eq!(orphans.look([1], &known, 0, now), [0; 0]);
        assert!(!orphans.is_due(0, now));
    }

    #[test]
    fn va_space_that_ended_meanwhile_is_no_orphan() {
        let now = Instant::now();
        let mut orphans = Orphans::new(now);
        orphans.look([1], &HashSet::new(), 0, now);
        assert_eq!(orphans.look([], &HashSet::new(), 0, now), [0; 0]);
    }

    #[test]
    fn search_for_orphans_is_due_after_dropped_records_and_every_minute() {
        let now = Instant::now();
        let mut orphans = Orphans::new(now);
        assert!(!orphans.is_due(0, now));
        assert!(orphans.is_due(3, now));
        orphans.look([], &HashSet::new(), 3, now);
        assert!(!orphans.is_due(3, now));
        assert!(orphans.is_due(3, now + EVERY));
    }
}

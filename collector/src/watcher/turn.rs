//! Turns of processes to be checked, if there are more than one round allows.

use model::ProcessId;

/// Process after which the next round starts.
#[derive(Debug, Default)]
pub(super) struct Turn(Option<ProcessId>);

impl Turn {
    /// Next processes, which are sorted: at most `max`, starting after the last one taken, each
    /// once.
    pub(super) fn take(&mut self, present: &[ProcessId], max: usize) -> Vec<ProcessId> {
        let Self(last) = self;
        let from = last.map_or(0, |last| present.partition_point(|process| *process <= last));
        let (before, after) = present.split_at(from);
        let taken: Vec<_> = after.iter().chain(before).take(max).copied().collect();
        *last = taken.last().copied().or(*last);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(pids: &[u32]) -> Vec<ProcessId> {
        pids.iter().map(|pid| ProcessId { pid: *pid, start_ticks: 1 }).collect()
    }

    #[test]
    fn every_process_has_its_turn_despite_starts_and_exits() {
        let mut turn = Turn::default();
        assert_eq!(turn.take(&ids(&[1, 2, 3, 4, 5]), 2), ids(&[1, 2]));
        assert_eq!(turn.take(&ids(&[1, 2, 3, 4, 5]), 2), ids(&[3, 4]));
        assert_eq!(turn.take(&ids(&[1, 3, 5, 6]), 2), ids(&[5, 6]));
        assert_eq!(turn.take(&ids(&[1, 3]), 2), ids(&[1, 3]));
    }

    #[test]
    fn all_processes_are_taken_once_if_time_permits() {
        let mut turn = Turn::default();
        for _ in 0..3 {
            let mut taken = turn.take(&ids(&[1, 2, 3]), 5);
            taken.sort_unstable();
            assert_eq!(taken, ids(&[1, 2, 3]));
        }
        assert_eq!(turn.take(&[], 5), []);
    }
}

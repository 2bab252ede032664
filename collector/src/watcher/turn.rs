//! Turns of processes to be checked, if there are more than one round allows.

use model::ProcessId;

/// Processes that have had their turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Process after which the next round starts.
    last: Option<ProcessId>,
    /// Process at which it starts, instead.
    resumed: Option<ProcessId>,
}

impl Turn {
    /// Next processes, which are sorted: at most `max`, starting after the last one taken, each
    /// once.
    pub(super) fn take(&mut self, present: &[ProcessId], max: usize) -> Vec<ProcessId> {
        let from = match (self.resumed.take(), self.last) {
            (Some(first), _) => present.partition_point(|process| *process < first),
            (None, Some(last)) => present.partition_point(|process| *process <= last),
            (None, None) => 0,
        };
        let (before, after) = present.split_at(from);
        let taken: Vec<_> = after.iter().chain(before).take(max).copied().collect();
        self.last = taken.last().copied().or(self.last);
        taken
    }

    /// Has the next round start at a process that was taken, but had no turn.
    pub(super) fn resume_at(&mut self, process: ProcessId) {
        self.resumed = Some(process);
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
    fn round_that_was_cut_short_goes_on_where_it_ended() {
        let mut turn = Turn::default();
        let present = ids(&[1, 2, 3, 4, 5]);
        assert_eq!(turn.take(&present, 4), ids(&[1, 2, 3, 4]));
        turn.resume_at(ids(&[3])[0]);
        assert_eq!(turn.take(&present, 4), ids(&[3, 4, 5, 1]));
        turn.resume_at(ids(&[3])[0]);
        // That process has ended meanwhile.
        assert_eq!(turn.take(&ids(&[1, 2, 4, 5]), 2), ids(&[4, 5]));
        assert_eq!(turn.take(&ids(&[1, 2, 4, 5]), 2), ids(&[1, 2]));
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

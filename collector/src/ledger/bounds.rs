//! Limits of the memory tables of all processes together.

use super::Ledger;
use crate::spans::RANGES_MAX;

impl Ledger {
    /// Bounds the number of all blocks: processes above their share forget some.
    pub(crate) fn bound_blocks(&mut self) {
        let max = self.limits.blocks.of_all;
        let blocks: Vec<_> = self.processes.values().map(|entry| entry.blocks.len()).collect();
        if blocks.iter().sum::<usize>() <= max {
            return;
        }
        // More than currently needed, so that it is rarely done.
        let share = share(blocks, max - max / 8);
        for entry in self.processes.values_mut() {
            entry.blocks.forget(entry.blocks.len().saturating_sub(share));
        }
    }

    /// Bounds the number of all ranges, likewise. Returns the maximum of each process.
    pub(crate) fn bound_ranges(&mut self) -> usize {
        let wanted = self.processes.values().map(|entry| entry.blocks.ranges_wanted()).collect();
        let share = share(wanted, self.limits.blocks.ranges_of_all).min(RANGES_MAX);
        for entry in self.processes.values_mut() {
            entry.blocks.bound_ranges(share);
        }
        share
    }
}

/// Largest share of each such that the total is at most `max`, given the current numbers: those
/// with few keep them all.
pub(super) fn share(mut have: Vec<usize>, max: usize) -> usize {
    have.sort_unstable();
    let (mut left, mut others) = (max, have.len());
    for had in have {
        let share = left / others;
        if had > share {
            return share;
        }
        left -= had;
        others -= 1;
    }
    usize::MAX
}

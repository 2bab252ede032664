//! Occupancy of a memory at each kernel, on a circle: positions from the number of kernels on are
//! those of the next iteration.

use trace::{KernelId, Table, id::Id};

use super::Part;

/// Bytes by kernel.
#[derive(Clone, Debug)]
pub(super) struct Occupancy {
    pub(super) used: Table<KernelId, u64>,
    limit_bytes: u64,
}

impl Occupancy {
    pub(super) fn new(kernels: usize, limit_bytes: u64) -> Self {
        Self { used: Table::of(0, kernels), limit_bytes }
    }

    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Peak of used bytes.
    pub(super) fn peak_bytes(&self) -> u64 {
        self.used.values().iter().copied().max().unwrap_or(0)
    }

    fn at(&mut self, position: usize) -> &mut u64 {
        let kernels = self.used.len();
        &mut self.used[KernelId::new(position % kernels)]
    }

    /// Adds bytes at positions `from..to`, whether they fit or not.
    pub(super) fn add(&mut self, from: usize, to: usize, bytes: u64) {
        for position in from..to {
            *self.at(position) += bytes;
        }
    }

    /// Subtracts bytes at positions `from..to`.
    pub(super) fn subtract(&mut self, from: usize, to: usize, bytes: u64) {
        for position in from..to {
            let used = self.at(position);
            *used = used.saturating_sub(bytes);
        }
    }

    /// Whether bytes fit at positions `from..to`.
    pub(super) fn fits(&mut self, from: usize, to: usize, bytes: u64) -> bool {
        (from..to).all(|position| *self.at(position) + bytes <= self.limit_bytes)
    }

    /// Adds bytes at up to `positions_max` consecutive positions before `to`, backward from there.
    /// Where only a part of them fits, only that part continues. Returns the parts, in whole blocks,
    /// with their first positions, the longest first.
    pub(super) fn extend(&mut self, to: usize, positions_max: usize, bytes: u64) -> Vec<(usize, u64)> {
        let limit_bytes = self.limit_bytes;
        let (mut from, mut fits_bytes) = (to, bytes);
        let mut parts = Vec::new();
        while to - from < positions_max {
            let free_bytes = limit_bytes.saturating_sub(*self.at(from - 1));
            if free_bytes < fits_bytes {
                let part_bytes = free_bytes - free_bytes % Part::BLOCK_BYTES;
                parts.push((from, fits_bytes - part_bytes));
                fits_bytes = part_bytes;
                if fits_bytes == 0 {
                    break;
                }
            }
            from -= 1;
            *self.at(from) += fits_bytes;
        }
        if fits_bytes > 0 {
            parts.push((from, fits_bytes));
        }
        parts.reverse();
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = Part::BLOCK_BYTES;

    #[test]
    fn part_is_fetched_from_the_position_at_which_it_fits() {
        let mut occupancy = Occupancy::new(4, 10 * BLOCK);
        occupancy.add(1, 2, 7 * BLOCK);
        occupancy.add(2, 3, 5 * BLOCK);
        // Used at 4: all fits at 3, five blocks at 2, three at 1, and three at 0, the most
        // positions allowed.
        assert_eq!(occupancy.extend(4, 4, 8 * BLOCK), [(0, 3 * BLOCK), (2, 2 * BLOCK), (3, 3 * BLOCK)]);
        assert_eq!(occupancy.used.values(), [3 * BLOCK, 10 * BLOCK, 10 * BLOCK, 8 * BLOCK]);
        // Two blocks fit at 3; the others are fetched at their use.
        assert_eq!(occupancy.extend(4, 4, 3 * BLOCK), [(3, 2 * BLOCK), (4, BLOCK)]);
    }
}

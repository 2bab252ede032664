//! How much is on the GPU at each kernel, on a circle: positions from the number of kernels on are those of the next iteration.

use trace::{KernelId, Table, id::Id};

use super::Part;

/// Bytes by kernel.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) taken: Table<KernelId, u64>,
    limit_bytes: u64,
}

impl Room {
    pub(super) fn new(kernels: usize, limit_bytes: u64) -> Self {
        Self { taken: Table::of(0, kernels), limit_bytes }
    }

    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// What is taken where most is.
    pub(super) fn most_bytes(&self) -> u64 {
        self.taken.values().iter().copied().max().unwrap_or(0)
    }

    fn at(&mut self, position: usize) -> &mut u64 {
        let kernels = self.taken.len();
        &mut self.taken[KernelId::new(position % kernels)]
    }

    /// Takes so many bytes at positions `from` up to and without `to`, whether there is room or not.
    pub(super) fn take(&mut self, from: usize, to: usize, bytes: u64) {
        for position in from..to {
            *self.at(position) += bytes;
        }
    }

    /// Gives them back.
    pub(super) fn give_back(&mut self, from: usize, to: usize, bytes: u64) {
        for position in from..to {
            let taken = self.at(position);
            *taken = taken.saturating_sub(bytes);
        }
    }

    /// Whether there is room for so many bytes there.
    pub(super) fn fits(&mut self, from: usize, to: usize, bytes: u64) -> bool {
        (from..to).all(|position| *self.at(position) + bytes <= self.limit_bytes)
    }

    /// Takes so many bytes at as many positions before `to` as have room in a row, `most` at most; where there is room for a part alone, for that. From where on
    /// there is room for how much, the longest first, in whole blocks.
    pub(super) fn extend(&mut self, to: usize, most: usize, bytes: u64) -> Vec<(usize, u64)> {
        let limit_bytes = self.limit_bytes;
        let (mut from, mut fits_bytes) = (to, bytes);
        let mut parts = Vec::new();
        while to - from < most {
            let room_bytes = limit_bytes.saturating_sub(*self.at(from - 1));
            if room_bytes < fits_bytes {
                let part_bytes = room_bytes - room_bytes % Part::BLOCK_BYTES;
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
    fn a_part_comes_back_from_where_there_is_room_for_that_part() {
        let mut room = Room::new(4, 10 * BLOCK);
        room.take(1, 2, 7 * BLOCK);
        room.take(2, 3, 5 * BLOCK);
        // Needed at 4: all fits at 3, five blocks at 2, three at 1, and the kernel before is as free as the most there may be.
        assert_eq!(room.extend(4, 4, 8 * BLOCK), [(0, 3 * BLOCK), (2, 2 * BLOCK), (3, 3 * BLOCK)]);
        assert_eq!(room.taken.values(), [3 * BLOCK, 10 * BLOCK, 10 * BLOCK, 8 * BLOCK]);
        // Two blocks have room at 3; the others come when they are needed.
        assert_eq!(room.extend(4, 4, 3 * BLOCK), [(3, 2 * BLOCK), (4, BLOCK)]);
    }
}

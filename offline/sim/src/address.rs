//! Addresses of tensors: those of a recorded program, or else those of a caching allocator like
//! those of frameworks. It reuses freed addresses, best fit first.
//!
//! The allocator's tensors of 1 MiB and more begin at a block and take whole blocks. Smaller ones
//! take whole granules of other blocks. Recorded tensors may share blocks and granules.

mod recorded;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use recorded::Recorded;
use trace::{Iteration, TensorId};

use crate::units::{BLOCK_BYTES, GRANULE_BYTES, GRANULES_PER_BLOCK, Granules};

/// First granule of small tensors; large ones lie below.
const SMALL_FIRST: u64 = 1 << 44;
const LARGE_BYTES: u64 = 1 << 20;

/// Source of the addresses of an iteration's tensors.
#[derive(Clone, Debug)]
pub(crate) enum Addresses {
    /// Addresses of the recorded program.
    Recorded(Recorded),
    /// Addresses of the model's allocator.
    Allocated(Allocator),
}

impl Addresses {
    /// Addresses of an iteration, beside those of a recorded program before it.
    pub(crate) fn of(iteration: &Iteration, before: &[Iteration]) -> Self {
        Recorded::of(iteration, before).map_or_else(|| Self::Allocated(Allocator::new()), Self::Recorded)
    }

    /// Recorded addresses, if the iteration has them.
    pub(crate) fn recorded(&self) -> Option<&Recorded> {
        match self {
            Self::Recorded(recorded) => Some(recorded),
            Self::Allocated(_) => None,
        }
    }

    /// Addresses for a tensor of `bytes`, more than zero.
    pub(crate) fn allocate(&mut self, tensor: TensorId, bytes: u64) -> Granules {
        match self {
            Self::Recorded(recorded) => recorded.range(tensor),
            Self::Allocated(allocator) => allocator.allocate(bytes),
        }
    }

    /// Frees the addresses of a tensor.
    pub(crate) fn free(&mut self, range: Granules) {
        if let Self::Allocated(allocator) = self {
            allocator.free(range);
        }
    }
}

/// Addresses in use, and free ones for reuse.
#[derive(Clone, Debug)]
pub(crate) struct Allocator {
    large: Arena,
    small: Arena,
}

impl Allocator {
    pub(crate) fn new() -> Self {
        Self { large: Arena::new(0), small: Arena::new(SMALL_FIRST) }
    }

    /// Allocates addresses for `bytes`, more than zero.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Granules {
        let arena = if is_large(bytes) { &mut self.large } else { &mut self.small };
        arena.allocate(granules(bytes))
    }

    /// Frees an allocated range.
    pub(crate) fn free(&mut self, range: Granules) {
        let arena = if range.first >= SMALL_FIRST { &mut self.small } else { &mut self.large };
        arena.free(range);
    }
}

/// Whether an allocation of `bytes` takes whole blocks.
pub(crate) fn is_large(bytes: u64) -> bool {
    bytes >= LARGE_BYTES
}

/// Granules of an allocation of `bytes`.
pub(crate) fn granules(bytes: u64) -> u64 {
    if is_large(bytes) {
        bytes.div_ceil(BLOCK_BYTES) * u64::from(GRANULES_PER_BLOCK)
    } else {
        bytes.div_ceil(GRANULE_BYTES)
    }
}

/// Address range with its holes. Holes touch neither one another nor the end.
#[derive(Clone, Debug)]
struct Arena {
    /// Length of each hole, by its first granule.
    holes: BTreeMap<u64, u64>,
    /// Holes by length, then by the first granule.
    by_length: BTreeSet<(u64, u64)>,
    end: u64,
}

impl Arena {
    fn new(first: u64) -> Self {
        Self { holes: BTreeMap::new(), by_length: BTreeSet::new(), end: first }
    }

    fn allocate(&mut self, length: u64) -> Granules {
        let Some(&(hole, first)) = self.by_length.range((length, 0)..).next() else {
            let first = self.end;
            self.end += length;
            return Granules { first, end: self.end };
        };
        self.remove(first, hole);
        if hole > length {
            self.insert(first + length, hole - length);
        }
        Granules { first, end: first + length }
    }

    fn free(&mut self, range: Granules) {
        let (mut first, mut end) = (range.first, range.end);
        if let Some((&before, &length)) = self.holes.range(..first).next_back()
            && before + length == first
        {
            self.remove(before, length);
            first = before;
        }
        if let Some(&length) = self.holes.get(&end) {
            self.remove(end, length);
            end += length;
        }
        if end == self.end {
            self.end = first;
        } else {
            self.insert(first, end - first);
        }
    }

    fn insert(&mut self, first: u64, length: u64) {
        self.holes.insert(first, length);
        self.by_length.insert((length, first));
    }

    fn remove(&mut self, first: u64, length: u64) {
        self.holes.remove(&first);
        self.by_length.remove(&(length, first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn freed_addresses_are_reused_best_fit_first() {
        let mut addresses = Allocator::new();
        let large_hole = addresses.allocate(8 * MIB);
        let between = addresses.allocate(2 * MIB);
        let small_hole = addresses.allocate(4 * MIB);
        let last = addresses.allocate(2 * MIB);
        addresses.free(large_hole);
        addresses.free(small_hole);
        assert_eq!(addresses.allocate(3 * MIB), small_hole);
        addresses.free(between);
        assert_eq!(addresses.allocate(10 * MIB), Granules { first: large_hole.first, end: between.end });
        assert_eq!(last.count(), 32);
    }

    #[test]
    fn small_tensors_share_blocks_and_large_ones_do_not() {
        let mut addresses = Allocator::new();
        let (one, two) = (addresses.allocate(1000), addresses.allocate(100_000));
        assert_eq!((one.count(), two.count(), two.first), (1, 2, one.end));
        assert_eq!(addresses.allocate(MIB).count(), 32);
    }
}

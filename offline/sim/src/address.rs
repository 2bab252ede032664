//! Which addresses tensors have: a caching allocator as frameworks have one. Freed addresses are used again, best fit first.
//!
//! Tensors of 1 MiB and more begin at a block and take whole blocks; smaller ones take whole granules of other blocks.

use std::collections::{BTreeMap, BTreeSet};

use crate::units::{BLOCK_BYTES, GRANULE_BYTES, GRANULES_PER_BLOCK, Granules};

/// From here on small tensors lie; large ones below.
const SMALL_FIRST: u64 = 1 << 44;
const LARGE_BYTES: u64 = 1 << 20;

/// Addresses in use and those to use again.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    large: Arena,
    small: Arena,
}

impl Addresses {
    pub(crate) fn new() -> Self {
        Self { large: Arena::new(0), small: Arena::new(SMALL_FIRST) }
    }

    /// Addresses for so many bytes, more than zero.
    pub(crate) fn take(&mut self, bytes: u64) -> Granules {
        let arena = if is_large(bytes) { &mut self.large } else { &mut self.small };
        arena.take(granules(bytes))
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&mut self, range: Granules) {
        let arena = if range.first >= SMALL_FIRST { &mut self.small } else { &mut self.large };
        arena.give_back(range);
    }
}

/// Whether so many bytes take whole blocks.
pub(crate) fn is_large(bytes: u64) -> bool {
    bytes >= LARGE_BYTES
}

/// How many granules so many bytes take.
pub(crate) fn granules(bytes: u64) -> u64 {
    if is_large(bytes) {
        bytes.div_ceil(BLOCK_BYTES) * u64::from(GRANULES_PER_BLOCK)
    } else {
        bytes.div_ceil(GRANULE_BYTES)
    }
}

/// Holes never touch one another, nor the end.
#[derive(Clone, Debug)]
struct Arena {
    /// Length by the first granule.
    holes: BTreeMap<u64, u64>,
    /// The same by length, then by the first granule.
    by_length: BTreeSet<(u64, u64)>,
    end: u64,
}

impl Arena {
    fn new(first: u64) -> Self {
        Self { holes: BTreeMap::new(), by_length: BTreeSet::new(), end: first }
    }

    fn take(&mut self, length: u64) -> Granules {
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

    fn give_back(&mut self, range: Granules) {
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
    fn freed_addresses_are_used_again_and_the_tightest_hole_is_taken() {
        let mut addresses = Addresses::new();
        let wide = addresses.take(8 * MIB);
        let between = addresses.take(2 * MIB);
        let tight = addresses.take(4 * MIB);
        let last = addresses.take(2 * MIB);
        addresses.give_back(wide);
        addresses.give_back(tight);
        assert_eq!(addresses.take(3 * MIB), tight);
        addresses.give_back(between);
        assert_eq!(addresses.take(10 * MIB), Granules { first: wide.first, end: between.end });
        assert_eq!(last.count(), 32);
    }

    #[test]
    fn small_tensors_share_blocks_and_large_ones_do_not() {
        let mut addresses = Addresses::new();
        let (one, two) = (addresses.take(1000), addresses.take(100_000));
        assert_eq!((one.count(), two.count(), two.first), (1, 2, one.end));
        assert_eq!(addresses.take(MIB).count(), 32);
    }
}

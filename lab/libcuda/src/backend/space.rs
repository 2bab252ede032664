//! Addresses of one kind of memory.

use std::collections::BTreeMap;

use ptx::GRANULE_BYTES;

/// Alignment of large allocations: the block of UVM.
const BLOCK_BYTES: u64 = 2 << 20;
/// Allocations of this size and more are aligned to blocks.
const LARGE_BYTES: u64 = 1 << 20;

/// Range of addresses from which allocations are taken. Each has granules of its own, so that an
/// access behind its last granule finds none.
#[derive(Debug)]
pub(crate) struct Space {
    next: u64,
    end: u64,
    /// Freed ranges by their length.
    free: BTreeMap<u64, Vec<u64>>,
}

impl Space {
    /// Whole range, free.
    pub(crate) const fn new(base: u64, bytes: u64) -> Self {
        Self { next: base, end: base + bytes, free: BTreeMap::new() }
    }

    /// Length of the addresses that an allocation takes.
    pub(crate) const fn length(bytes: u64) -> u64 {
        if bytes == 0 { GRANULE_BYTES } else { bytes.div_ceil(GRANULE_BYTES).saturating_mul(GRANULE_BYTES) }
    }

    /// Takes addresses: freed ones of the same length, or new ones, with an unused granule behind.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let length = Self::length(bytes);
        if let Some(address) = self.free.get_mut(&length).and_then(Vec::pop) {
            return Some(address);
        }
        let align = if length >= LARGE_BYTES { BLOCK_BYTES } else { GRANULE_BYTES };
        let address = self.next.checked_next_multiple_of(align)?;
        let next = address.checked_add(length)?.checked_add(GRANULE_BYTES)?;
        if next > self.end {
            return None;
        }
        self.next = next;
        Some(address)
    }

    /// Gives addresses back.
    pub(crate) fn give(&mut self, address: u64, bytes: u64) {
        self.free.entry(Self::length(bytes)).or_default().push(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_have_granules_of_their_own_and_a_gap_between() {
        let mut space = Space::new(1 << 40, 1 << 30);
        let (first, second) = (space.take(1).unwrap(), space.take(GRANULE_BYTES + 1).unwrap());
        assert_eq!(second - first, 2 * GRANULE_BYTES);
        assert_eq!(space.take(3 << 20).unwrap() % BLOCK_BYTES, 0);
        space.give(first, 1);
        assert_eq!(space.take(7), Some(first));
    }

    #[test]
    fn a_full_space_gives_none() {
        let mut space = Space::new(1 << 40, 1 << 20);
        assert_eq!(space.take(u64::MAX), None);
        assert_eq!(space.take(2 << 20), None);
        assert!(space.take(1 << 19).is_some());
    }
}

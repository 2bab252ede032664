//! The driver's units of memory.

/// The driver's page.
pub const PAGE_BYTES: u64 = 4 << 10;
/// Minimum that a fault makes resident.
pub const GRANULE_BYTES: u64 = 64 << 10;
/// Pages of a granule.
pub const PAGES_PER_GRANULE: u64 = GRANULE_BYTES / PAGE_BYTES;
/// Unit of eviction and residency in the driver.
pub const BLOCK_BYTES: u64 = 2 << 20;
/// Granules of a block.
pub const GRANULES_PER_BLOCK: u32 = 32;

/// Granules of one block, the first in the lowest bit.
pub type Mask = u32;

/// Bytes of the granules in a mask.
#[must_use]
pub fn mask_bytes(mask: Mask) -> u64 {
    u64::from(mask.count_ones()) * GRANULE_BYTES
}

/// Bytes of each run of adjacent granules: each is one transfer.
pub fn runs(mut mask: Mask) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        mask >>= mask.trailing_zeros();
        let length = mask.trailing_ones();
        mask = mask.checked_shr(length).unwrap_or(0);
        Some(u64::from(length) * GRANULE_BYTES)
    })
}

/// Granules from `first` up to `end`, exclusive, counted from address 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granules {
    /// First granule.
    pub first: u64,
    /// Granule past the last.
    pub end: u64,
}

impl Granules {
    /// Number of granules.
    #[must_use]
    pub fn count(self) -> u64 {
        self.end - self.first
    }

    /// Blocks that the range overlaps, in order, with the granules in each.
    pub fn blocks(self) -> impl Iterator<Item = (u64, Mask)> {
        let per_block = u64::from(GRANULES_PER_BLOCK);
        (self.first / per_block..self.end.div_ceil(per_block)).map(move |block| (block, self.within(block)))
    }

    /// Granules of the range in a block.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "granules of one block")]
    pub fn within(self, block: u64) -> Mask {
        let base = block * u64::from(GRANULES_PER_BLOCK);
        let limit = base + u64::from(GRANULES_PER_BLOCK);
        let (from, to) = (self.first.clamp(base, limit) - base, self.end.clamp(base, limit) - base);
        let below = |count: u64| ((1_u64 << count) - 1) as Mask;
        below(to) & !below(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_granules_is_one_transfer() {
        assert_eq!(runs(0b1_0110).collect::<Vec<_>>(), [2 * GRANULE_BYTES, GRANULE_BYTES]);
        assert_eq!(runs(Mask::MAX).collect::<Vec<_>>(), [BLOCK_BYTES]);
        assert_eq!(runs(0).count(), 0);
    }

    #[test]
    fn a_range_is_split_by_blocks() {
        let range = Granules { first: 30, end: 65 };
        assert_eq!(range.blocks().collect::<Vec<_>>(), [(0, 0b11 << 30), (1, Mask::MAX), (2, 1)]);
    }
}

//! What the driver counts memory in.

/// The driver's page.
pub const PAGE_BYTES: u64 = 4 << 10;
/// What a fault brings at least.
pub const GRANULE_BYTES: u64 = 64 << 10;
/// Pages of a granule.
pub const PAGES_PER_GRANULE: u64 = GRANULE_BYTES / PAGE_BYTES;
/// What the driver evicts, and keeps residency of.
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

/// Granules `first`, `first + 1`, ... up to and without `end`, counted from address 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granules {
    /// The first.
    pub first: u64,
    /// One past the last.
    pub end: u64,
}

impl Granules {
    /// How many.
    #[must_use]
    pub fn count(self) -> u64 {
        self.end - self.first
    }

    /// The block and the granules of it, for each block it reaches into, in order.
    pub fn blocks(self) -> impl Iterator<Item = (u64, Mask)> {
        let per_block = u64::from(GRANULES_PER_BLOCK);
        (self.first / per_block..self.end.div_ceil(per_block)).map(move |block| (block, self.within(block)))
    }

    /// Its granules in a block.
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
    fn granules_are_told_apart_by_their_blocks() {
        let range = Granules { first: 30, end: 65 };
        assert_eq!(range.blocks().collect::<Vec<_>>(), [(0, 0b11 << 30), (1, Mask::MAX), (2, 1)]);
    }
}

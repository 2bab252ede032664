//! Order of GPU reads.

use crate::PAGE_WORDS;

/// Order of accesses, and the words accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Every word, from the first to the last.
    Sequential,
    /// One word in 64 KiB, in order. The driver migrates at least 64 KiB for a fault, so all of
    /// memory is copied nevertheless.
    Strided,
    /// One word of every page, in shuffled order of pages.
    Random,
}

impl Order {
    /// Distance of accessed words in memory.
    #[must_use]
    pub fn stride_words(self) -> u64 {
        match self {
            Self::Sequential => 1,
            Self::Strided => 16 * PAGE_WORDS,
            Self::Random => PAGE_WORDS,
        }
    }

    /// Number of accessed words among `words`.
    #[must_use]
    pub fn count(self, words: u64) -> u64 {
        words.div_ceil(self.stride_words())
    }
}

/// Shuffle of `0..pages` that the GPU can compute, as by `weigh_shuffled` in `ptx/kernels.ptx`.
///
/// Modulo a power of two, two operations can be inverted: multiplication by an odd number, and xor
/// of the upper half of the bits into the lower half. So every page occurs exactly once.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    /// Number of pages, less one.
    pub mask: u64,
    /// Half of the bits of `mask`.
    pub shift: u32,
    /// Seed of the shuffle.
    pub seed: u64,
}

impl Shuffle {
    /// Shuffle of `pages` pages; none if their number is not a power of two, or is one.
    #[must_use]
    pub fn new(pages: u64, seed: u64) -> Option<Self> {
        (pages >= 2 && pages.is_power_of_two()).then(|| Self {
            mask: pages - 1,
            shift: pages.trailing_zeros().div_ceil(2),
            seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Shuffle {
        fn page(self, k: u64) -> u64 {
            let mut page = k.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(self.seed) & self.mask;
            page ^= page >> self.shift;
            page = page.wrapping_mul(0xAF25_1AF3_B0F0_25B5) & self.mask;
            page ^ (page >> self.shift)
        }
    }

    #[test]
    fn a_shuffle_visits_every_page_once() {
        for bits in 1..14 {
            for seed in [0, 1, 7, u64::MAX] {
                let shuffle = Shuffle::new(1 << bits, seed).unwrap();
                let mut pages: Vec<u64> = (0..1 << bits).map(|k| shuffle.page(k)).collect();
                pages.sort_unstable();
                assert!(pages.into_iter().eq(0..1 << bits), "{shuffle:?}");
            }
        }
    }

    #[test]
    fn a_shuffle_is_not_a_walk() {
        let shuffle = Shuffle::new(1 << 12, 1).unwrap();
        let pages: Vec<u64> = (0..1 << 12).map(|k| shuffle.page(k)).collect();
        let mut steps: Vec<u64> = pages.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) & shuffle.mask).collect();
        steps.sort_unstable();
        steps.dedup();
        assert!(steps.len() > 64, "{} different steps", steps.len());
    }

    #[test]
    fn only_powers_of_two_can_be_shuffled() {
        assert!(Shuffle::new(3 << 8, 0).is_none());
        assert!(Shuffle::new(1, 0).is_none());
        assert!(Shuffle::new(0, 0).is_none());
    }

    #[test]
    fn an_order_visits_one_word_per_stride() {
        assert_eq!(Order::Sequential.count(1 << 20), 1 << 20);
        assert_eq!(Order::Random.count(1 << 20), (1 << 20) / 512);
        assert_eq!(Order::Strided.count(1 << 20), (1 << 20) * 8 / (64 << 10));
    }
}

//! Expected contents of memory: a pattern that differs from word to word, and increments since it
//! was written.

use crate::PAGE_WORDS;

/// Multiplier of the pattern: odd, so that no two words are equal. It is also in `ptx/kernels.ptx`.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Expected contents of all words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Seed of the last pattern written; before the first, memory is zero.
    pattern: Option<u64>,
    /// Increments of the first word of every page since the pattern was written.
    increments: u64,
}

impl Contents {
    /// Contents of untouched memory.
    #[must_use]
    pub fn untouched() -> Self {
        Self { pattern: None, increments: 0 }
    }

    /// Contents of memory filled with the pattern of a seed.
    #[must_use]
    pub fn written(seed: u64) -> Self {
        Self { pattern: Some(seed), increments: 0 }
    }

    /// Contents after an increment of the first word of every page.
    #[must_use]
    pub fn incremented(self) -> Self {
        Self { increments: self.increments + 1, ..self }
    }

    /// Expected value of a word.
    #[must_use]
    pub fn word(self, at: u64) -> u64 {
        let pattern = self.pattern.map_or(0, |seed| (at ^ seed).wrapping_mul(MULTIPLIER));
        pattern.wrapping_add(if at.is_multiple_of(PAGE_WORDS) { self.increments } else { 0 })
    }

    /// Weighted sum of every `stride`-th word, modulo 2^64 as on the GPU. The weight depends on the
    /// position, so that the sum detects misplaced words.
    #[must_use]
    pub fn weighed(self, words: u64, stride: u64) -> u64 {
        (0..words.div_ceil(stride)).fold(0, |sum, k| {
            let at = k * stride;
            sum.wrapping_add(self.word(at).wrapping_mul(2 * at + 1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_pattern_differs() {
        let contents = Contents::written(42);
        let mut words: Vec<u64> = (0..1 << 14).map(|at| contents.word(at)).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 1 << 14);
    }

    #[test]
    fn another_seed_is_another_pattern() {
        assert!((0..4096).all(|at| Contents::written(1).word(at) != Contents::written(2).word(at)));
    }

    #[test]
    fn increments_change_only_the_first_word_of_a_page() {
        let before = Contents::written(7);
        let after = before.incremented().incremented();
        assert_eq!(after.word(512), before.word(512).wrapping_add(2));
        assert_eq!(after.word(513), before.word(513));
    }

    #[test]
    fn a_weighted_sum_detects_swapped_words() {
        let contents = Contents::written(3);
        let (a, b) = (contents.word(10), contents.word(20));
        let right = contents.weighed(512, 1);
        let swapped = right
            .wrapping_sub(a.wrapping_mul(21))
            .wrapping_sub(b.wrapping_mul(41))
            .wrapping_add(b.wrapping_mul(21))
            .wrapping_add(a.wrapping_mul(41));
        assert_ne!(right, swapped);
    }

    #[test]
    fn a_lost_page_changes_the_weighted_sum() {
        let contents = Contents::written(3);
        let page: u64 = (512..1024).fold(0, |sum, at| sum.wrapping_add(contents.word(at).wrapping_mul(2 * at + 1)));
        assert_ne!(page, 0);
    }

    #[test]
    fn untouched_memory_is_zero_until_it_is_incremented() {
        assert_eq!(Contents::untouched().weighed(4096, 1), 0);
        assert_eq!(Contents::untouched().incremented().weighed(1024, 512), 1 + 1025);
    }
}

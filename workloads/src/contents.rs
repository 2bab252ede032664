//! What memory must hold: a pattern that differs from word to word, and what was added to it since.

use crate::PAGE_WORDS;

/// Odd, so that no two words of a pattern are equal. Also in `ptx/kernels.ptx`.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// What every word must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The pattern written last; before the first, memory is zero.
    pattern: Option<u64>,
    /// How often one was added to the first word of every page since.
    increments: u64,
}

impl Contents {
    /// Memory nobody wrote yet.
    #[must_use]
    pub fn untouched() -> Self {
        Self { pattern: None, increments: 0 }
    }

    /// Memory just filled with the pattern of that seed.
    #[must_use]
    pub fn written(seed: u64) -> Self {
        Self { pattern: Some(seed), increments: 0 }
    }

    /// After one was added to the first word of every page.
    #[must_use]
    pub fn incremented(self) -> Self {
        Self { increments: self.increments + 1, ..self }
    }

    /// What a word must be.
    #[must_use]
    pub fn word(self, at: u64) -> u64 {
        let pattern = self.pattern.map_or(0, |seed| (at ^ seed).wrapping_mul(MULTIPLIER));
        pattern.wrapping_add(if at.is_multiple_of(PAGE_WORDS) { self.increments } else { 0 })
    }

    /// The sum over every `stride`-th word, each weighed by its place, so that words in wrong places show. Modulo 2^64, as the GPU computes it.
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
    fn increments_show_in_the_first_word_of_a_page_and_nowhere_else() {
        let before = Contents::written(7);
        let after = before.incremented().incremented();
        assert_eq!(after.word(512), before.word(512).wrapping_add(2));
        assert_eq!(after.word(513), before.word(513));
    }

    #[test]
    fn a_weighed_sum_tells_swapped_words() {
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
    fn a_lost_page_shows_in_the_weighed_sum() {
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

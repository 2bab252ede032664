//! Random numbers that a seed determines, so that results are reproducible.

use crate::mix::mix;

/// Generator of random numbers.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// Random number from `low` to `high`, inclusive.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        let numbers = (high - low).saturating_add(1);
        low + self.next() % numbers
    }

    /// Random index below a length, which must not be 0.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.between(0, length.saturating_sub(1) as u64)).unwrap_or(0)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }

    /// Random element.
    pub(crate) fn pick<T: Copy, const N: usize>(&mut self, of: [T; N]) -> T {
        const { assert!(N > 0) };
        let at = self.index(N);
        #[expect(clippy::indexing_slicing, reason = "an index below the length")]
        of[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_the_seed_alone_and_stay_between_their_bounds() {
        let numbers = |seed| {
            let mut dice = Dice::new(seed);
            (0..1000).map(|_| dice.between(3, 9)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        assert!(
            (3..=9).all(|number| numbers(1).contains(&number))
                && numbers(1).iter().all(|number| (3..=9).contains(number))
        );
    }
}

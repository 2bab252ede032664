//! Order in which the elements of a pass are visited.

use serde::Deserialize;

use super::{
    Variation,
    table::{Fault, Table},
};
use crate::mix::mix;

/// Order of any number of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// From the first to the last.
    Sequential,
    /// Random permutation that depends only on the seed and the number of elements.
    Random { seed: u64 },
}

/// Value of the option `order`.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Name {
    Sequential,
    Random,
}

impl Order {
    /// Parse the options `order` and `seed` of a step.
    pub(crate) fn take(table: &mut Table<'_>, variation: &Variation) -> Result<Self, Fault> {
        let seed = variation.order_seed(table.take("seed")?.unwrap_or(1));
        Ok(match table.take("order")? {
            None | Some(Name::Sequential) => Self::Sequential,
            Some(Name::Random) => Self::Random { seed },
        })
    }

    /// Indices `0..count` in this order, computed one by one.
    pub(crate) fn indices(self, count: u64) -> impl Iterator<Item = u64> + use<> {
        let shuffle = match self {
            Self::Sequential => None,
            Self::Random { seed } => Some(Shuffle::new(seed, count)),
        };
        (0..count).map(move |at| shuffle.as_ref().map_or(at, |shuffle| shuffle.apply(at)))
    }
}

/// Permutation of `0..count`: a Feistel network over the next even power of two. Results outside
/// the range pass through the network again.
struct Shuffle {
    count: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Shuffle {
    fn new(seed: u64, count: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let keys = [1, 2, 3, 4].map(|round: u64| mix(seed ^ mix(round)));
        Self { count, half_bits: bits.div_ceil(2).max(1), keys }
    }

    fn apply(&self, at: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let mut value = at;
        // The loop terminates: the network permutes a set that contains `at`, so the cycle returns
        // below `count`.
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for key in self.keys {
                (left, right) = (right, left ^ (mix(right ^ key) & mask));
            }
            value = left << self.half_bits | right;
            if value < self.count {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_order_visits_everything_once_whatever_the_count() {
        for count in [0, 1, 2, 3, 4, 5, 63, 64, 65, 1000, 4096, 100_003] {
            let mut visited: Vec<_> = Order::Random { seed: 7 }.indices(count).collect();
            visited.sort_unstable();
            assert!(visited.into_iter().eq(0..count), "{count}");
        }
    }

    #[test]
    fn random_order_depends_on_the_seed_alone() {
        let order = |seed| Order::Random { seed }.indices(1000).collect::<Vec<_>>();
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
    }

    #[test]
    fn random_order_leaves_few_neighbours_together() {
        let order: Vec<_> = Order::Random { seed: 1 }.indices(10_000).collect();
        let neighbours = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
        assert!(neighbours < 20, "{neighbours} of 10,000 steps go to a neighbour");
    }

    #[test]
    fn sequential_order_is_first_to_last() {
        assert!(Order::Sequential.indices(5).eq(0..5));
    }
}

//! Distributions of quantities: batch sizes, service times.

use std::{cmp::Ordering, ops::AddAssign};

/// Values with their frequencies, right to a sixteenth, and their exact sum. Only grows.
///
/// The buckets are those of an HDR histogram with one significant digit, of which only those with values take memory, 8 bytes each: a snapshot has several
/// distributions for each process and GPU, and most hold a dozen buckets out of a thousand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// In the order of their values. Exactly as many as there are, and nothing for none.
    buckets: Option<Box<[Bucket]>>,
    sum: u64,
}

/// Bucket in the upper bits, and its number of values in the others, so that buckets are in the order of their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket(u64);

impl Bucket {
    /// More values than anybody counts: a billion a second for half a year.
    const COUNT_BITS: u32 = 54;
    const COUNT_MAX: u64 = (1 << Self::COUNT_BITS) - 1;
    /// An octave has 2^4 buckets, and below 2^5 each value has its own.
    const PER_OCTAVE_LOG2: u32 = 4;

    /// The bucket that a value is in, with `count` of them.
    fn of(value: u64, count: u64) -> Self {
        let octave = value.max(1).ilog2().saturating_sub(Self::PER_OCTAVE_LOG2);
        let index = (u64::from(octave) << Self::PER_OCTAVE_LOG2) + (value >> octave);
        Self(index << Self::COUNT_BITS | count.min(Self::COUNT_MAX))
    }

    const fn index(self) -> u64 {
        self.0 >> Self::COUNT_BITS
    }

    const fn count(self) -> u64 {
        self.0 & Self::COUNT_MAX
    }

    /// The largest value that is in it.
    fn last(self) -> u64 {
        const PER_OCTAVE: u64 = 1 << Bucket::PER_OCTAVE_LOG2;
        let octave = (self.index() / PER_OCTAVE).saturating_sub(1);
        let place = self.index() - octave * PER_OCTAVE;
        // Beyond the last bucket there are no values.
        ((place + 1) << octave).wrapping_sub(1)
    }

    /// With `more` values.
    fn with(self, more: u64) -> Self {
        Self(self.index() << Self::COUNT_BITS | self.count().saturating_add(more).min(Self::COUNT_MAX))
    }
}

impl Distribution {
    /// The empty distribution.
    pub const EMPTY: Self = Self { buckets: None, sum: 0 };

    /// Adds `count` values near `value`, which together are `sum`.
    pub fn record(&mut self, value: u64, count: u64, sum: u64) {
        if count == 0 {
            return;
        }
        self.sum = self.sum.saturating_add(sum);
        let new = Bucket::of(value, count);
        match self.buckets().binary_search_by_key(&new.index(), |bucket| bucket.index()) {
            Ok(at) => {
                if let Some(bucket) = self.buckets.as_deref_mut().and_then(|buckets| buckets.get_mut(at)) {
                    *bucket = bucket.with(count);
                }
            }
            Err(at) => {
                let mut buckets = self.buckets.take().map(Vec::from).unwrap_or_default();
                buckets.reserve_exact(1);
                buckets.insert(at, new);
                self.buckets = Some(buckets.into());
            }
        }
    }

    fn buckets(&self) -> &[Bucket] {
        self.buckets.as_deref().unwrap_or_default()
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets().iter().map(|bucket| bucket.count()).fold(0, u64::saturating_add)
    }

    /// Their exact sum.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// A value that the share `quantile`, from 0 to 1, of all values does not exceed, as far as its digits tell; 0 if there are none.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count")]
        let wanted = ((quantile * self.count() as f64).ceil() as u64).max(1);
        let mut seen: u64 = 0;
        let reached = self.buckets().iter().find(|bucket| {
            seen = seen.saturating_add(bucket.count());
            seen >= wanted
        });
        reached.or(self.buckets().last()).map_or(0, |bucket| bucket.last())
    }

    /// Number of values up to `value`, to the precision of buckets.
    #[must_use]
    pub fn at_most(&self, value: u64) -> u64 {
        let last = Bucket::of(value, 0).index();
        let within = self.buckets().iter().take_while(|bucket| bucket.index() <= last);
        within.map(|bucket| bucket.count()).fold(0, u64::saturating_add)
    }
}

impl AddAssign<&Self> for Distribution {
    fn add_assign(&mut self, other: &Self) {
        self.sum = self.sum.saturating_add(other.sum);
        if self.buckets().is_empty() {
            self.buckets.clone_from(&other.buckets);
            return;
        }
        let mut merged = Vec::with_capacity(self.buckets().len().max(other.buckets().len()));
        let (mut mine, mut theirs) =
            (self.buckets().iter().copied().peekable(), other.buckets().iter().copied().peekable());
        while let (Some(one), Some(another)) = (mine.peek(), theirs.peek()) {
            let bucket = match one.index().cmp(&another.index()) {
                Ordering::Less => mine.next(),
                Ordering::Greater => theirs.next(),
                Ordering::Equal => mine.next().zip(theirs.next()).map(|(one, another)| one.with(another.count())),
            };
            merged.extend(bucket);
        }
        merged.extend(mine.chain(theirs));
        self.buckets = Some(merged.into());
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;

    #[test]
    fn an_empty_distribution_has_no_values_and_takes_no_memory() {
        let empty = Distribution::default();
        assert_eq!((empty.count(), empty.sum(), empty.quantile(0.5), empty.at_most(u64::MAX)), (0, 0, 0, 0));
        assert!(empty.buckets.is_none() && size_of::<Distribution>() <= 24);
    }

    #[test]
    fn quantiles_are_right_to_one_digit_and_the_sum_is_exact() {
        let mut distribution = Distribution::default();
        distribution.record(100, 99, 9_900);
        distribution.record(1_000_003, 1, 1_000_003);
        assert_eq!((distribution.count(), distribution.sum()), (100, 1_009_903));
        assert!((100..=112).contains(&distribution.quantile(0.5)));
        assert!((1_000_003..=1_130_000).contains(&distribution.quantile(1.0)));
        assert_eq!(distribution.at_most(2_000), 99);
    }

    /// Values of every size, each with how many there are.
    fn values() -> impl Iterator<Item = (u64, u64)> {
        let sizes =
            (0..100_u64).chain((7..62).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + (1 << (bits - 3))]));
        sizes.zip((1..).map(|at: u64| 1 + at * 7919 % 13))
    }

    #[test]
    fn it_says_what_an_hdr_histogram_of_one_digit_says() {
        let (mut ours, mut theirs) = (Distribution::default(), Histogram::<u64>::new(1).unwrap());
        theirs.auto(true);
        for (value, count) in values() {
            ours.record(value, count, 0);
            theirs.record_n(value, count).unwrap();
            assert_eq!(ours.count(), theirs.len());
            for quantile in [0.01, 0.1, 0.5, 0.9, 0.99, 1.0] {
                assert_eq!(ours.quantile(quantile), theirs.value_at_quantile(quantile), "{quantile} up to {value}");
            }
            for bound in [0, 1, value / 3, value, value * 2] {
                assert_eq!(ours.at_most(bound), theirs.count_between(0, bound), "{bound} of up to {value}");
            }
        }
    }

    #[test]
    fn distributions_add_up_whichever_buckets_they_have() {
        let (mut all, mut even, mut odd) = (Distribution::default(), Distribution::default(), Distribution::default());
        for (at, (value, count)) in values().enumerate() {
            all.record(value, count, count);
            let part = if at % 3 == 0 { &mut even } else { &mut odd };
            part.record(value, count, count);
        }
        let mut sum = Distribution::default();
        for part in [&even, &odd, &Distribution::default()] {
            sum += part;
        }
        assert_eq!(sum, all);
    }

    #[test]
    fn the_largest_value_and_more_values_than_can_be_counted_stay_in_bounds() {
        let mut distribution = Distribution::default();
        distribution.record(u64::MAX, u64::MAX, u64::MAX);
        distribution.record(u64::MAX, 1, 1);
        assert_eq!((distribution.count(), distribution.sum()), (Bucket::COUNT_MAX, u64::MAX));
        assert_eq!((distribution.quantile(0.5), distribution.at_most(u64::MAX)), (u64::MAX, Bucket::COUNT_MAX));
    }
}

//! How a quantity was distributed: batch sizes, service times.

use std::ops::AddAssign;

use hdrhistogram::Histogram;

/// Values with their frequencies, to one significant digit, and their exact sum. Only grows.
///
/// An empty one takes no memory: most processes have several that stay so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    histogram: Option<Box<Histogram<u64>>>,
    sum: u64,
}

impl Eq for Distribution {}

impl Distribution {
    /// Of nothing.
    pub const EMPTY: Self = Self { histogram: None, sum: 0 };

    /// Significant decimal digits kept. One holds two values apart if they differ by an eighth or more, as the probes' own buckets do.
    const DIGITS: u8 = 1;

    /// Adds `count` values near `value`, which together are `sum`.
    pub fn record(&mut self, value: u64, count: u64, sum: u64) {
        if count == 0 {
            return;
        }
        if let Some(histogram) = self.grown() {
            // Cannot fail: it resizes itself.
            let _ = histogram.record_n(value, count);
            self.sum = self.sum.saturating_add(sum);
        }
    }

    fn grown(&mut self) -> Option<&mut Histogram<u64>> {
        if self.histogram.is_none() {
            let mut histogram = Histogram::new(Self::DIGITS).ok()?;
            histogram.auto(true);
            self.histogram = Some(Box::new(histogram));
        }
        self.histogram.as_deref_mut()
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, |histogram| histogram.len())
    }

    /// Their exact sum.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// A value that the share `quantile`, from 0 to 1, of all values does not exceed, as far as its digits tell; 0 if there are none.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.histogram.as_ref().map_or(0, |histogram| histogram.value_at_quantile(quantile))
    }

    /// How many values are at most `value`, as far as its digits tell.
    #[must_use]
    pub fn at_most(&self, value: u64) -> u64 {
        self.histogram.as_ref().map_or(0, |histogram| histogram.count_between(0, value))
    }
}

impl AddAssign<&Self> for Distribution {
    fn add_assign(&mut self, other: &Self) {
        let Some(theirs) = &other.histogram else { return };
        self.sum = self.sum.saturating_add(other.sum);
        match self.grown() {
            // Cannot fail: this one grows, and both have the same digits.
            Some(mine) => {
                let _ = mine.add(&**theirs);
            }
            None => self.histogram = Some(theirs.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_distribution_has_no_values() {
        let empty = Distribution::EMPTY;
        assert_eq!((empty.count(), empty.sum(), empty.quantile(0.5), empty.at_most(u64::MAX)), (0, 0, 0, 0));
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

    #[test]
    fn distributions_add_up() {
        let mut one = Distribution::default();
        one.record(5, 1, 5);
        let mut other = Distribution::default();
        other.record(1 << 40, 2, 2 << 40);
        one += &other;
        one += &Distribution::EMPTY;
        assert_eq!((one.count(), one.sum(), one.at_most(5)), (3, 5 + (2 << 40), 1));
    }
}

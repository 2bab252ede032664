//! Rate limiter.

use std::time::{Duration, SystemTime};

/// Token bucket: a rate per second, and a burst of one second.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    per_second: u64,
    left: u64,
    /// Time of the last refill.
    filled: SystemTime,
}

impl Bucket {
    pub(crate) const fn full(per_second: u64, now: SystemTime) -> Self {
        Self { per_second, left: per_second, filled: now }
    }

    /// Tokens available now. From now on, the bucket fills at this rate.
    pub(crate) fn left(&mut self, per_second: u64, now: SystemTime) -> u64 {
        let passed = now.duration_since(self.filled).unwrap_or_default();
        let gained = u128::from(self.per_second).saturating_mul(passed.as_nanos()) / NANOS;
        if passed >= Duration::from_secs(1) || self.per_second != per_second {
            // The capacity is that of one second; tokens of the previous rate remain.
            self.left = self.left.saturating_add(u64::try_from(gained).unwrap_or(u64::MAX));
            self.filled = now;
        } else if gained > 0 {
            // Advanced by the time of whole bytes, so that fractions are not lost.
            let took = gained.saturating_mul(NANOS).div_ceil(u128::from(self.per_second.max(1)));
            self.left = self.left.saturating_add(u64::try_from(gained).unwrap_or(u64::MAX));
            self.filled += Duration::from_nanos(u64::try_from(took).unwrap_or(u64::MAX));
        }
        self.per_second = per_second;
        self.left = self.left.min(per_second);
        self.left
    }

    pub(crate) const fn take(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }
}

const NANOS: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    #[test]
    fn bytes_taken_in_any_interval_are_bounded_by_the_rate_plus_one_second() {
        for step_ms in [1, 7, 100, 333, 5000] {
            let mut bucket = Bucket::full(1_000_003, at(0));
            let mut taken = 0_u64;
            let mut now = 0;
            while now <= 20_000 {
                let left = bucket.left(1_000_003, at(now));
                bucket.take(left);
                taken += left;
                assert!(taken <= 1_000_003 + 1_000_003 * now / 1000, "{taken} after {now} ms in steps of {step_ms} ms");
                now += step_ms;
            }
            if step_ms <= 1000 {
                assert!(taken >= 1_000_003 * 20, "{taken} in steps of {step_ms} ms");
            }
        }
    }

    #[test]
    fn rate_change_takes_effect_at_once() {
        let mut bucket = Bucket::full(1000, at(0));
        assert_eq!(bucket.left(100, at(0)), 100);
        bucket.take(100);
        assert_eq!(bucket.left(10_000, at(500)), 50);
        assert_eq!(bucket.left(10_000, at(600)), 1050);
    }
}

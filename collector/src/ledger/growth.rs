//! Growth of a process's managed memory, from readings of its size.
//!
//! Growth is steady if each third of the last hour is above all of the third before it, and by a fair
//! part of the whole: a step, as of a model that is loaded, and a cache that is emptied are none. The
//! alert `UvmOwnerMemoryGrowing` compares thirds of an hour of owners, too.

use std::{collections::VecDeque, time::Duration};

use model::ManagedGrowth;

/// Time over which growth is judged: an hour.
const PERIOD_NS: u64 = 3_600_000_000_000;
/// Readings that are retained, and the time between two of them.
const READINGS: usize = 12;
const INTERVAL_NS: u64 = PERIOD_NS / READINGS as u64;
/// Divisor of the whole growth, of which each third's mean must grow by a part. Linear growth is 11 steps,
/// and 4 between two thirds.
const FAIR_PART: u128 = 6;

/// Sizes of a process's managed memory during the last hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Growth {
    /// Times of readings, ns since boot, with the bytes.
    readings: VecDeque<(u64, u64)>,
}

impl Growth {
    /// Adds a reading, unless one is retained from shortly before.
    pub(super) fn add(&mut self, read_ns: u64, bytes: u64) {
        if self.readings.back().is_some_and(|(last_ns, _)| read_ns.saturating_sub(*last_ns) < INTERVAL_NS) {
            return;
        }
        // A gap makes the earlier readings older than the period.
        self.readings.retain(|(at_ns, _)| read_ns.saturating_sub(*at_ns) <= PERIOD_NS + INTERVAL_NS);
        if self.readings.len() == READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back((read_ns, bytes));
    }

    /// Steady growth; `None` if there is none, or too few readings.
    pub(super) fn steady(&self) -> Option<ManagedGrowth> {
        if self.readings.len() < READINGS {
            return None;
        }
        let (first, last) = (self.readings.front()?, self.readings.back()?);
        let bytes: Vec<u64> = self.readings.iter().map(|(_, bytes)| *bytes).collect();
        let thirds: Vec<&[u64]> = bytes.chunks(READINGS / 3).collect();
        let sum = |third: &[u64]| third.iter().copied().map(u128::from).sum::<u128>();
        let grown = u128::from(last.1.saturating_sub(first.1));
        // Means are compared by sums.
        let fair = grown * thirds.first()?.len() as u128 / FAIR_PART;
        let is_above = |earlier: &[u64], later: &[u64]| {
            later.iter().min() > earlier.iter().max() && sum(later).saturating_sub(sum(earlier)) >= fair
        };
        let is_steady = thirds.iter().zip(thirds.iter().skip(1)).all(|(earlier, later)| is_above(earlier, later));
        let over = Duration::from_nanos(last.0.saturating_sub(first.0));
        is_steady.then_some(ManagedGrowth { from_bytes: first.1, to_bytes: last.1, over })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Growth after a reading each minute, of these bytes by the minute.
    fn read(minutes: std::ops::Range<u64>, bytes: impl Fn(u64) -> u64) -> Growth {
        let mut growth = Growth::default();
        minutes.for_each(|minute| growth.add(minute * 60_000_000_000, bytes(minute)));
        growth
    }

    #[test]
    fn memory_that_grows_all_the_time_grows_steadily() {
        let steady = read(0..90, |minute| 100 * MIB * minute).steady().unwrap();
        assert_eq!((steady.from_bytes, steady.to_bytes), (3000 * MIB, 8500 * MIB));
        assert_eq!(steady.over, Duration::from_mins(55));
        // In steps of ten minutes.
        assert!(read(0..90, |minute| 1000 * MIB * (minute / 10)).steady().is_some());
    }

    #[test]
    fn start_step_and_emptied_cache_are_no_growth() {
        assert_eq!(read(0..55, |minute| 100 * MIB * minute).steady(), None, "too few readings");
        assert_eq!(read(0..120, |_| 100 * MIB).steady(), None);
        assert_eq!(read(0..90, |minute| if minute < 60 { MIB } else { 1000 * MIB }).steady(), None);
        let drifting = |minute| if minute < 50 { MIB } else { 40_000 * MIB + minute * MIB };
        assert_eq!(read(0..90, drifting).steady(), None, "a step, and next to nothing");
        assert_eq!(read(0..120, |minute| 100 * MIB * (minute % 15)).steady(), None);
        assert_eq!(read(0..120, |minute| 10_000 * MIB - minute * MIB).steady(), None);
    }

    #[test]
    fn readings_before_a_gap_are_forgotten_and_others_are_few() {
        let mut growth = read(0..90, |minute| 100 * MIB * minute);
        growth.add(1 << 50, 1 << 40);
        assert_eq!(growth.readings.len(), 1);
        assert!(read(0..10_000, |minute| minute).readings.len() <= READINGS);
        // The clock since boot does not go back; a reading that seems older is ignored.
        growth.add(0, 1);
        assert_eq!(growth.readings.len(), 1);
    }
}

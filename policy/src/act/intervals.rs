//! Sets of addresses.

use std::{cmp::Reverse, collections::BTreeMap};

/// Set of disjoint address intervals that do not adjoin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals {
    /// End (exclusive) of each interval, by its begin.
    ends: BTreeMap<u64, u64>,
}

impl Intervals {
    /// Set of the addresses in these ranges.
    pub(crate) fn of(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut intervals = Self::default();
        for (begin, end) in ranges {
            intervals.insert(begin, end);
        }
        intervals
    }

    pub(crate) fn insert(&mut self, mut begin: u64, mut end: u64) {
        if begin >= end {
            return;
        }
        let joined: Vec<u64> =
            self.ends.range(..=end).rev().take_while(|(_, until)| **until >= begin).map(|(from, _)| *from).collect();
        for from in joined {
            if let Some(until) = self.ends.remove(&from) {
                begin = begin.min(from);
                end = end.max(until);
            }
        }
        self.ends.insert(begin, end);
    }

    pub(crate) fn remove(&mut self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        let cut: Vec<(u64, u64)> = self
            .ends
            .range(..end)
            .rev()
            .take_while(|(_, until)| **until > begin)
            .map(|(from, until)| (*from, *until))
            .collect();
        for (from, until) in cut {
            self.ends.remove(&from);
            if from < begin {
                self.ends.insert(from, begin);
            }
            if until > end {
                self.ends.insert(end, until);
            }
        }
    }

    /// Whether the set overlaps this interval.
    pub(crate) fn touches(&self, begin: u64, end: u64) -> bool {
        self.ends.range(..end).next_back().is_some_and(|(_, until)| *until > begin)
    }

    /// Whether the set has all of this interval.
    pub(crate) fn covers(&self, begin: u64, end: u64) -> bool {
        self.ends.range(..=begin).next_back().is_some_and(|(_, until)| *until >= end)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ends.iter().map(|(begin, end)| (*begin, *end))
    }

    /// The largest intervals, up to this number.
    pub(crate) fn largest(&self, count: usize) -> Self {
        let mut all: Vec<(u64, u64)> = self.iter().collect();
        if all.len() > count {
            all.select_nth_unstable_by_key(count, |(begin, end)| Reverse(end.saturating_sub(*begin)));
            all.truncate(count);
        }
        Self::of(all)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.iter().map(|(begin, end)| end.saturating_sub(begin)).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(u64, u64)]) -> Intervals {
        Intervals::of(pairs.iter().copied())
    }

    #[test]
    fn adjacent_and_overlapping_intervals_are_merged() {
        assert_eq!(of(&[(10, 20), (30, 40), (20, 30)]).iter().collect::<Vec<_>>(), [(10, 40)]);
        assert_eq!(of(&[(10, 20), (5, 50)]).iter().collect::<Vec<_>>(), [(5, 50)]);
        assert_eq!(of(&[(10, 20), (30, 40)]).bytes(), 20);
    }

    #[test]
    fn largest_intervals_are_selected() {
        let all = of(&[(0, 1), (10, 30), (40, 45), (50, 80)]);
        assert_eq!(all.largest(2).iter().collect::<Vec<_>>(), [(10, 30), (50, 80)]);
        assert_eq!(all.largest(4), all);
    }

    #[test]
    fn removal_keeps_adjacent_intervals() {
        let mut intervals = of(&[(10, 40), (50, 60)]);
        intervals.remove(20, 55);
        assert_eq!(intervals.iter().collect::<Vec<_>>(), [(10, 20), (55, 60)]);
        assert!(intervals.touches(0, 11) && intervals.touches(59, 70));
        assert!(!intervals.touches(20, 55) && !intervals.touches(0, 10));
        assert!(intervals.covers(10, 20) && !intervals.covers(10, 21) && !intervals.covers(9, 20));
    }
}

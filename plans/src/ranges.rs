//! Address sets, stored as ranges: memory grows with the number of ranges, not of addresses.

use std::ops::Range;

use planner::Part;

/// Address set: sorted ranges, neither empty nor adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Addresses of the driver blocks that overlap a memory range.
    pub(crate) const fn blocks_of(address: u64, bytes: u64) -> Range<u64> {
        let end = address.saturating_add(bytes).div_ceil(Part::BLOCK_BYTES);
        address / Part::BLOCK_BYTES * Part::BLOCK_BYTES..end.saturating_mul(Part::BLOCK_BYTES)
    }

    /// Iterates over the ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }

    /// Heap bytes held.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Range<u64>>()
    }

    /// Number of addresses in the set.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).fold(0, u64::saturating_add)
    }

    /// Indices of the ranges that overlap another one.
    pub(crate) fn overlap_indices(&self, other: &Range<u64>) -> Range<usize> {
        let first = self.0.partition_point(|range| range.end <= other.start);
        let end = self.0.partition_point(|range| range.start < other.end);
        first..end.max(first)
    }

    /// Ranges that overlap another one.
    pub(crate) fn overlapping(&self, other: &Range<u64>) -> &[Range<u64>] {
        self.0.get(self.overlap_indices(other)).unwrap_or_default()
    }

    /// Intersection with a range.
    pub(crate) fn intersection(&self, other: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let (begin, end) = (other.start, other.end);
        self.overlapping(other).iter().map(move |range| range.start.max(begin)..range.end.min(end))
    }

    /// Whether the set contains an address.
    pub(crate) fn contains(&self, address: u64) -> bool {
        !self.overlap_indices(&(address..address.saturating_add(1))).is_empty()
    }

    /// Whether the set contains all of a range.
    pub(crate) fn covers(&self, other: &Range<u64>) -> bool {
        other.is_empty() || self.intersection(other).next().as_ref() == Some(other)
    }

    /// Whether the sets have no address in common.
    pub(crate) fn is_disjoint(&self, other: &Self) -> bool {
        self.0.iter().all(|range| other.overlap_indices(range).is_empty())
    }

    /// Set difference: the addresses that are not in the other set.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        for range in &self.0 {
            let mut begin = range.start;
            for common in other.intersection(range) {
                rest.push(begin..common.start);
                begin = common.end;
            }
            rest.push(begin..range.end);
        }
        rest.into_iter().collect()
    }

    /// Adds the addresses of another set.
    pub(crate) fn union_with(&mut self, other: &Self) {
        *self = self.iter().chain(other.iter()).collect();
    }
}

/// Collects ranges in any order, which may overlap.
impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut all: Vec<Range<u64>> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        all.sort_unstable_by_key(|range| range.start);
        all.dedup_by(|range, last| {
            let is_joined = range.start <= last.end;
            if is_joined {
                last.end = last.end.max(range.end);
            }
            is_joined
        });
        Self(all)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec((0_u64..40, 0_u64..9), 0..8)
            .prop_map(|all| all.into_iter().map(|(begin, bytes)| begin..begin + bytes).collect())
    }

    fn addresses(ranges: impl IntoIterator<Item = Range<u64>>) -> BTreeSet<u64> {
        ranges.into_iter().flatten().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn sets_of_ranges_equal_sets_of_addresses(one in ranges(), other in ranges(), probe in 0_u64..40, bytes in 0_u64..9) {
            let (all, of_other) = (addresses(one.clone()), addresses(other.clone()));
            let (set, set_of_other): (Ranges, Ranges) = (one.into_iter().collect(), other.into_iter().collect());
            prop_assert_eq!(addresses(set.iter()), all.clone());
            prop_assert!(set.0.windows(2).all(|pair| pair[0].end < pair[1].start), "{set:?}");
            prop_assert_eq!(set.bytes(), all.len() as u64);
            prop_assert_eq!(set.contains(probe), all.contains(&probe));
            let range = probe..probe + bytes;
            prop_assert_eq!(addresses(set.intersection(&range)), &all & &addresses([range.clone()]));
            prop_assert_eq!(set.covers(&range), range.clone().all(|address| all.contains(&address)));
            prop_assert_eq!(set.is_disjoint(&set_of_other), all.is_disjoint(&of_other));
            prop_assert_eq!(addresses(set.difference(&set_of_other).iter()), &all - &of_other);
            let mut both = set;
            both.union_with(&set_of_other);
            prop_assert_eq!(addresses(both.iter()), &all | &of_other);
        }
    }

    #[test]
    fn last_block_of_the_address_space_does_not_overflow() {
        assert_eq!(Ranges::blocks_of(1, 2), 0..Part::BLOCK_BYTES);
        assert_eq!(Ranges::blocks_of(u64::MAX - 1, u64::MAX).end, u64::MAX);
    }
}

//! Spans of addresses, bounded in number.

use std::borrow::Cow;

/// Maximum of ranges of one process. Beyond it, adjacent mappings are merged.
pub(crate) const RANGES_MAX: usize = 16_384;

/// Addresses from one up to another.
pub(crate) type Span = std::ops::Range<u64>;

/// At most `max` spans, by merging as many adjacent ones as necessary: two, four, eight and so on,
/// so that changes at the end do not change all others.
pub(crate) fn together(spans: &[Span], max: usize) -> Cow<'_, [Span]> {
    let few = spans.len().div_ceil(max.max(1)).next_power_of_two();
    if few == 1 {
        return Cow::Borrowed(spans);
    }
    let neighbours = spans.chunks(few);
    neighbours.filter_map(|few| Some(few.first()?.start..few.last()?.end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_spans_are_merged_with_their_neighbours() {
        let spans: Vec<_> = (0..10_u64).map(|at| at * 10..at * 10 + 1).collect();
        assert_eq!(together(&spans, 10), spans);
        assert_eq!(*together(&spans, 4), [0..31, 40..71, 80..91]);
        assert_eq!(together(&spans[..9], 5)[..4], together(&spans, 5)[..4]);
        assert_eq!(together(&together(&spans, 8), 3), together(&spans, 3));
        assert!(together(&[], 4).is_empty());
    }
}

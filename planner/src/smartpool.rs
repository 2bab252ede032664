//! SmartPool: one pool for a known iteration, with a fixed address for every block.
//!
//! Source: Zhang et al., "Efficient Memory Management for GPU-based Deep Learning Systems" (arXiv
//! 1903.06631), in its variant for lifetimes on a circle.
//! Parameters: [`Fit`]; the alignment is the circle's.
//! Complexity: O(n (log n + k log k)) for n blocks of which k overlap one on average.
//! docs/policies/smartpool.md lists the differences from the paper, with reasons.

use serde::{Deserialize, Serialize};
use trace::Circle;

use super::{arcs::Arcs, placement::Placement};

/// Choice among the holes that are large enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// The smallest hole and, among equals, the lowest.
    #[default]
    Best,
    /// The lowest hole.
    First,
}

/// Places a circle's blocks one by one: the largest first and, among equals, the earliest.
#[must_use]
pub fn place(circle: &Circle, fit: Fit) -> Placement {
    let arcs = Arcs::of(circle);
    arcs.placement(&place_in_order(&arcs, &by_size(&arcs), fit))
}

pub(super) fn by_size(arcs: &Arcs) -> Vec<usize> {
    // The sort is stable: equal sizes stay in the order of their beginning.
    let mut order: Vec<_> = (0..arcs.len()).collect();
    order.sort_by_key(|&arc| std::cmp::Reverse(arcs.bytes(arc)));
    order
}

/// Offset of each arc if they are placed in this order.
pub(super) fn place_in_order(arcs: &Arcs, order: &[usize], fit: Fit) -> Vec<u64> {
    let mut ends: Vec<Option<(u64, u64)>> = vec![None; arcs.len()];
    let mut taken = Vec::new();
    for &arc in order {
        let bytes = arcs.bytes(arc);
        taken.clear();
        taken.extend(arcs.overlapping(arc).filter_map(|other| ends.get(other).copied().flatten()));
        taken.sort_unstable();
        let offset = hole(&taken, bytes, fit);
        if let Some(place) = ends.get_mut(arc) {
            *place = Some((offset, offset + bytes));
        }
    }
    ends.into_iter().map(|place| place.map_or(0, |(offset, _)| offset)).collect()
}

/// Offset for a block between used ranges, which are (begin, end) by begin: a hole, including the
/// one below the first range, or the top where no hole is large enough.
fn hole(taken: &[(u64, u64)], bytes: u64, fit: Fit) -> u64 {
    let (mut top, mut best) = (0, None);
    for &(begin, end) in taken {
        let free = begin.saturating_sub(top);
        if free >= bytes && best.is_none_or(|(size, _)| free < size) {
            best = Some((free, top));
            if fit == Fit::First {
                break;
            }
        }
        top = top.max(end);
    }
    best.map_or(top, |(_, offset)| offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_goes_into_the_smallest_hole_or_the_lowest_as_asked() {
        let taken = [(10, 20), (24, 30), (25, 40), (42, 50)];
        let places = |bytes| (hole(&taken, bytes, Fit::Best), hole(&taken, bytes, Fit::First));
        assert_eq!(places(1), (40, 0));
        assert_eq!(places(2), (40, 0));
        assert_eq!(places(3), (20, 0));
        assert_eq!(places(5), (0, 0));
        assert_eq!(places(11), (50, 50));
        assert_eq!(hole(&[], 7, Fit::Best), 0);
    }
}

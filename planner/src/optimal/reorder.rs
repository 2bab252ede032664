//! Repeated placement: blocks that ended above the bound move forward in the next round's order.
//!
//! Blocks that remain too high move forward until they are placed before the blocks that displaced
//! them, whichever those are.

use super::{
    super::smartpool::{Fit, by_size, place_in_order},
    Attempt,
};

/// Rounds without a smaller placement after which the next initial order is tried.
const UNIMPROVED_ROUNDS_MAX: u64 = 60;

pub(super) fn improve(attempt: &mut Attempt<'_>) {
    let arcs = attempt.arcs;
    let starts = {
        let size = by_size(arcs);
        let mut time = size.clone();
        time.sort_by_key(|&arc| std::cmp::Reverse(arcs.values().get(arc).map_or(0, |arc| arc.count)));
        [(size.clone(), Fit::First), (time.clone(), Fit::First), (size, Fit::Best), (time, Fit::Best)]
    };
    for (mut order, fit) in starts {
        let (mut best, mut rounds_left) = (u64::MAX, UNIMPROVED_ROUNDS_MAX);
        while rounds_left > 0 && attempt.remaining.rounds > 0 && !attempt.is_optimal() {
            attempt.remaining.rounds -= 1;
            let offsets = place_in_order(arcs, &order, fit);
            let pool_bytes = super::pool_bytes(arcs, &offsets);
            rounds_left = if pool_bytes < best { UNIMPROVED_ROUNDS_MAX } else { rounds_left - 1 };
            best = best.min(pool_bytes);
            attempt.offer(&offsets);
            let bound_bytes = attempt.bound_bytes;
            let high = |arc: usize| offsets.get(arc).is_some_and(|offset| offset + arcs.bytes(arc) > bound_bytes);
            // Half way to the front, before the block at that place.
            let mut placed: Vec<_> = order
                .iter()
                .enumerate()
                .map(|(place, &arc)| if high(arc) { (place / 2, false, arc) } else { (place, true, arc) })
                .collect();
            placed.sort_by_key(|&(place, stays, _)| (place, stays));
            order.clear();
            order.extend(placed.into_iter().map(|(_, _, arc)| arc));
        }
    }
}

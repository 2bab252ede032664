//! Placements in one pool.

use planner::{
    optimal::{self, Effort},
    placement::{Misplaced, Placement, Slot},
    smartpool::{self, Fit},
};
use trace::{Circle, Span};

use crate::support::Numbers;

fn span(start: u64, length: u64, bytes: u64) -> Span {
    Span { source: 0, bytes, start, length, copies: 1 }
}

fn circle(period: u64, spans: impl IntoIterator<Item = Span>) -> Circle {
    Circle { period, spans: spans.into_iter().collect(), persistent_bytes: 0, turns: 1 }
}

fn offsets(placement: &Placement) -> Vec<u64> {
    placement.slots.iter().map(|slot| slot.offset).collect()
}

#[test]
fn blocks_that_are_never_alive_at_once_share_bytes() {
    let circle = circle(10, [span(0, 5, 70), span(5, 5, 100)]);
    let placement = smartpool::place(&circle, Fit::Best);
    assert_eq!((offsets(&placement), placement.pool_bytes), (vec![0, 0], 100));
}

#[test]
fn block_across_the_end_occupies_the_next_iteration() {
    let circle = circle(10, [span(0, 3, 70), span(8, 3, 100)]);
    assert_eq!(smartpool::place(&circle, Fit::Best).pool_bytes, 170);
}

#[test]
fn the_hole_below_the_first_range_is_used() {
    // The second lies on the first. After the end of the first, there is a hole beneath it.
    let circle = circle(10, [span(0, 4, 100), span(3, 7, 60), span(5, 2, 40)]);
    let placement = smartpool::place(&circle, Fit::Best);
    assert_eq!((offsets(&placement), placement.pool_bytes), (vec![0, 100, 0], 160));
}

#[test]
fn copies_of_a_block_lie_apart() {
    let twice = Span { copies: 2, ..span(3, 10, 5) };
    let placement = smartpool::place(&circle(10, [twice]), Fit::First);
    let slot = |copy, offset| Slot { span: 0, copy, offset };
    assert_eq!(placement.slots, [slot(0, 0), slot(1, 5)]);
}

#[test]
fn empty_circle_needs_no_pool() {
    let nothing = Circle::default();
    assert_eq!(smartpool::place(&nothing, Fit::Best).pool_bytes, 0);
    let best = optimal::place(&nothing, Effort::default());
    assert!(best.is_proven() && best.placement.slots.is_empty());
}

#[test]
fn wrong_placement_is_rejected() {
    let circle = circle(10, [span(0, 5, 4), span(4, 5, 4)]);
    let placement = |one, other, pool_bytes| {
        let slot = |span, offset| Slot { span, copy: 0, offset };
        Placement { slots: vec![slot(0, one), slot(1, other)], pool_bytes }.check(&circle)
    };
    assert_eq!(placement(0, 4, 8), Ok(()));
    assert_eq!(placement(0, 3, 8), Err(Misplaced::Overlap { one: 0, other: 1 }));
    assert_eq!(placement(0, 4, 7), Err(Misplaced::OutsidePool { slot: 1, end: 8, pool_bytes: 7 }));
    assert_eq!(Placement::default().check(&circle), Err(Misplaced::WrongCount { slots: 0, copies: 2 }));
}

#[test]
fn random_circles_are_placed_without_overlap_and_never_below_the_bound() {
    let mut numbers = Numbers(1);
    for case in 0..300 {
        let blocks = 1 + numbers.below(60);
        let period = 1 + numbers.below(80);
        let circle = numbers.circle(blocks, period, 40);
        let best = optimal::place(&circle, Effort { rounds: 30, nodes: 3000 });
        assert_eq!(best.placement.check(&circle), Ok(()), "{case}");
        assert!(circle.peak_bytes() <= best.bound_bytes && best.bound_bytes <= best.placement.pool_bytes, "{case}");
        for fit in [Fit::Best, Fit::First] {
            let placement = smartpool::place(&circle, fit);
            assert_eq!(placement.check(&circle), Ok(()), "{case} {fit:?}");
            assert!(placement.pool_bytes >= best.placement.pool_bytes, "{case} {fit:?}");
        }
    }
}

#[test]
fn proven_optimum_matches_exhaustive_search() {
    let mut numbers = Numbers(2);
    let mut above_the_peak = 0;
    for case in 0..100 {
        let period = 3 + numbers.below(6);
        let circle = numbers.circle(6, period, 9);
        let best = optimal::place(&circle, Effort { rounds: 0, nodes: 1_000_000 });
        assert!(best.is_proven(), "{case}");
        assert_eq!(best.bound_bytes, smallest(&circle), "{case} {circle:?}");
        above_the_peak += u32::from(best.bound_bytes > circle.peak_bytes());
    }
    assert!(above_the_peak > 0, "the peak alone would have done");
}

/// The smallest pool of all orders, with each block as low as it fits.
fn smallest(circle: &Circle) -> u64 {
    let blocks: Vec<_> = circle.spans.iter().flat_map(|span| (0..span.copies).map(move |_| span)).collect();
    let mut smallest = u64::MAX;
    each_order(&mut (0..blocks.len()).collect::<Vec<_>>(), 0, &mut |order| {
        let mut placed: Vec<(&Span, u64)> = Vec::new();
        for &at in order {
            let own = blocks[at];
            let mut beside: Vec<_> = placed.iter().filter(|(other, _)| own.overlaps(other, circle.period)).collect();
            beside.sort_by_key(|(_, offset)| *offset);
            let mut low = 0;
            for (other, offset) in beside {
                if *offset < low + own.bytes {
                    low = low.max(offset + other.bytes);
                }
            }
            placed.push((own, low));
        }
        smallest = smallest.min(placed.iter().map(|(span, offset)| offset + span.bytes).max().unwrap());
    });
    smallest
}

fn each_order(order: &mut Vec<usize>, fixed: usize, look: &mut impl FnMut(&[usize])) {
    if fixed == order.len() {
        return look(order);
    }
    for next in fixed..order.len() {
        order.swap(fixed, next);
        each_order(order, fixed + 1, look);
        order.swap(fixed, next);
    }
}

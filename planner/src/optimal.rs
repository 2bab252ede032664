//! Optimal placement: proves that a placement is the smallest, or finds one smaller than
//! SmartPool's.
//!
//! Three steps, each taken only if the one before leaves a gap to the lower bound, the peak of live
//! bytes:
//!
//! * greedy placement by size, by lifetime and by their product, with best fit and first fit
//! * `reorder`: repeated placement, in which blocks that ended above the bound move forward
//! * `search`: branch and bound, for at most [`MOST_SEARCHED`] blocks
//!
//! Parameters: [`Effort`], counted and not timed, so that the same input gives the same placement
//! on every machine.
//! Complexity: that of SmartPool for each round of reordering; exponential for the search, which
//! the effort limits.

mod reorder;
mod search;

use serde::{Deserialize, Serialize};
use trace::Circle;

use super::{
    arcs::Arcs,
    placement::Placement,
    smartpool::{Fit, by_size, place_in_order},
};

/// Maximum of blocks for the search. Each level of the search is a block, so that more blocks would
/// never be finished; they are only reordered.
pub const MOST_SEARCHED: usize = 1000;

/// Limits of the search's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// Rounds of reordering.
    pub rounds: u64,
    /// Nodes of the search.
    pub nodes: u64,
}

impl Default for Effort {
    /// Seconds for the hardest instances, no search at all for networks.
    fn default() -> Self {
        Self { rounds: 400, nodes: 2_000_000 }
    }
}

/// A placement with its lower bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Best {
    /// The smallest placement found.
    pub placement: Placement,
    /// Lower bound of any pool: the peak of live bytes, or more where the search excluded
    /// everything below.
    pub bound_bytes: u64,
    /// Work spent.
    pub spent: Effort,
}

impl Best {
    /// Whether the placement is proven to be the smallest.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.placement.pool_bytes == self.bound_bytes
    }
}

/// The smallest placement within an effort.
#[must_use]
pub fn place(circle: &Circle, effort: Effort) -> Best {
    let arcs = Arcs::of(circle);
    let mut attempt = Attempt::new(&arcs, effort);
    attempt.greedy();
    reorder::improve(&mut attempt);
    if arcs.len() <= MOST_SEARCHED {
        search::improve(&mut attempt);
    }
    let Attempt { offsets, bound_bytes, remaining, .. } = attempt;
    let spent = Effort { rounds: effort.rounds - remaining.rounds, nodes: effort.nodes - remaining.nodes };
    Best { placement: arcs.placement(&offsets), bound_bytes, spent }
}

/// The best placement so far, and the remaining effort.
struct Attempt<'a> {
    arcs: &'a Arcs,
    offsets: Vec<u64>,
    pool_bytes: u64,
    bound_bytes: u64,
    remaining: Effort,
}

impl<'a> Attempt<'a> {
    fn new(arcs: &'a Arcs, effort: Effort) -> Self {
        Self { arcs, offsets: Vec::new(), pool_bytes: u64::MAX, bound_bytes: arcs.peak_bytes(), remaining: effort }
    }

    fn is_optimal(&self) -> bool {
        self.pool_bytes == self.bound_bytes
    }

    /// Replaces the offsets if the new ones need a smaller pool.
    fn offer(&mut self, offsets: &[u64]) {
        let pool_bytes = pool_bytes(self.arcs, offsets);
        if pool_bytes < self.pool_bytes {
            self.pool_bytes = pool_bytes;
            self.offsets = offsets.to_vec();
        }
    }

    fn greedy(&mut self) {
        let arcs = self.arcs;
        let size = by_size(arcs);
        let by = |key: fn(u64, u64) -> u128| {
            let mut order = size.clone();
            let count = |arc: usize| arcs.values().get(arc).map_or(0, |arc| arc.count as u64);
            order.sort_by_key(|&arc| std::cmp::Reverse(key(arcs.bytes(arc), count(arc))));
            order
        };
        let time = by(|_, count| u128::from(count));
        let both = by(|bytes, count| u128::from(bytes) * u128::from(count));
        for order in [&size, &time, &both] {
            for fit in [Fit::Best, Fit::First] {
                if !self.is_optimal() {
                    self.offer(&place_in_order(arcs, order, fit));
                }
            }
        }
    }
}

fn pool_bytes(arcs: &Arcs, offsets: &[u64]) -> u64 {
    arcs.values().iter().zip(offsets).map(|(arc, offset)| offset + arc.bytes).max().unwrap_or(0)
}

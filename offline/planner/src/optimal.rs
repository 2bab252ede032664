//! Proves that a placement is the smallest there is, or finds a smaller one than SmartPool's.
//!
//! Three steps, each taken only if the one before leaves a gap to the bound, the most bytes alive at once:
//!
//! * placing by size, by time alive and by their product, into the best hole and the lowest
//! * `reorder`: placing again and again, each time earlier what ended too high
//! * `search`: branch and bound, for at most [`MOST_SEARCHED`] blocks
//!
//! Parameters: [`Effort`], counted and not timed, so that the same input gives the same placement everywhere.
//! Complexity: that of SmartPool for each round of reordering; exponential for the search, which the effort ends.

mod reorder;
mod search;

use serde::{Deserialize, Serialize};
use trace::Circle;

use super::{
    arcs::Arcs,
    placement::Placement,
    smartpool::{Fit, by_size, place_in_order},
};

/// More blocks are not searched, only reordered: each level of the search is a block, and there is no going through them in any time.
pub const MOST_SEARCHED: usize = 1000;

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// Rounds of reordering.
    pub rounds: u64,
    /// Nodes of the search.
    pub nodes: u64,
}

impl Default for Effort {
    /// Seconds for the hardest, nothing for what a network does.
    fn default() -> Self {
        Self { rounds: 400, nodes: 2_000_000 }
    }
}

/// A placement, and what is known of how good it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Best {
    /// The smallest found.
    pub placement: Placement,
    /// No placement is smaller: the most bytes alive at once, or more where the search went through everything below.
    pub bound_bytes: u64,
    /// What was spent.
    pub spent: Effort,
}

impl Best {
    /// Whether there is no smaller one.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.placement.pool_bytes == self.bound_bytes
    }
}

/// The smallest placement that so much effort finds.
#[must_use]
pub fn place(circle: &Circle, effort: Effort) -> Best {
    let arcs = Arcs::of(circle);
    let mut attempt = Attempt::new(&arcs, effort);
    attempt.simple();
    reorder::improve(&mut attempt);
    if arcs.len() <= MOST_SEARCHED {
        search::improve(&mut attempt);
    }
    let Attempt { offsets, bound_bytes, left, .. } = attempt;
    let spent = Effort { rounds: effort.rounds - left.rounds, nodes: effort.nodes - left.nodes };
    Best { placement: arcs.placement(&offsets), bound_bytes, spent }
}

/// What is found so far.
struct Attempt<'a> {
    arcs: &'a Arcs,
    offsets: Vec<u64>,
    pool_bytes: u64,
    bound_bytes: u64,
    left: Effort,
}

impl<'a> Attempt<'a> {
    fn new(arcs: &'a Arcs, effort: Effort) -> Self {
        Self { arcs, offsets: Vec::new(), pool_bytes: u64::MAX, bound_bytes: arcs.peak_bytes(), left: effort }
    }

    fn done(&self) -> bool {
        self.pool_bytes == self.bound_bytes
    }

    /// Keeps these offsets if they are better.
    fn offer(&mut self, offsets: &[u64]) {
        let pool_bytes = top(self.arcs, offsets);
        if pool_bytes < self.pool_bytes {
            self.pool_bytes = pool_bytes;
            self.offsets = offsets.to_vec();
        }
    }

    fn simple(&mut self) {
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
                if !self.done() {
                    self.offer(&place_in_order(arcs, order, fit));
                }
            }
        }
    }
}

fn top(arcs: &Arcs, offsets: &[u64]) -> u64 {
    arcs.values().iter().zip(offsets).map(|(arc, offset)| offset + arc.bytes).max().unwrap_or(0)
}

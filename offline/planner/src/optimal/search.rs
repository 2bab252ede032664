//! Branch and bound: is there a placement in so many bytes?
//!
//! Blocks are placed from the bottom up: each lies on another or on the ground, and none lower than the one before it. Every placement whose blocks cannot
//! be moved down is reached so in one order only, and if there is a placement at all then there is such a one. A block that was passed over comes no more
//! before one that is placed later raises it. A node is left when
//!
//! * nothing is left that would raise a block that was passed over
//! * a section cannot hold what is still to come to it, given how low each of these may begin
//! * a block would begin where another would fit in beneath it
//! * what is left was tried before from the same heights, and failed
//!
//! What is left falls apart where no block crosses from one stretch of time to the next; the parts are searched by themselves, each in an order of its own.
//!
//! Source: the ideas are those of Moffitt, "MiniMalloc", ASPLOS 2023 (canonical solutions, inference over sections, dominance, decomposition, several orders
//! in turn); what may begin where is looked at for every height here, and failures are remembered.
#![expect(
    clippy::indexing_slicing,
    reason = "arcs and sections are those of one Arcs, and every table is as long as they are many"
)]

mod order;
mod parts;

use std::collections::HashSet;

use self::{
    order::{IMPORTANCE, Importance},
    parts::parts,
};
use super::{super::arcs::Arcs, Attempt};

/// Nodes of the first try in each order; four times as many in each next round. Hard instances are easy in one order and hopeless in the next.
const FIRST_TRY: u64 = 4_000;
/// Failures that are remembered; 16 bytes each.
const MOST_FAILURES: usize = 1 << 21;

pub(super) fn improve(attempt: &mut Attempt<'_>) {
    let mut search = Search::new(attempt.arcs);
    // First for the bound itself, with half of what there is; then ever closer to it from above.
    let mut low = attempt.bound_bytes;
    let mut target = low;
    let mut share = attempt.left.nodes / 2;
    while !attempt.done() && share > 0 && low < attempt.pool_bytes {
        search.nodes = share;
        let found = search.fits_in(target);
        attempt.left.nodes -= share - search.nodes;
        match found {
            Some(true) => attempt.offer(&search.offsets.clone()),
            Some(false) => {
                low = target + 1;
                attempt.bound_bytes = attempt.bound_bytes.max(low);
            }
            None => low = target + 1,
        }
        if low >= attempt.pool_bytes {
            break;
        }
        target = low + (attempt.pool_bytes - low) / 2;
        share = (attempt.left.nodes / 8).max(FIRST_TRY).min(attempt.left.nodes);
    }
}

struct Search<'a> {
    arcs: &'a Arcs,
    beside: Vec<Vec<usize>>,
    limit: u64,
    nodes: u64,
    /// Whether it is placed, of each.
    placed: Vec<bool>,
    /// Where each may begin, for what is placed.
    lowest: Vec<u64>,
    offsets: Vec<u64>,
    /// In which order blocks are tried where equal heights leave a choice.
    importance: Importance,
    /// Of each section, while one node is looked at.
    above: Vec<u64>,
    failed: HashSet<u128>,
}

/// When a block is tried: by where it begins, then by its place in the order. Turns only go up.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    offset: u64,
    place: usize,
}

impl<'a> Search<'a> {
    fn new(arcs: &'a Arcs) -> Self {
        let beside = (0..arcs.len()).map(|arc| {
            let mut beside: Vec<_> = arcs.beside(arc).collect();
            beside.sort_unstable();
            beside.dedup();
            beside
        });
        Self {
            arcs,
            beside: beside.collect(),
            limit: 0,
            nodes: 0,
            placed: vec![false; arcs.len()],
            lowest: vec![0; arcs.len()],
            offsets: vec![0; arcs.len()],
            importance: IMPORTANCE[0],
            above: vec![0; arcs.sections()],
            failed: HashSet::new(),
        }
    }

    /// Whether there is a placement within a limit; `None` if the nodes ran out first.
    fn fits_in(&mut self, limit: u64) -> Option<bool> {
        self.limit = limit;
        self.failed.clear();
        let mut tries = FIRST_TRY;
        loop {
            for importance in IMPORTANCE {
                self.importance = importance;
                let budget = self.nodes;
                if budget == 0 {
                    return None;
                }
                self.nodes = budget.min(tries);
                let kept = budget - self.nodes;
                let all = order::order(self.arcs, (0..self.arcs.len()).collect(), importance);
                let found = self.parts_fit(&all, Turn::default());
                self.nodes += kept;
                if found.is_some() {
                    return found;
                }
            }
            tries *= 4;
        }
    }

    /// Whether all parts of what is left fit on what is placed.
    fn parts_fit(&mut self, left: &[usize], last: Turn) -> Option<bool> {
        let parts = parts(self.arcs, left);
        if parts.len() == 1 {
            return self.fits(left, last);
        }
        for part in parts {
            // Which of its blocks are in the fullest place is another question in a part, so it gets its own order.
            let part = order::order(self.arcs, part, self.importance);
            if !self.fits(&part, Turn { place: 0, ..last })? {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Whether a part fits on what is placed. Leaves its offsets if so, and all else as it was.
    fn fits(&mut self, part: &[usize], last: Turn) -> Option<bool> {
        self.nodes = self.nodes.checked_sub(1)?;
        let turns = part.iter().enumerate().map(|(place, &arc)| Turn { offset: self.lowest[arc], place });
        let mut turns: Vec<_> = turns.collect();
        if !self.sections_suffice(part, &turns, last) {
            return Some(false);
        }
        let key = turns.iter().fold(0, |key, &turn| key ^ hash(part[turn.place], turn.offset, turn < last));
        if self.failed.contains(&key) {
            return Some(false);
        }
        let least_top = part.iter().map(|&arc| self.lowest[arc] + self.arcs.bytes(arc)).min().unwrap_or(0);
        turns.retain(|turn| *turn >= last && turn.offset < least_top);
        turns.sort_unstable();
        for turn in turns {
            let arc = part[turn.place];
            let raised = self.put(arc, turn.offset);
            let rest: Vec<_> = part.iter().copied().filter(|&other| other != arc).collect();
            let found = self.parts_fit(&rest, turn);
            self.take_back(arc, raised);
            if found != Some(false) {
                return found;
            }
        }
        if self.failed.len() < MOST_FAILURES {
            self.failed.insert(key);
        }
        Some(false)
    }

    /// Places an arc. Returns where those that it raised might have begun before.
    fn put(&mut self, arc: usize, offset: u64) -> Vec<(usize, u64)> {
        self.offsets[arc] = offset;
        self.placed[arc] = true;
        let top = offset + self.arcs.bytes(arc);
        let mut raised = Vec::new();
        for &other in &self.beside[arc] {
            if self.lowest[other] < top && !self.placed[other] {
                raised.push((other, self.lowest[other]));
                self.lowest[other] = top;
            }
        }
        raised
    }

    fn take_back(&mut self, arc: usize, raised: Vec<(usize, u64)>) {
        self.placed[arc] = false;
        for (other, lowest) in raised {
            self.lowest[other] = lowest;
        }
    }

    /// For every section and every height: what will not begin below it and is still to come fits between it and the limit.
    fn sections_suffice(&mut self, part: &[usize], turns: &[Turn], last: Turn) -> bool {
        let mut starts = Vec::with_capacity(part.len());
        for (&arc, &turn) in part.iter().zip(turns) {
            let start = if turn < last { self.raised_to(arc, last.offset) } else { Some(turn.offset) };
            let Some(start) = start else { return false };
            starts.push((start, arc));
            for run in self.arcs.runs(arc) {
                self.above[run].fill(0);
            }
        }
        starts.sort_unstable();
        for &(start, arc) in starts.iter().rev() {
            let (bytes, room) = (self.arcs.bytes(arc), self.limit.saturating_sub(start));
            for run in self.arcs.runs(arc) {
                for above in &mut self.above[run] {
                    *above += bytes;
                    if *above > room {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// The least that an arc which was passed over can be raised to, now that none begins below an offset; `None` if nothing will raise it.
    fn raised_to(&self, arc: usize, offset: u64) -> Option<u64> {
        let left = self.beside[arc].iter().filter(|&&other| !self.placed[other]);
        left.map(|&other| self.lowest[other].max(offset) + self.arcs.bytes(other)).min()
    }
}

/// 128 bits: no two states that differ will ever have the same.
fn hash(arc: usize, low: u64, passed_over: bool) -> u128 {
    fn mix(mut bits: u64) -> u64 {
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
    let who = mix((arc as u64) << 1 | u64::from(passed_over));
    let half = |salt: u64| u128::from(mix(mix(low ^ salt).wrapping_add(who)));
    half(0x9e37_79b9_7f4a_7c15) << 64 | half(0xd1b5_4a32_d192_ed03)
}

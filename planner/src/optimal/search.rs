//! Branch and bound: is there a placement within a pool of a given size?
//!
//! Blocks are placed from the bottom up: each lies on another or on the ground, and none lower than
//! the one before it. Every placement in which no block can move down is reached in exactly one
//! order. If there is any placement, then there is one of these. A block that was skipped cannot
//! follow until a later block raises it. A node is pruned if
//!
//! * no remaining block would raise a skipped block
//! * a section cannot hold its remaining blocks, given the lowest offset of each
//! * a block would begin at a height at which another would fit beneath it
//! * the same remaining blocks failed before from the same heights
//!
//! The remaining blocks are decomposed where no block crosses from one stretch of time to the next.
//! Each part is searched by itself, in its own order.
//!
//! Source: Moffitt, "MiniMalloc", ASPLOS 2023 (canonical solutions, inference over sections,
//! dominance, decomposition, several orders in turn). Different here: inference looks at every
//! height, and failed states are remembered.
#![expect(clippy::indexing_slicing, reason = "arcs and sections are those of one Arcs, and tables have their numbers")]

mod order;
mod parts;

use std::collections::HashSet;

use self::{
    order::{IMPORTANCE, Importance},
    parts::parts,
};
use super::{super::arcs::Arcs, Attempt};

/// Nodes of the first try in each order; each round has four times as many as the one before. Hard
/// instances are easy in one order and hopeless in the next.
const FIRST_TRY: u64 = 4_000;
/// Maximum of remembered failures, of 16 bytes each.
const MOST_FAILURES: usize = 1 << 21;

pub(super) fn improve(attempt: &mut Attempt<'_>) {
    let mut search = Search::new(attempt.arcs);
    // Half of the nodes try the bound itself; the others approach it from above.
    let mut low = attempt.bound_bytes;
    let mut target = low;
    let mut share = attempt.remaining.nodes / 2;
    while !attempt.is_optimal() && share > 0 && low < attempt.pool_bytes {
        search.nodes = share;
        let found = search.fits_in(target);
        attempt.remaining.nodes -= share - search.nodes;
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
        share = (attempt.remaining.nodes / 8).max(FIRST_TRY).min(attempt.remaining.nodes);
    }
}

struct Search<'a> {
    arcs: &'a Arcs,
    overlapping: Vec<Vec<usize>>,
    limit: u64,
    nodes: u64,
    /// Whether each block is placed.
    placed: Vec<bool>,
    /// Lowest offset of each block on those that are placed.
    lowest: Vec<u64>,
    offsets: Vec<u64>,
    /// Order of blocks with equal lowest offsets.
    importance: Importance,
    /// Bytes above a height in each section; scratch space of one node.
    above: Vec<u64>,
    failed: HashSet<u128>,
}

/// Sort key of the blocks of a node: the offset, then the place in the order. Keys never decrease
/// along a path.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct BranchKey {
    offset: u64,
    place: usize,
}

impl<'a> Search<'a> {
    fn new(arcs: &'a Arcs) -> Self {
        let overlapping = (0..arcs.len()).map(|arc| {
            let mut overlapping: Vec<_> = arcs.overlapping(arc).collect();
            overlapping.sort_unstable();
            overlapping.dedup();
            overlapping
        });
        Self {
            arcs,
            overlapping: overlapping.collect(),
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
                let withheld = budget - self.nodes;
                let all = order::order(self.arcs, (0..self.arcs.len()).collect(), importance);
                let found = self.parts_fit(&all, BranchKey::default());
                self.nodes += withheld;
                if found.is_some() {
                    return found;
                }
            }
            tries *= 4;
        }
    }

    /// Whether all parts of the remaining blocks fit on the placed ones.
    fn parts_fit(&mut self, remaining: &[usize], last: BranchKey) -> Option<bool> {
        let parts = parts(self.arcs, remaining);
        if parts.len() == 1 {
            return self.fits(remaining, last);
        }
        for part in parts {
            // The fullest section differs by part, and so each part gets its own order.
            let part = order::order(self.arcs, part, self.importance);
            if !self.fits(&part, BranchKey { place: 0, ..last })? {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Whether a part fits on the placed blocks. Sets its offsets if so, and restores everything
    /// else.
    fn fits(&mut self, part: &[usize], last: BranchKey) -> Option<bool> {
        self.nodes = self.nodes.checked_sub(1)?;
        let keys = part.iter().enumerate().map(|(place, &arc)| BranchKey { offset: self.lowest[arc], place });
        let mut keys: Vec<_> = keys.collect();
        if !self.sections_suffice(part, &keys, last) {
            return Some(false);
        }
        let state = keys.iter().fold(0, |state, &key| state ^ hash(part[key.place], key.offset, key < last));
        if self.failed.contains(&state) {
            return Some(false);
        }
        let least_top = part.iter().map(|&arc| self.lowest[arc] + self.arcs.bytes(arc)).min().unwrap_or(0);
        keys.retain(|key| *key >= last && key.offset < least_top);
        keys.sort_unstable();
        for key in keys {
            let arc = part[key.place];
            let raised = self.place(arc, key.offset);
            let rest: Vec<_> = part.iter().copied().filter(|&other| other != arc).collect();
            let found = self.parts_fit(&rest, key);
            self.unplace(arc, raised);
            if found != Some(false) {
                return found;
            }
        }
        if self.failed.len() < MOST_FAILURES {
            self.failed.insert(state);
        }
        Some(false)
    }

    /// Places an arc. Returns the arcs that this raised, with their previous lowest offsets.
    fn place(&mut self, arc: usize, offset: u64) -> Vec<(usize, u64)> {
        self.offsets[arc] = offset;
        self.placed[arc] = true;
        let top = offset + self.arcs.bytes(arc);
        let mut raised = Vec::new();
        for &other in &self.overlapping[arc] {
            if self.lowest[other] < top && !self.placed[other] {
                raised.push((other, self.lowest[other]));
                self.lowest[other] = top;
            }
        }
        raised
    }

    fn unplace(&mut self, arc: usize, raised: Vec<(usize, u64)>) {
        self.placed[arc] = false;
        for (other, lowest) in raised {
            self.lowest[other] = lowest;
        }
    }

    /// Whether in every section and above every height the remaining blocks fit below the limit.
    /// Counted are blocks that cannot begin below the height.
    fn sections_suffice(&mut self, part: &[usize], keys: &[BranchKey], last: BranchKey) -> bool {
        let mut starts = Vec::with_capacity(part.len());
        for (&arc, &key) in part.iter().zip(keys) {
            let start = if key < last { self.raised_to(arc, last.offset) } else { Some(key.offset) };
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

    /// Lowest offset to which a skipped arc can be raised when no block begins below `offset`;
    /// `None` if no block will raise it.
    fn raised_to(&self, arc: usize, offset: u64) -> Option<u64> {
        let remaining = self.overlapping[arc].iter().filter(|&&other| !self.placed[other]);
        remaining.map(|&other| self.lowest[other].max(offset) + self.arcs.bytes(other)).min()
    }
}

/// Hash of 128 bits: collisions are too rare to matter.
fn hash(arc: usize, low: u64, skipped: bool) -> u128 {
    fn mix(mut bits: u64) -> u64 {
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
    let block = mix((arc as u64) << 1 | u64::from(skipped));
    let half = |salt: u64| u128::from(mix(mix(low ^ salt).wrapping_add(block)));
    half(0x9e37_79b9_7f4a_7c15) << 64 | half(0xd1b5_4a32_d192_ed03)
}

//! Branch and bound: is there a placement in so many bytes?
//!
//! Blocks are placed from the bottom up: each lies on another or on the ground, and none lower than the one before it. Every placement whose blocks cannot
//! be moved down is reached so in one order only, and if there is a placement at all then there is such a one. A node is left when
//!
//! * a section cannot hold what is still to come to it, given how low each of these may begin
//! * a block would begin where another would fit in beneath it
//! * what is left was tried before from the same heights, and failed
//!
//! What is left falls apart where no block crosses from one stretch of time to the next; the parts are searched by themselves.
#![expect(
    clippy::indexing_slicing,
    reason = "arcs and sections are those of one Arcs, and every table is as long as they are many"
)]

use std::collections::HashSet;

use super::{
    super::arcs::{Arc, Arcs},
    Attempt,
};

/// Nodes of the first try in each order; twice as many in each next round. Hard instances are easy in one order and hopeless in the next.
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
    /// Where each may begin, for what is placed.
    lowest: Vec<u64>,
    offsets: Vec<u64>,
    /// In which order they are tried, where equal heights leave a choice.
    rank: Vec<usize>,
    /// The rank goes before the height.
    by_rank: bool,
    /// Of each section, while one node is looked at.
    above: Vec<u64>,
    failed: HashSet<u128>,
}

/// The node before.
#[derive(Clone, Copy)]
struct Last {
    offset: u64,
    rank: usize,
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
            lowest: vec![0; arcs.len()],
            offsets: vec![0; arcs.len()],
            rank: vec![0; arcs.len()],
            by_rank: false,
            above: vec![0; arcs.sections()],
            failed: HashSet::new(),
        }
    }

    /// Whether there is a placement within a limit; `None` if the nodes ran out first.
    fn fits_in(&mut self, limit: u64) -> Option<bool> {
        self.limit = limit;
        self.failed.clear();
        let orders = orders(self.arcs);
        let all: Vec<_> = (0..self.arcs.len()).collect();
        let mut tries = FIRST_TRY;
        loop {
            for (order, by_rank) in orders.iter().flat_map(|order| [(order, false), (order, true)]) {
                self.by_rank = by_rank;
                for (rank, &arc) in order.iter().enumerate() {
                    self.rank[arc] = rank;
                }
                self.lowest.fill(0);
                let budget = self.nodes;
                if budget == 0 {
                    return None;
                }
                self.nodes = budget.min(tries);
                let kept = budget - self.nodes;
                let found = self.split(&all, Last { offset: 0, rank: 0 });
                self.nodes += kept;
                if found.is_some() {
                    return found;
                }
            }
            tries *= 2;
        }
    }

    /// Whether all parts of what is left fit.
    fn split(&mut self, left: &[usize], last: Last) -> Option<bool> {
        let parts = parts(self.arcs, left);
        // A part that fits raises its own; where another does not, that is undone.
        let before: Vec<_> =
            if parts.len() > 1 { left.iter().map(|&arc| self.lowest[arc]).collect() } else { Vec::new() };
        for part in &parts {
            if !self.fits(part, last)? {
                left.iter().zip(before).for_each(|(&arc, lowest)| self.lowest[arc] = lowest);
                return Some(false);
            }
        }
        Some(true)
    }

    /// Whether a part of what is left fits on what is placed.
    fn fits(&mut self, part: &[usize], last: Last) -> Option<bool> {
        self.nodes = self.nodes.checked_sub(1)?;
        let low = |search: &Self, arc: usize| search.lowest[arc].max(last.offset);
        let mut by_height: Vec<_> = part.iter().map(|&arc| (low(self, arc), self.rank[arc], arc)).collect();
        by_height.sort_unstable();
        if !self.sections_suffice(&by_height) {
            return Some(false);
        }
        // At one height in one order only; who had its turn there begins higher.
        let had_its_turn = |low: u64, rank: usize| low == last.offset && rank < last.rank;
        let key = by_height.iter().fold(0, |key, &(low, rank, arc)| key ^ hash(arc, low, had_its_turn(low, rank)));
        if self.failed.contains(&key) {
            return Some(false);
        }
        let least_top = by_height.iter().map(|&(low, _, arc)| low + self.arcs.bytes(arc)).min().unwrap_or(0);
        by_height.retain(|&(low, _, _)| low < least_top);
        if self.by_rank {
            by_height.sort_unstable_by_key(|&(_, rank, _)| rank);
        }
        for (offset, rank, arc) in by_height {
            if had_its_turn(offset, rank) {
                continue;
            }
            let before = self.put(arc, offset, part);
            let rest: Vec<_> = part.iter().copied().filter(|&other| other != arc).collect();
            let found = self.split(&rest, Last { offset, rank });
            if found == Some(true) {
                return found;
            }
            for (other, lowest) in before {
                self.lowest[other] = lowest;
            }
            found?;
        }
        if self.failed.len() < MOST_FAILURES {
            self.failed.insert(key);
        }
        Some(false)
    }

    /// Places an arc. Returns where those that it raised might have begun before.
    fn put(&mut self, arc: usize, offset: u64, part: &[usize]) -> Vec<(usize, u64)> {
        self.offsets[arc] = offset;
        let top = offset + self.arcs.bytes(arc);
        let mut before = Vec::new();
        for &other in &self.beside[arc] {
            // Those that are placed are not looked at again.
            if self.lowest[other] < top && part.binary_search(&other).is_ok() {
                before.push((other, self.lowest[other]));
                self.lowest[other] = top;
            }
        }
        before
    }

    /// For every section and every height: what may not begin below it and is still to come fits between it and the limit.
    fn sections_suffice(&mut self, by_height: &[(u64, usize, usize)]) -> bool {
        for &(_, _, arc) in by_height {
            for run in self.arcs.runs(arc) {
                self.above[run].fill(0);
            }
        }
        for &(low, _, arc) in by_height.iter().rev() {
            let (bytes, room) = (self.arcs.bytes(arc), self.limit.saturating_sub(low));
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
}

/// What is alive at no time that another part is alive at too, the smallest parts first. Arcs are in the order in which they begin.
fn parts(arcs: &Arcs, left: &[usize]) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut end = 0;
    for &arc in left {
        let own = arcs.values()[arc];
        match parts.last_mut() {
            Some(part) if own.first < end => part.push(arc),
            _ => parts.push(vec![arc]),
        }
        end = end.max(own.first + own.count);
    }
    // What crosses the circle's end belongs with what it meets at the beginning.
    if let Some(over) = end.checked_sub(arcs.sections()).filter(|&over| over > 0)
        && parts.len() > 1
    {
        let meets = parts.iter().take_while(|part| arcs.values()[part[0]].first < over).count();
        let last = parts.pop().unwrap_or_default();
        let mut joined: Vec<usize> = parts.drain(..meets.min(parts.len())).flatten().collect();
        joined.extend(last);
        parts.push(joined);
    }
    parts.sort_by_key(Vec::len);
    parts
}

/// By how full it is where they are, how long they live and how much they take, in several orders of importance.
fn orders(arcs: &Arcs) -> Vec<Vec<usize>> {
    let mut load = vec![0_u64; arcs.sections()];
    for arc in 0..arcs.len() {
        for run in arcs.runs(arc) {
            load[run].iter_mut().for_each(|load| *load += arcs.bytes(arc));
        }
    }
    let fullest = |arc: usize| arcs.runs(arc).into_iter().flat_map(|run| &load[run]).copied().max().unwrap_or(0);
    let figures: Vec<_> = (0..arcs.len())
        .map(|arc| {
            let Arc { count, steps, bytes, .. } = arcs.values()[arc];
            let count = count as u64;
            [fullest(arc), count, bytes.saturating_mul(count), bytes, steps, bytes.saturating_mul(steps)]
        })
        .collect();
    let by = |importance: [usize; 3]| {
        let mut order: Vec<_> = (0..arcs.len()).collect();
        order.sort_by_key(|&arc| std::cmp::Reverse(importance.map(|which| figures[arc][which])));
        order
    };
    let [fullest, time, area, bytes, steps, area_in_steps] = [0, 1, 2, 3, 4, 5];
    let importance = [
        [fullest, time, area],
        [fullest, area, time],
        [time, area, fullest],
        [bytes, time, fullest],
        [fullest, steps, area_in_steps],
    ];
    importance.map(by).to_vec()
}

/// 128 bits: no two states that differ will ever have the same.
fn hash(arc: usize, low: u64, had_its_turn: bool) -> u128 {
    fn mix(mut bits: u64) -> u64 {
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
    let who = mix((arc as u64) << 1 | u64::from(had_its_turn));
    let half = |salt: u64| u128::from(mix(mix(low ^ salt).wrapping_add(who)));
    half(0x9e37_79b9_7f4a_7c15) << 64 | half(0xd1b5_4a32_d192_ed03)
}

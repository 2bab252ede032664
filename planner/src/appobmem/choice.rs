//! Selection of absences.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
};

use super::extremes::long_from_ns;
use crate::{
    autoswap::{Absence, Load, Problem},
    ring::Ring,
};

/// Cost of a hidden transfer, as a share of its time: of two equal choices, the one that migrates
/// less is better.
const COST_OF_MOVING: f64 = 0.01;

/// Sort key: long before short absences; then the benefit by cost; then the first.
type Rank = (bool, u64, Reverse<usize>);

/// Selects the best absence repeatedly, except those of `before`, until the load is within the
/// limit or no absence is left.
pub(super) fn absences(problem: &Problem<'_>, limit_bytes: u64, before: &[Absence], load: Load) -> Vec<Absence> {
    let before: HashSet<_> = before.iter().map(|of| (of.tensor, of.ready)).collect();
    let mut choice = Choice::new(problem, limit_bytes, load);
    let free = problem.absences().iter().enumerate().filter(|(_, of)| !before.contains(&(of.tensor, of.ready)));
    let mut heap: BinaryHeap<_> = free.filter_map(|(at, _)| choice.rank(at)).collect();
    let mut selected = Vec::new();
    while choice.excess_ns.total() > 0
        && let Some(best) = heap.pop()
    {
        // Selections since may have lowered its worth, never raised it.
        let Some(now) = choice.rank(best.2.0) else { continue };
        if now < best && heap.peek().is_some_and(|next| *next > now) {
            heap.push(now);
        } else if let Some(absence) = problem.absences().get(best.2.0) {
            choice.commit(absence);
            selected.push(*absence);
        }
    }
    selected
}

struct Choice<'a> {
    problem: &'a Problem<'a>,
    limit_bytes: u64,
    long_from_ns: f64,
    load: Load,
    /// Time above the limit, by slot. A moment between kernels counts as 1 ns, so that it matters.
    excess_ns: Ring,
}

impl<'a> Choice<'a> {
    fn new(problem: &'a Problem<'a>, limit_bytes: u64, load: Load) -> Self {
        let duration_ns = |slot: usize| if slot.is_multiple_of(2) { 1 } else { problem.duration_ns(slot / 2) + 1 };
        let slots = (0..load.slots()).map(|slot| if load.at(slot) > limit_bytes { duration_ns(slot) } else { 0 });
        let excess_ns = Ring::of(slots.collect());
        let lengths: Vec<_> = problem.absences().iter().map(|of| problem.idle_ns(of)).collect();
        Self { problem, limit_bytes, long_from_ns: long_from_ns(&lengths), load, excess_ns }
    }

    /// Worth of an absence: bytes times the time above the limit while it is absent, by its exposed
    /// time.
    fn rank(&self, at: usize) -> Option<Rank> {
        let absence = self.problem.absences().get(at)?;
        let idle_ns = self.problem.idle_ns(absence);
        let moved_ns = absence.out_ns as f64 + absence.back_ns as f64;
        let exposed_ns = (moved_ns - idle_ns).max(0.0);
        // An absence with exposed time lasts until its uses: kernels wait for its transfers.
        let longest = Load::longest_slots(absence);
        let slots = if exposed_ns > 0.0 { longest } else { self.problem.free_slots(absence) };
        let above_ns = if slots.0 < slots.1 { self.excess_ns.sum(slots.0, slots.1) } else { 0 };
        let worth = absence.bytes as f64 * above_ns as f64 / (exposed_ns + COST_OF_MOVING * moved_ns).max(1.0);
        // The bits of positive numbers are in the order of the numbers.
        let is_long = idle_ns >= self.long_from_ns;
        (self.excess_ns.sum(longest.0, longest.1) > 0).then_some((is_long, worth.to_bits(), Reverse(at)))
    }

    fn commit(&mut self, absence: &Absence) {
        let slots = Load::longest_slots(absence);
        self.load.subtract(slots, absence.bytes);
        for slot in (slots.0..slots.1).filter(|&slot| self.load.at(slot) <= self.limit_bytes) {
            self.excess_ns.subtract(slot, u64::MAX);
        }
    }
}

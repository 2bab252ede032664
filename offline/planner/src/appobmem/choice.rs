//! Which absences are taken.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
};

use super::extremes::long_from_ns;
use crate::{
    autoswap::{Absence, Load, Problem},
    ring::Ring,
};

/// What a transfer costs where it holds nothing up, as a part of its time: of two that are as good, what moves less is better.
const COST_OF_MOVING: f64 = 0.01;

/// Long before short ones; then those that lower most for what they cost; of equals the first.
type Rank = (bool, u64, Reverse<usize>);

/// Takes the best again and again, of those that were not chosen before, until nothing is above the limit or nothing is left to take.
pub(super) fn absences(problem: &Problem<'_>, limit_bytes: u64, before: &[Absence], load: Load) -> Vec<Absence> {
    let before: HashSet<_> = before.iter().map(|of| (of.tensor, of.ready)).collect();
    let mut choice = Choice::new(problem, limit_bytes, load);
    let free = problem.absences().iter().enumerate().filter(|(_, of)| !before.contains(&(of.tensor, of.ready)));
    let mut heap: BinaryHeap<_> = free.filter_map(|(at, _)| choice.rank(at)).collect();
    let mut chosen = Vec::new();
    while choice.above.total() > 0
        && let Some(best) = heap.pop()
    {
        // What was taken since may have made it worth less, never more.
        let Some(now) = choice.rank(best.2.0) else { continue };
        if now < best && heap.peek().is_some_and(|next| *next > now) {
            heap.push(now);
        } else if let Some(absence) = problem.absences().get(best.2.0) {
            choice.take(absence);
            chosen.push(*absence);
        }
    }
    chosen
}

struct Choice<'a> {
    problem: &'a Problem<'a>,
    limit_bytes: u64,
    long_from_ns: f64,
    load: Load,
    /// By slot, how long the load is above the limit. Moments count as 1 ns, so that they count.
    above: Ring,
}

impl<'a> Choice<'a> {
    fn new(problem: &'a Problem<'a>, limit_bytes: u64, load: Load) -> Self {
        let duration_ns = |slot: usize| if slot.is_multiple_of(2) { 1 } else { problem.duration_ns(slot / 2) + 1 };
        let slots = (0..load.slots()).map(|slot| if load.at(slot) > limit_bytes { duration_ns(slot) } else { 0 });
        let above = Ring::of(slots.collect());
        let lengths: Vec<_> = problem.absences().iter().map(|of| problem.idle_ns(of)).collect();
        Self { problem, limit_bytes, long_from_ns: long_from_ns(&lengths), load, above }
    }

    /// What an absence is worth: bytes, times how long the load is above the limit while it is gone, by the time that it exposes.
    fn rank(&self, at: usize) -> Option<Rank> {
        let absence = self.problem.absences().get(at)?;
        let idle_ns = self.problem.idle_ns(absence);
        let moved_ns = absence.out_ns as f64 + absence.back_ns as f64;
        let exposed_ns = (moved_ns - idle_ns).max(0.0);
        // One that exposes time is gone for as long as kernels wait: they begin and end with it.
        let all = Load::away_all_along(absence);
        let gone = if exposed_ns > 0.0 { all } else { self.problem.gone_slots(absence) };
        let above_ns = if gone.0 < gone.1 { self.above.between(gone.0, gone.1) } else { 0 };
        let worth = absence.bytes as f64 * above_ns as f64 / (exposed_ns + COST_OF_MOVING * moved_ns).max(1.0);
        // Of positive numbers the order of bits is the order of numbers.
        let is_long = idle_ns >= self.long_from_ns;
        (self.above.between(all.0, all.1) > 0).then_some((is_long, worth.to_bits(), Reverse(at)))
    }

    fn take(&mut self, absence: &Absence) {
        let slots = Load::away_all_along(absence);
        self.load.leave(slots, absence.bytes);
        for slot in (slots.0..slots.1).filter(|&slot| self.load.at(slot) <= self.limit_bytes) {
            self.above.take(slot, u64::MAX);
        }
    }
}

//! Bytes on the GPU, at each kernel and between kernels.

use trace::{Iteration, KernelId, id::Id};

use super::absence::Absence;

/// Bytes on the GPU in the course of an iteration. Each kernel has two slots: 2k is the moment before kernel k, when what died with the kernel before is gone
/// and what is born with k is not there yet; 2k + 1 is kernel k. Slots beyond the end are those of the next iteration.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    slots: Vec<u64>,
}

impl Load {
    /// With nothing away.
    pub(super) fn of(iteration: &Iteration) -> Self {
        let born = |kernel| iteration.births(kernel).map(|tensor| iteration.tensors()[tensor].bytes).sum::<u64>();
        let live = iteration.live_bytes();
        Self { slots: live.iter().flat_map(|(kernel, &bytes)| [bytes - born(kernel), bytes]).collect() }
    }

    /// While a tensor is away whose kernels `release` and `fetch` are the first without it and the first before which it may come.
    pub(super) fn away(release: usize, fetch: usize) -> (usize, usize) {
        (2 * release + 1, 2 * fetch)
    }

    /// How many slots an iteration has.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// What a slot holds.
    pub(crate) fn at(&self, slot: usize) -> u64 {
        self.slots.get(slot % self.slots.len()).copied().unwrap_or(0)
    }

    /// The longest that a tensor can be away.
    pub(crate) fn away_all_along(absence: &Absence) -> (usize, usize) {
        Self::away(absence.ready, absence.next_use)
    }

    pub(crate) fn leave(&mut self, slots: (usize, usize), bytes: u64) {
        self.change(slots, |load| *load -= bytes);
    }

    pub(super) fn stay(&mut self, slots: (usize, usize), bytes: u64) {
        self.change(slots, |load| *load += bytes);
    }

    fn change(&mut self, (from, to): (usize, usize), mut change: impl FnMut(&mut u64)) {
        let end = self.slots.len();
        let turned = self.slots.get_mut(from.saturating_sub(end)..to.saturating_sub(end)).unwrap_or_default();
        turned.iter_mut().for_each(&mut change);
        self.slots.get_mut(from..to.min(end)).unwrap_or_default().iter_mut().for_each(change);
    }

    /// The first and the last slot that holds more than so much, between two.
    pub(super) fn beyond(&self, (from, to): (usize, usize), most_bytes: u64) -> Option<(usize, usize)> {
        let over = |slot: &usize| {
            let slot = if *slot < self.slots.len() { *slot } else { *slot - self.slots.len() };
            self.slots.get(slot).is_some_and(|&load| load > most_bytes)
        };
        Some(((from..to).find(over)?, (from..to).rev().find(over)?))
    }

    /// The fullest slot, the first of equals, and what it holds.
    pub(super) fn peak(&self) -> (usize, u64) {
        let mut peak = (0, 0);
        for (slot, &bytes) in self.slots.iter().enumerate() {
            if bytes > peak.1 {
                peak = (slot, bytes);
            }
        }
        peak
    }

    /// The most that is less here than there at once.
    pub(super) fn most_below(&self, full: &Self) -> u64 {
        let less = self.slots.iter().zip(&full.slots).map(|(own, full)| full - own);
        less.max().unwrap_or(0)
    }

    /// What a slot of the iteration holds.
    pub(super) fn holds(&self, slot: usize) -> u64 {
        self.slots.get(slot).copied().unwrap_or(0)
    }

    /// The slots of the iteration that hold more than so much.
    pub(super) fn over(&self, most_bytes: u64) -> Vec<usize> {
        let over = self.slots.iter().enumerate().filter(|(_, bytes)| **bytes > most_bytes);
        over.map(|(slot, _)| slot).collect()
    }

    /// The fullest of some slots in order, the first of equals.
    pub(super) fn fullest(&self, of: &[usize]) -> Option<usize> {
        of.iter().copied().rev().max_by_key(|slot| self.holds(*slot))
    }

    /// The kernel that runs in a slot, if one does.
    pub(super) fn running(slot: usize) -> Option<usize> {
        (slot % 2 == 1).then_some(slot / 2)
    }

    /// Whether a slot of the iteration lies in the course of an absence.
    pub(super) fn straddles(&self, absence: &Absence, slot: usize) -> bool {
        let (from, to) = Self::away_all_along(absence);
        (from..to).contains(&slot) || (from..to).contains(&(slot + self.slots.len()))
    }

    /// The kernel that a slot belongs to.
    pub(super) fn kernel(slot: usize) -> KernelId {
        KernelId::new(slot / 2)
    }
}

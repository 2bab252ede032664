//! Load: bytes on the GPU, at each kernel and between kernels.

use trace::{Iteration, KernelId, id::Id};

use super::absence::Absence;

/// Bytes on the GPU in the course of an iteration. Each kernel has two slots. Slot 2k is the moment
/// before kernel k, when tensors that died with the kernel before are freed, and those born with
/// kernel k are not allocated yet. Slot 2k + 1 is kernel k. Slots beyond the end are those of the
/// next iteration.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    slots: Vec<u64>,
}

impl Load {
    /// The load without any absence.
    pub(super) fn of(iteration: &Iteration) -> Self {
        let born = |kernel| iteration.births(kernel).map(|tensor| iteration.tensors()[tensor].bytes).sum::<u64>();
        let live = iteration.live_bytes();
        Self { slots: live.iter().flat_map(|(kernel, &bytes)| [bytes - born(kernel), bytes]).collect() }
    }

    /// Slots without a tensor. Kernel `release` is the first without it; kernel `fetch` is the
    /// first before which its fetch may begin.
    pub(super) fn absent_slots(release: usize, fetch: usize) -> (usize, usize) {
        (2 * release + 1, 2 * fetch)
    }

    /// Number of slots of an iteration.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Bytes in a slot, on the circle.
    pub(crate) fn at(&self, slot: usize) -> u64 {
        self.slots.get(slot % self.slots.len()).copied().unwrap_or(0)
    }

    /// Slots of the longest possible absence.
    pub(crate) fn longest_slots(absence: &Absence) -> (usize, usize) {
        Self::absent_slots(absence.ready, absence.next_use)
    }

    pub(crate) fn subtract(&mut self, slots: (usize, usize), bytes: u64) {
        self.change(slots, |load| *load -= bytes);
    }

    pub(super) fn add(&mut self, slots: (usize, usize), bytes: u64) {
        self.change(slots, |load| *load += bytes);
    }

    fn change(&mut self, (from, to): (usize, usize), mut change: impl FnMut(&mut u64)) {
        let end = self.slots.len();
        let turned = self.slots.get_mut(from.saturating_sub(end)..to.saturating_sub(end)).unwrap_or_default();
        turned.iter_mut().for_each(&mut change);
        self.slots.get_mut(from..to.min(end)).unwrap_or_default().iter_mut().for_each(change);
    }

    /// The first and the last slot of a range with more than `most_bytes`.
    pub(super) fn range_above(&self, (from, to): (usize, usize), most_bytes: u64) -> Option<(usize, usize)> {
        let over = |slot: &usize| {
            let slot = if *slot < self.slots.len() { *slot } else { *slot - self.slots.len() };
            self.slots.get(slot).is_some_and(|&load| load > most_bytes)
        };
        Some(((from..to).find(over)?, (from..to).rev().find(over)?))
    }

    /// The first of the fullest slots, and its bytes.
    pub(super) fn peak(&self) -> (usize, u64) {
        let mut peak = (0, 0);
        for (slot, &bytes) in self.slots.iter().enumerate() {
            if bytes > peak.1 {
                peak = (slot, bytes);
            }
        }
        peak
    }

    /// Maximum of bytes by which this load is less than `full`.
    pub(super) fn max_reduction(&self, full: &Self) -> u64 {
        let less = self.slots.iter().zip(&full.slots).map(|(own, full)| full - own);
        less.max().unwrap_or(0)
    }

    /// Bytes in a slot of the iteration.
    pub(super) fn bytes(&self, slot: usize) -> u64 {
        self.slots.get(slot).copied().unwrap_or(0)
    }

    /// Slots of the iteration with more than `most_bytes`.
    pub(super) fn slots_above(&self, most_bytes: u64) -> Vec<usize> {
        let over = self.slots.iter().enumerate().filter(|(_, bytes)| **bytes > most_bytes);
        over.map(|(slot, _)| slot).collect()
    }

    /// The first of the fullest of some slots, which are in order.
    pub(super) fn fullest(&self, of: &[usize]) -> Option<usize> {
        of.iter().copied().rev().max_by_key(|slot| self.bytes(*slot))
    }

    /// The kernel that runs in a slot, if one does.
    pub(super) fn running(slot: usize) -> Option<usize> {
        (slot % 2 == 1).then_some(slot / 2)
    }

    /// Whether a slot of the iteration lies in an absence.
    pub(super) fn straddles(&self, absence: &Absence, slot: usize) -> bool {
        let (from, to) = Self::longest_slots(absence);
        (from..to).contains(&slot) || (from..to).contains(&(slot + self.slots.len()))
    }

    /// The kernel of a slot.
    pub(super) fn kernel(slot: usize) -> KernelId {
        KernelId::new(slot / 2)
    }
}

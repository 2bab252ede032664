//! What the links can carry while each kernel runs, less what is booked: one direction.

use trace::Iteration;

use super::{Link, Tier, ring::Ring};

/// One direction. What goes to or comes from flash crosses the link as well.
#[derive(Clone, Debug)]
pub(super) struct Way {
    link: Ring,
    /// Nowhere more than the link can carry there.
    flash: Option<Ring>,
}

impl Way {
    pub(super) fn of(iteration: &Iteration, link: &Link, flash: Option<&Link>) -> Self {
        let carried = |link: &Link| {
            let kernels = iteration.kernels().values().iter();
            Ring::of(kernels.map(|kernel| link.carried_bytes(kernel.duration_ns)).collect())
        };
        let mut way = Self { link: carried(link), flash: flash.map(carried) };
        (0..iteration.kernels().len()).for_each(|kernel| way.bound_flash(kernel));
        way
    }

    /// The end of a stretch from `from` on in which so much can be carried, if it is no later than `to`.
    pub(super) fn done_by(&self, tier: Tier, from: usize, to: usize, bytes: u64) -> Option<usize> {
        self.ring(tier).reach(from, to, bytes)
    }

    /// The begin of a stretch up to `to` in which so much can be carried, if it is no earlier than `from`.
    pub(super) fn begin_by(&self, tier: Tier, from: usize, to: usize, bytes: u64) -> Option<usize> {
        self.ring(tier).reach_back(from, to, bytes)
    }

    /// Whether nothing can be carried any more between two positions.
    pub(super) fn is_full(&self, tier: Tier, from: usize, to: usize) -> bool {
        self.ring(tier).between(from, to) == 0
    }

    /// Books as early as possible from a position on; the first position booked at.
    pub(super) fn book_from(&mut self, tier: Tier, from: usize, bytes: u64) -> usize {
        let (end, mut left) = (from + self.link.kernels(), bytes);
        let mut first = None;
        while let Some(next) = self.ring(tier).reach(from, end, 1).filter(|_| left > 0) {
            first.get_or_insert(next - 1);
            left -= self.book(tier, next - 1, left);
        }
        first.unwrap_or(from)
    }

    /// Books as late as possible up to a position.
    pub(super) fn book_to(&mut self, tier: Tier, to: usize, bytes: u64) {
        // A turn back lies where it lay a turn before.
        let (to, mut left) = (to + self.link.kernels(), bytes);
        while let Some(at) = self.ring(tier).reach_back(0, to, 1).filter(|_| left > 0) {
            left -= self.book(tier, at, left);
        }
    }

    fn book(&mut self, tier: Tier, at: usize, bytes: u64) -> u64 {
        let bytes = bytes.min(self.ring(tier).at(at));
        self.link.take(at, bytes);
        match (&mut self.flash, tier) {
            (Some(flash), Tier::Flash) => flash.take(at, bytes),
            _ => self.bound_flash(at),
        }
        bytes
    }

    fn bound_flash(&mut self, at: usize) {
        if let Some(flash) = &mut self.flash {
            flash.take(at, flash.at(at).saturating_sub(self.link.at(at)));
        }
    }

    fn ring(&self, tier: Tier) -> &Ring {
        match (&self.flash, tier) {
            (Some(flash), Tier::Flash) => flash,
            _ => &self.link,
        }
    }
}

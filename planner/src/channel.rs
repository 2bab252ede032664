//! Capacity of the links while each kernel runs, less bookings, for one direction.

use trace::Iteration;

use super::{Link, Tier, ring::Ring};

/// Capacity of one direction. Transfers to and from flash cross the host's link as well.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    link: Ring,
    /// At most the capacity of the link at each position.
    flash: Option<Ring>,
}

impl Channel {
    pub(super) fn of(iteration: &Iteration, link: &Link, flash: Option<&Link>) -> Self {
        let capacity = |link: &Link| {
            let kernels = iteration.kernels().values().iter();
            Ring::of(kernels.map(|kernel| link.carried_bytes(kernel.duration_ns)).collect())
        };
        let mut channel = Self { link: capacity(link), flash: flash.map(capacity) };
        (0..iteration.kernels().len()).for_each(|kernel| channel.clamp_flash(kernel));
        channel
    }

    /// The first end of a stretch from `from` on with capacity for these bytes, if it is not after
    /// `to`.
    pub(super) fn earliest_end(&self, tier: Tier, from: usize, to: usize, bytes: u64) -> Option<usize> {
        self.ring(tier).earliest_end(from, to, bytes)
    }

    /// The last begin of a stretch up to `to` with capacity for these bytes, if it is not before
    /// `from`.
    pub(super) fn latest_begin(&self, tier: Tier, from: usize, to: usize, bytes: u64) -> Option<usize> {
        self.ring(tier).latest_begin(from, to, bytes)
    }

    /// Whether no capacity is left between two positions.
    pub(super) fn is_full(&self, tier: Tier, from: usize, to: usize) -> bool {
        self.ring(tier).sum(from, to) == 0
    }

    /// Books as early as possible from a position on; returns the first booked position.
    pub(super) fn book_from(&mut self, tier: Tier, from: usize, bytes: u64) -> usize {
        let (end, mut left) = (from + self.link.kernels(), bytes);
        let mut first = None;
        while let Some(next) = self.ring(tier).earliest_end(from, end, 1).filter(|_| left > 0) {
            first.get_or_insert(next - 1);
            left -= self.book(tier, next - 1, left);
        }
        first.unwrap_or(from)
    }

    /// Books as late as possible up to a position.
    pub(super) fn book_to(&mut self, tier: Tier, to: usize, bytes: u64) {
        // A position one turn earlier is the same kernel.
        let (to, mut left) = (to + self.link.kernels(), bytes);
        while let Some(at) = self.ring(tier).latest_begin(0, to, 1).filter(|_| left > 0) {
            left -= self.book(tier, at, left);
        }
    }

    fn book(&mut self, tier: Tier, at: usize, bytes: u64) -> u64 {
        let bytes = bytes.min(self.ring(tier).at(at));
        self.link.subtract(at, bytes);
        match (&mut self.flash, tier) {
            (Some(flash), Tier::Flash) => flash.subtract(at, bytes),
            _ => self.clamp_flash(at),
        }
        bytes
    }

    fn clamp_flash(&mut self, at: usize) {
        if let Some(flash) = &mut self.flash {
            flash.subtract(at, flash.at(at).saturating_sub(self.link.at(at)));
        }
    }

    fn ring(&self, tier: Tier) -> &Ring {
        match (&self.flash, tier) {
            (Some(flash), Tier::Flash) => flash,
            _ => &self.link,
        }
    }
}

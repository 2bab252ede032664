//! Prefetch distance ahead of a walk, and the distance between tripwires at which the walk is seen again.
//!
//! Of `frames` blocks that the process has at the GPU, `between` lie from one tripwire to the next, and `lead` blocks are still ahead of the walk when it comes
//! to one: enough for it not to wait while more is brought. How many that takes depends on how fast the walk is, and how soon uvmd sees it and the driver
//! answers. So where the walk is faster than what is brought, the lead grows, and where it never is, it shrinks a little: what is not needed for it is kept.

/// From one tripwire to the next, of what the process has. Further apart they cost fewer faults, and leave less to be kept.
const BETWEEN: (u64, u64) = (1, 2);
/// And no more than 1 GiB: its fault is nothing beside that, and a slow walk is seen as well.
const BETWEEN_MAX_BLOCKS: u64 = 512;
/// This part of what the process has is brought at once: while it is on its way, nobody looks at the walk...
const AT_ONCE: (u64, u64) = (1, 64);
/// ...but no less than so many blocks.
const AT_ONCE_MIN_BLOCKS: u64 = 16;
/// The lead grows and shrinks by this part of what the process has.
const STEP: (u64, u64) = (1, 16);
/// Tripwires hit in a row after which the lead shrinks.
const STEADY: u32 = 16;
/// Blocks behind a walk that are still in use, or were prefetched late.
const BEHIND_BLOCKS: u64 = 3;
/// The least lead: what is used at once, and what comes next.
const LEAD_MIN_BLOCKS: u64 = 2;

/// Pace of a walk, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    frames: u64,
    /// No more than this is brought ahead.
    ahead_max: u64,
    lead: u64,
    /// Tripwires that the walk came to since it was faster.
    met: u32,
}

impl Pace {
    pub(crate) fn new(frames: u64, ahead_max: u64) -> Self {
        let pace = Self { frames, ahead_max, lead: LEAD_MIN_BLOCKS, met: 0 };
        Self { lead: pace.step().max(LEAD_MIN_BLOCKS), ..pace }
    }

    /// The process has so many by now.
    pub(crate) const fn fits(&mut self, frames: u64) {
        self.frames = frames;
    }

    /// Distance from one tripwire to the next.
    pub(crate) fn between(&self) -> u64 {
        (self.frames * BETWEEN.0 / BETWEEN.1).min(BETWEEN_MAX_BLOCKS).min(self.ahead_max / 2).max(1)
    }

    /// Maximum prefetched at an interval.
    pub(crate) fn at_once(&self) -> u64 {
        (self.frames * AT_ONCE.0 / AT_ONCE.1).max(AT_ONCE_MIN_BLOCKS)
    }

    /// Prefetch distance ahead of the walk.
    pub(crate) fn ahead(&self) -> u64 {
        let most = self.frames.saturating_sub(BEHIND_BLOCKS).min(self.ahead_max);
        self.between().saturating_add(self.lead).min(most)
    }

    /// Blocks that the walk needs, with those behind it.
    pub(crate) fn needs(&self) -> u64 {
        self.ahead().saturating_add(BEHIND_BLOCKS)
    }

    /// The walk came to a tripwire.
    pub(crate) fn met(&mut self) {
        self.met = self.met.saturating_add(1);
        if self.met >= STEADY {
            self.met = 0;
            self.lead = self.lead.saturating_sub(self.step()).max(LEAD_MIN_BLOCKS);
        }
    }

    /// The walk was faster than what is brought.
    pub(crate) fn overtaken(&mut self) {
        self.met = 0;
        self.lead = self.lead.saturating_add(self.step()).min(self.frames);
    }

    fn step(&self) -> u64 {
        (self.frames * STEP.0 / STEP.1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_that_is_faster_gets_more_ahead_until_all_is_ahead_of_it() {
        let mut pace = Pace::new(15, u64::MAX);
        assert_eq!((pace.between(), pace.ahead(), pace.needs()), (7, 9, 12));
        pace.overtaken();
        assert_eq!((pace.between(), pace.ahead()), (7, 10));
        (0..100).for_each(|_| pace.overtaken());
        assert_eq!((pace.between(), pace.ahead(), pace.needs()), (7, 12, 15));
    }

    #[test]
    fn one_that_never_is_gets_less_and_the_rest_is_kept() {
        let mut pace = Pace::new(15, u64::MAX);
        (0..3).for_each(|_| pace.overtaken());
        (0..STEADY).for_each(|_| pace.met());
        assert_eq!(pace.ahead(), 11);
        (0..1000).for_each(|_| pace.met());
        assert_eq!(pace.ahead(), 9, "no less than what is used next");
    }

    #[test]
    fn steps_are_as_large_as_the_memory() {
        let mut pace = Pace::new(32_000, u64::MAX);
        assert_eq!((pace.between(), pace.ahead(), pace.at_once()), (512, 2512, 500));
        pace.overtaken();
        assert_eq!(pace.ahead(), 4512);
    }

    #[test]
    fn no_more_is_ahead_than_is_wanted() {
        let mut pace = Pace::new(15, 4);
        (0..10).for_each(|_| pace.overtaken());
        assert_eq!((pace.ahead(), pace.between()), (4, 2));
    }
}

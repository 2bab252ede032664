//! Prefetch distance ahead of a walk, and the distance between tripwires, which show its position.
//!
//! The process has `frames` blocks at the GPU. Tripwires are `tripwire_spacing_blocks` apart. When
//! the walk reaches a tripwire, `lead_blocks` blocks are still prefetched ahead of it, so that it does not
//! wait for the next prefetches. The necessary lead depends on the speed of the walk and on the
//! latency of uvmd and the driver. It therefore grows when the walk overtakes the prefetches, and
//! otherwise shrinks slowly, because memory that the lead does not need is retained.

/// Distance between tripwires, as a share of the process's blocks. A larger distance costs fewer
/// faults and leaves less memory for retained blocks.
const TRIPWIRE_SPACING: (u64, u64) = (1, 2);
/// Maximum distance between tripwires: 1 GiB. One fault per GiB is negligible, and a slow walk is
/// still observed.
const TRIPWIRE_SPACING_MAX_BLOCKS: u64 = 512;
/// Maximum prefetched at an interval, as a share of the process's blocks. The walk is not observed
/// during the migration.
const PREFETCH_SHARE: (u64, u64) = (1, 64);
/// Lower bound of that maximum.
const PREFETCH_MIN_BLOCKS: u64 = 16;
/// Increment of the lead, as a share of the process's blocks.
const LEAD_STEP: (u64, u64) = (1, 16);
/// Consecutive tripwires after which the lead shrinks.
const STEADY_TRIPWIRES: u32 = 16;
/// Blocks behind a walk that are still in use, or were prefetched late.
const BEHIND_BLOCKS: u64 = 3;
/// Minimum lead: the block in use, and the next one.
const LEAD_MIN_BLOCKS: u64 = 2;

/// Pace of a walk, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Blocks that the process has at the GPU.
    frames: u64,
    /// Maximum prefetch distance, in blocks.
    prefetch_distance_max_blocks: u64,
    /// Blocks still prefetched ahead of the walk when it reaches a tripwire.
    lead_blocks: u64,
    /// Tripwires reached since the walk last overtook the prefetches.
    tripwires: u32,
}

impl Pace {
    pub(crate) fn new(frames: u64, prefetch_distance_max_blocks: u64) -> Self {
        let pace = Self { frames, prefetch_distance_max_blocks, lead_blocks: LEAD_MIN_BLOCKS, tripwires: 0 };
        Self { lead_blocks: pace.lead_step_blocks().max(LEAD_MIN_BLOCKS), ..pace }
    }

    /// Sets the number of blocks that the process has at the GPU.
    pub(crate) const fn set_frames(&mut self, frames: u64) {
        self.frames = frames;
    }

    /// Distance from one tripwire to the next, in blocks.
    pub(crate) fn tripwire_spacing_blocks(&self) -> u64 {
        (self.frames * TRIPWIRE_SPACING.0 / TRIPWIRE_SPACING.1)
            .min(TRIPWIRE_SPACING_MAX_BLOCKS)
            .min(self.prefetch_distance_max_blocks / 2)
            .max(1)
    }

    /// Maximum blocks prefetched at an interval.
    pub(crate) fn prefetch_max_blocks(&self) -> u64 {
        (self.frames * PREFETCH_SHARE.0 / PREFETCH_SHARE.1).max(PREFETCH_MIN_BLOCKS)
    }

    /// Prefetch distance ahead of the walk, in blocks.
    pub(crate) fn prefetch_distance_blocks(&self) -> u64 {
        let most = self.frames.saturating_sub(BEHIND_BLOCKS).min(self.prefetch_distance_max_blocks);
        self.tripwire_spacing_blocks().saturating_add(self.lead_blocks).min(most)
    }

    /// Blocks that the walk needs, including those behind it.
    pub(crate) fn needed_blocks(&self) -> u64 {
        self.prefetch_distance_blocks().saturating_add(BEHIND_BLOCKS)
    }

    /// Records that the walk reached a tripwire.
    pub(crate) fn record_tripwire(&mut self) {
        self.tripwires = self.tripwires.saturating_add(1);
        if self.tripwires >= STEADY_TRIPWIRES {
            self.tripwires = 0;
            self.lead_blocks = self.lead_blocks.saturating_sub(self.lead_step_blocks()).max(LEAD_MIN_BLOCKS);
        }
    }

    /// Records that the walk overtook the prefetches.
    pub(crate) fn record_overtaken(&mut self) {
        self.tripwires = 0;
        self.lead_blocks = self.lead_blocks.saturating_add(self.lead_step_blocks()).min(self.frames);
    }

    fn lead_step_blocks(&self) -> u64 {
        (self.frames * LEAD_STEP.0 / LEAD_STEP.1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_distance_grows_when_overtaken() {
        let mut pace = Pace::new(15, u64::MAX);
        assert_eq!((pace.tripwire_spacing_blocks(), pace.prefetch_distance_blocks(), pace.needed_blocks()), (7, 9, 12));
        pace.record_overtaken();
        assert_eq!((pace.tripwire_spacing_blocks(), pace.prefetch_distance_blocks()), (7, 10));
        (0..100).for_each(|_| pace.record_overtaken());
        assert_eq!(
            (pace.tripwire_spacing_blocks(), pace.prefetch_distance_blocks(), pace.needed_blocks()),
            (7, 12, 15)
        );
    }

    #[test]
    fn prefetch_distance_shrinks_when_never_overtaken() {
        let mut pace = Pace::new(15, u64::MAX);
        (0..3).for_each(|_| pace.record_overtaken());
        (0..STEADY_TRIPWIRES).for_each(|_| pace.record_tripwire());
        assert_eq!(pace.prefetch_distance_blocks(), 11);
        (0..1000).for_each(|_| pace.record_tripwire());
        assert_eq!(pace.prefetch_distance_blocks(), 9, "no less than what is used next");
    }

    #[test]
    fn prefetch_distance_scales_with_memory_size() {
        let mut pace = Pace::new(32_000, u64::MAX);
        assert_eq!(
            (pace.tripwire_spacing_blocks(), pace.prefetch_distance_blocks(), pace.prefetch_max_blocks()),
            (512, 2512, 500)
        );
        pace.record_overtaken();
        assert_eq!(pace.prefetch_distance_blocks(), 4512);
    }

    #[test]
    fn prefetch_distance_is_bounded_by_its_parameter() {
        let mut pace = Pace::new(15, 4);
        (0..10).for_each(|_| pace.record_overtaken());
        assert_eq!((pace.prefetch_distance_blocks(), pace.tripwire_spacing_blocks()), (4, 2));
    }
}

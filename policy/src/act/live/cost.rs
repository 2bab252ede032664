//! Cost of the same work with and without a proposal: bytes over the link, and the modelled time of
//! these bytes and of fault batches.

use crate::act::limits::{BATCH_SECONDS, EQUAL_TIME_TOLERANCE, LINK_BYTES_PER_SECOND};

/// Cost of the same work, relative to the driver alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RelativeCost {
    /// Relative modelled time of the link and of fault batches, see [`seconds`].
    pub(crate) time: f64,
    /// Relative bytes over the link.
    pub(crate) link_bytes: f64,
}

impl RelativeCost {
    /// Cost without savings.
    pub(crate) const UNCHANGED: Self = Self { time: 1.0, link_bytes: 1.0 };

    /// Converts a cost relative to `before` into one relative to the driver alone.
    pub(crate) const fn of(self, before: Self) -> Self {
        Self { time: self.time * before.time, link_bytes: self.link_bytes * before.link_bytes }
    }

    /// Whether the time is similar to `time`, and shorter than that of the driver alone.
    pub(crate) fn is_as_fast_as(self, time: f64) -> bool {
        self.time < 1.0 && self.time <= time * (1.0 + EQUAL_TIME_TOLERANCE)
    }
}

/// Modelled time in seconds: bytes at the bandwidth of the link, and batches at their duration.
pub(crate) fn seconds(link_bytes: u64, batches: u64) -> f64 {
    link_bytes as f64 / LINK_BYTES_PER_SECOND + batches as f64 * BATCH_SECONDS
}

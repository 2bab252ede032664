//! Cost of the same work with a plan and without: bytes over the link, and the time for them and
//! for fault batches.

use super::limits::{AS_FAST, BATCH_SECONDS, LINK_BYTES_PER_SECOND};

/// Cost left for the same work, as parts of that with the driver alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Left {
    /// Part of the modelled time for the link and for fault batches: see [`seconds`].
    pub(crate) time: f64,
    /// Part of the bytes over the link.
    pub(crate) link_bytes: f64,
}

impl Left {
    /// Cost without savings.
    pub(crate) const ALL: Self = Self { time: 1.0, link_bytes: 1.0 };

    /// The same cost relative to the driver alone, if this one is relative to `before`.
    pub(crate) const fn of(self, before: Self) -> Self {
        Self { time: self.time * before.time, link_bytes: self.link_bytes * before.link_bytes }
    }

    /// Whether this is about as fast as a cost with this time.
    pub(crate) fn is_as_fast_as(self, time: f64) -> bool {
        self.time < 1.0 && self.time <= time * (1.0 + AS_FAST)
    }
}

/// Modelled time: bytes at the link's bandwidth, and fault batches at their duration.
pub(crate) fn seconds(link_bytes: u64, batches: u64) -> f64 {
    link_bytes as f64 / LINK_BYTES_PER_SECOND + batches as f64 * BATCH_SECONDS
}

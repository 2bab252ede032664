//! Permission to act.

use core::sync::atomic::{AtomicBool, Ordering};

use call_ring::{Memory, Mode};

/// Permission to act. uvmd grants it by the mode. It is revoked for good once the program has asked
/// for a system call filter, which may forbid calls of the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permission {
    pub(crate) memory: Memory<'static>,
    pub(crate) is_filter_requested: &'static AtomicBool,
}

impl Permission {
    /// Permission by the mode of this memory.
    pub(crate) const fn new(memory: Memory<'static>, is_filter_requested: &'static AtomicBool) -> Self {
        Self { memory, is_filter_requested }
    }

    /// Whether the helper may act.
    pub(crate) fn is_granted(&self) -> bool {
        self.memory.mode() == Mode::Act && !self.is_revoked()
    }

    /// Whether permission has been revoked, regardless of the mode.
    pub(crate) fn is_revoked(&self) -> bool {
        self.is_filter_requested.load(Ordering::Relaxed)
    }
}

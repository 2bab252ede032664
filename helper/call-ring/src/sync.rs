//! Atomic words: the processor's, or loom's in `models`.

#[cfg(not(all(test, loom)))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

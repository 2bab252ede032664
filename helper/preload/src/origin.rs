//! What the process began with.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Filters of system calls; [`UNKNOWN`] while the helper is off, or where the kernel reports none.
static FILTERS: AtomicU64 = AtomicU64::new(UNKNOWN);
const UNKNOWN: u64 = u64::MAX;

/// The first thread, as `pthread_self` names it, or 0.
static FIRST_THREAD: AtomicUsize = AtomicUsize::new(0);

/// Filters of system calls; `None` if they are not known.
pub(crate) fn filters() -> Option<u64> {
    Some(FILTERS.load(Ordering::Relaxed)).filter(|filters| *filters != UNKNOWN)
}

/// Sets the filters.
pub(crate) fn set_filters(filters: Option<u64>) {
    FILTERS.store(filters.unwrap_or(UNKNOWN), Ordering::Relaxed);
}

/// The first thread; 0 if it is not known.
pub(crate) fn first_thread() -> usize {
    FIRST_THREAD.load(Ordering::Relaxed)
}

/// Sets the first thread.
pub(crate) fn set_first_thread(thread: Option<usize>) {
    FIRST_THREAD.store(thread.unwrap_or(0), Ordering::Relaxed);
}

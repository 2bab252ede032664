//! State of the process at its start.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Count of system call filters; [`UNKNOWN`] while the helper is off, or if the kernel does not
/// report it.
static FILTERS: AtomicU64 = AtomicU64::new(UNKNOWN);
const UNKNOWN: u64 = u64::MAX;

/// The first thread, as a `pthread_t`, or 0.
static FIRST_THREAD: AtomicUsize = AtomicUsize::new(0);

/// Count of system call filters; `None` if unknown.
pub(crate) fn filters() -> Option<u64> {
    Some(FILTERS.load(Ordering::Relaxed)).filter(|filters| *filters != UNKNOWN)
}

/// Sets the count of filters.
pub(crate) fn set_filters(filters: Option<u64>) {
    FILTERS.store(filters.unwrap_or(UNKNOWN), Ordering::Relaxed);
}

/// The first thread; 0 if unknown.
pub(crate) fn first_thread() -> usize {
    FIRST_THREAD.load(Ordering::Relaxed)
}

/// Sets the first thread.
pub(crate) fn set_first_thread(thread: Option<usize>) {
    FIRST_THREAD.store(thread.unwrap_or(0), Ordering::Relaxed);
}

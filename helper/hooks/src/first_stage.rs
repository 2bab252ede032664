//! What the first stage of the helper hands over.

use core::sync::atomic::{AtomicBool, Ordering};

use syscalls::filter;

use crate::{libc::Dlsym, thread::Thread};

/// What the first stage hands over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstStage {
    /// Finds functions by name.
    pub(crate) dlsym: Dlsym,
    /// The thread that the process began with; 0 if it is not known.
    pub(crate) first_thread: Thread,
    /// Whether the program has had the C library install a filter of system calls.
    pub(crate) is_filter_requested: &'static AtomicBool,
}

impl FirstStage {
    /// Filters of system calls of the calling thread. `None` if they are not known, or may forbid to ask.
    pub(crate) fn filters(&self) -> Option<u64> {
        if self.is_filter_requested.load(Ordering::Relaxed) { None } else { filter::count() }
    }
}

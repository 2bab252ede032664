//! Arguments from the first stage of the helper.

use core::sync::atomic::{AtomicBool, Ordering};

use syscalls::filter;

use crate::{libc::Dlsym, thread::Thread};

/// Arguments from the first stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstStage {
    /// Finds functions by name.
    pub(crate) dlsym: Dlsym,
    /// The thread that the process began with; 0 if unknown.
    pub(crate) first_thread: Thread,
    /// Whether the program has asked the C library to install a system call filter.
    pub(crate) is_filter_requested: &'static AtomicBool,
}

impl FirstStage {
    /// Count of the calling thread's system call filters; `None` if unknown, or if a filter may
    /// forbid the query.
    pub(crate) fn filters(&self) -> Option<u64> {
        if self.is_filter_requested.load(Ordering::Relaxed) { None } else { filter::count() }
    }
}

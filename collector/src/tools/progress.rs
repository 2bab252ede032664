//! Process that a search is at, for the collector to see that it hangs.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Process that a search is at.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<Mutex<Option<(u32, u32, Instant)>>>);

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Option<(u32, u32, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with a process of a user.
    pub(super) fn begin(&self, pid: u32, uid: u32) {
        self.begin_at(pid, uid, Instant::now());
    }

    pub(super) fn begin_at(&self, pid: u32, uid: u32, at: Instant) {
        *self.lock() = Some((pid, uid, at));
    }

    pub(super) fn end(&self) {
        *self.lock() = None;
    }

    /// Process, and its user, that it has been at for longer than this.
    pub(super) fn stuck(&self, longer_than: Duration) -> Option<(u32, u32)> {
        self.lock().filter(|(_, _, at)| at.elapsed() > longer_than).map(|(pid, uid, _)| (pid, uid))
    }
}

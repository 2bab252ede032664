//! Locks for submitting commands: a process has one place for a command, and the workers of several
//! GPUs may act on it at the same time.

use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Processes whose lock a worker holds, for the workers of all GPUs.
static LOCKS: Locks = Locks { held: Mutex::new(BTreeSet::new()), released: Condvar::new() };

struct Locks {
    held: Mutex<BTreeSet<u32>>,
    released: Condvar,
}

impl Locks {
    fn held(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lock of a worker on the commands of a process, until it is dropped.
#[derive(Debug)]
pub(super) struct CommandLock(u32);

impl CommandLock {
    /// Waits for the lock of a process, at most this long; `None` if another worker holds it.
    pub(super) fn acquire(pid: u32, at_most: Duration) -> Option<Self> {
        let is_taken = |held: &mut BTreeSet<u32>| held.contains(&pid);
        let waited = LOCKS.released.wait_timeout_while(LOCKS.held(), at_most, is_taken);
        let (mut held, _) = waited.unwrap_or_else(PoisonError::into_inner);
        held.insert(pid).then(|| Self(pid))
    }
}

impl Drop for CommandLock {
    fn drop(&mut self) {
        LOCKS.held().remove(&self.0);
        LOCKS.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn one_worker_at_a_time_holds_the_lock_of_a_process() {
        // No processes have these ids.
        let [one, other] = [u32::MAX, u32::MAX - 1];
        let lock = CommandLock::acquire(one, Duration::ZERO).unwrap();
        assert!(CommandLock::acquire(one, Duration::from_millis(1)).is_none());
        assert!(CommandLock::acquire(other, Duration::ZERO).is_some());
        thread::scope(|scope| {
            let next = scope.spawn(|| CommandLock::acquire(one, Duration::from_mins(10)).is_some());
            drop(lock);
            assert!(next.join().unwrap());
        });
    }
}

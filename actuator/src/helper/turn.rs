//! Turns of submitting commands: a process has one place for a command, and the workers of several
//! GPUs may act on it at the same time.

use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Processes with a worker whose turn it is, for the workers of all GPUs.
static TURNS: Turns = Turns { taken: Mutex::new(BTreeSet::new()), ended: Condvar::new() };

struct Turns {
    taken: Mutex<BTreeSet<u32>>,
    ended: Condvar,
}

impl Turns {
    fn taken(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Turn of a worker, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn(u32);

impl Turn {
    /// Waits for a turn about a process, at most this long; `None` if others have theirs.
    pub(super) fn wait(pid: u32, at_most: Duration) -> Option<Self> {
        let is_taken = |taken: &mut BTreeSet<u32>| taken.contains(&pid);
        let waited = TURNS.ended.wait_timeout_while(TURNS.taken(), at_most, is_taken);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        taken.insert(pid).then(|| Self(pid))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURNS.taken().remove(&self.0);
        TURNS.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn one_worker_at_a_time_has_a_turn_about_a_process() {
        // No processes have these ids.
        let [one, other] = [u32::MAX, u32::MAX - 1];
        let turn = Turn::wait(one, Duration::ZERO).unwrap();
        assert!(Turn::wait(one, Duration::from_millis(1)).is_none());
        assert!(Turn::wait(other, Duration::ZERO).is_some());
        thread::scope(|scope| {
            let next = scope.spawn(|| Turn::wait(one, Duration::from_mins(10)).is_some());
            drop(turn);
            assert!(next.join().unwrap());
        });
    }
}

//! Lock of a table, for changes that take less time than a system call.
//!
//! A waiting thread spins, then sleeps, and gives up after [`ATTEMPTS_MAX`] attempts: the holder
//! may have exited during its change, or be starved by waiters of a higher priority.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::system;

/// Attempts before a waiting thread gives up.
const ATTEMPTS_MAX: usize = 2_000;
/// Number of those attempts before which the thread spins.
const SPINS_MAX: usize = 200;
/// Sleep before each of the others.
const SLEEP_NS: u64 = 20_000;

/// Lock in a word of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock(&'static AtomicU64);

impl Lock {
    /// Creates a lock from a word that is 0.
    pub(crate) const fn new(word: &'static AtomicU64) -> Self {
        Self(word)
    }

    /// Makes a change under the lock; `None` if another thread does not release it.
    pub(crate) fn with<T>(self, change: impl FnOnce() -> T) -> Option<T> {
        let mut attempts = 0;
        while self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            if attempts >= ATTEMPTS_MAX {
                return None;
            }
            attempts += 1;
            if attempts <= SPINS_MAX {
                core::hint::spin_loop();
            } else {
                system::sleep(SLEEP_NS);
            }
        }
        let result = change();
        self.0.store(0, Ordering::Release);
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_give_up_if_the_holder_never_releases() {
        static WORD: AtomicU64 = AtomicU64::new(0);
        let lock = Lock::new(&WORD);
        assert_eq!(lock.with(|| lock.with(|| ())), Some(None));
        assert_eq!(lock.with(|| 5), Some(5));
    }
}

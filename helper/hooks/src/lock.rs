//! Lock of a table, for changes that take less time than a system call.
//!
//! A waiting thread yields, and gives up after [`TURNS_MAX`]: the holder may have ended within its
//! change, or have a lower priority than those that wait.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::system;

/// Attempts before a waiting thread gives up.
const TURNS_MAX: usize = 2_000;
/// Attempts of these that spin.
const SPINS: usize = 200;
/// Sleep before each other attempt.
const TURN_NS: u64 = 20_000;

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
        let mut turns = 0;
        while self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            if turns >= TURNS_MAX {
                return None;
            }
            turns += 1;
            if turns <= SPINS {
                core::hint::spin_loop();
            } else {
                system::sleep(TURN_NS);
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
    fn nobody_waits_for_ever_for_a_thread_that_has_ended_within_its_change() {
        static WORD: AtomicU64 = AtomicU64::new(0);
        let lock = Lock::new(&WORD);
        assert_eq!(lock.with(|| lock.with(|| ())), Some(None));
        assert_eq!(lock.with(|| 5), Some(5));
    }
}

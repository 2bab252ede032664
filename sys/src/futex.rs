//! Wake-ups of waiters for words in memory that processes share.
//!
//! The kernel compares 32 bits: the first half of a word of 64, by its address.

use std::sync::atomic::AtomicU64;
#[cfg(any(test, feature = "fake"))]
use std::time::Duration;

/// Longest wait of one call, so that no duration is too long for the kernel.
#[cfg(any(test, feature = "fake"))]
const WAIT_MAX: Duration = Duration::from_hours(1);

/// Waits as the helper does until the word is woken, its first half is not `value`, or the time is over. It may
/// also return for no reason: the caller reads the word afterwards.
#[cfg(any(test, feature = "fake"))]
#[expect(unsafe_code, reason = "a system call without a safe wrapper")]
pub fn wait(word: &AtomicU64, value: u32, at_most: Duration) {
    let at_most = at_most.min(WAIT_MAX);
    let mut timeout = libc::timespec { tv_sec: 0, tv_nsec: at_most.subsec_nanos().into() };
    timeout.tv_sec = libc::time_t::try_from(at_most.as_secs()).unwrap_or_default();
    // SAFETY: reads the first half of a word that lives, and the time; writes nothing. Without
    // FUTEX_PRIVATE_FLAG, the word is that of all processes that map the memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const timeout) };
}

/// Wakes all waiters of the word.
#[expect(unsafe_code, reason = "a system call without a safe wrapper")]
pub fn wake(word: &AtomicU64) {
    // SAFETY: takes an address, and neither reads nor writes the word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, libc::c_int::MAX) };
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::Ordering::{Acquire, Release},
        thread,
        time::Instant,
    };

    use super::*;

    const LONG: Duration = Duration::from_mins(10);

    #[test]
    fn wait_ends_with_its_time_or_at_once_if_the_word_has_changed() {
        let word = AtomicU64::new(7 << 32 | 1);
        let begun = Instant::now();
        wait(&word, 2, LONG);
        wait(&word, 1, Duration::from_millis(10));
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn waiting_thread_is_woken() {
        let word = AtomicU64::new(1);
        thread::scope(|scope| {
            scope.spawn(|| {
                word.store(2, Release);
                wake(&word);
            });
            while word.load(Acquire) == 1 {
                wait(&word, 1, LONG);
            }
        });
    }
}

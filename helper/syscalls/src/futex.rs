//! Wait and wake-up by futex. C libraries implement the waits of threads by the same system call, so that
//! a filter that permits threads permits it.

#![expect(unsafe_code, reason = "system calls")]

use core::sync::atomic::AtomicU64;

use crate::{Errno, call};

const FUTEX: usize = 202;

/// Scope of a futex.
#[derive(Clone, Copy, Debug)]
pub enum Sharing {
    /// Threads of this process.
    Private,
    /// Threads of several processes.
    Shared,
}

impl Sharing {
    /// Operation with the flag of this scope, by linux/futex.h.
    const fn operation(self, operation: usize) -> usize {
        const PRIVATE: usize = 128;
        match self {
            Self::Private => operation | PRIVATE,
            Self::Shared => operation,
        }
    }
}

/// Result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// A wake-up, a signal, or another value: the caller checks its condition again.
    Woken,
    /// The timeout has expired.
    TimedOut,
    /// The kernel refuses to wait.
    Failed,
}

/// Waits until a wake-up of the word, for at most `time_ns`. Returns at once if the word's lower half is
/// not `expected`.
pub fn wait(word: &AtomicU64, expected: u32, sharing: Sharing, time_ns: u64) -> WaitResult {
    const WAIT: usize = 0;
    // By asm-generic/errno.h: `EINTR`, `EAGAIN`, and `ETIMEDOUT` below.
    const WOKEN: [Errno; 2] = [Errno(4), Errno(11)];
    const TIMED_OUT: Errno = Errno(110);
    let time = [time_ns / 1_000_000_000, time_ns % 1_000_000_000];
    let arguments =
        [word.as_ptr() as usize, sharing.operation(WAIT), expected as usize, (&raw const time) as usize, 0, 0];
    // SAFETY: the kernel reads the word, and a timespec of two words.
    match unsafe { call(FUTEX, arguments) } {
        Err(TIMED_OUT) => WaitResult::TimedOut,
        Err(error) if !WOKEN.contains(&error) => WaitResult::Failed,
        _ => WaitResult::Woken,
    }
}

/// Wakes all waiters of a word.
pub fn wake(word: &AtomicU64, sharing: Sharing) {
    const WAKE: usize = 1;
    const ALL: usize = i32::MAX as usize;
    // SAFETY: the kernel uses the address only as a key.
    let _ = unsafe { call(FUTEX, [word.as_ptr() as usize, sharing.operation(WAKE), ALL, 0, 0, 0]) };
}

/// Sleeps for this time, or less if a signal arrives.
pub fn sleep(time_ns: u64) {
    let word = AtomicU64::new(0);
    wait(&word, 0, Sharing::Private, time_ns);
}

//! Waits at words, by the one call that threads of C libraries wait with, too: a filter of system calls
//! that permits threads permits it.

#![expect(unsafe_code, reason = "system calls")]

use core::sync::atomic::AtomicU64;

use crate::{Errno, call};

const FUTEX: usize = 202;

/// Who shares a word that is waited at.
#[derive(Clone, Copy, Debug)]
pub enum Sharing {
    /// Threads of this process.
    Private,
    /// Other processes, too.
    Shared,
}

impl Sharing {
    /// Operation on a word, of linux/futex.h.
    const fn operation(self, operation: usize) -> usize {
        const PRIVATE: usize = 128;
        match self {
            Self::Private => operation | PRIVATE,
            Self::Shared => operation,
        }
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The word was woken, or may have been.
    Woken,
    /// The time is up.
    TimedOut,
    /// The kernel lets nobody wait.
    Failed,
}

/// Waits until a word is woken, for this time at most, unless its first half is another.
pub fn wait(word: &AtomicU64, half: u32, sharing: Sharing, time_ns: u64) -> Waited {
    const WAIT: usize = 0;
    // Of asm-generic/errno.h: interrupted, another half, and the time.
    const WOKEN: [Errno; 2] = [Errno(4), Errno(11)];
    const TIMED_OUT: Errno = Errno(110);
    let time = [time_ns / 1_000_000_000, time_ns % 1_000_000_000];
    let arguments = [word.as_ptr() as usize, sharing.operation(WAIT), half as usize, (&raw const time) as usize, 0, 0];
    // SAFETY: reads the word and a timespec of two words.
    match unsafe { call(FUTEX, arguments) } {
        Err(TIMED_OUT) => Waited::TimedOut,
        Err(error) if !WOKEN.contains(&error) => Waited::Failed,
        _ => Waited::Woken,
    }
}

/// Wakes all that wait at a word.
pub fn wake(word: &AtomicU64, sharing: Sharing) {
    const WAKE: usize = 1;
    const ALL: usize = i32::MAX as usize;
    // SAFETY: takes an address as a name alone.
    let _ = unsafe { call(FUTEX, [word.as_ptr() as usize, sharing.operation(WAKE), ALL, 0, 0, 0]) };
}

/// Sleeps.
pub fn sleep(time_ns: u64) {
    let nobody = AtomicU64::new(0);
    wait(&nobody, 0, Sharing::Private, time_ns);
}

//! Gate between the program and the helper's thread. It admits either calls of the program that
//! change memory, advice or contexts, or one part of a command, never both.
//!
//! Calls of the program do not exclude each other, and have priority: no part begins while one is
//! within the gate, and a call waits for at most the part in progress. The helper's thread retries;
//! a command that cannot begin a part within a second is answered as not ready.
//!
//! Every wait is bounded:
//! * Within the gate, the helper's thread does not wait for the program. A call that waits holds no
//!   lock of the driver, as it waits here before it enters the driver.
//! * A call from within the part itself, as by a program's allocator that calls the driver, passes
//!   without waiting: the thread does not wait for itself.
//! * A call waits for at most 5 seconds, whatever the driver does. Then the gate is abandoned: calls
//!   pass without waiting, and no further part begins.
//! * A forked child has no helper's thread. Its gate is open, as its words are zeroed.

use crate::{
    mapping::Words,
    sync::{AtomicU64, Ordering},
    system::{self, Sharing},
    thread,
};

/// A part of a command is in progress.
const IN_PROGRESS: u64 = 1;
/// No further part begins.
const SHUT: u64 = 2;
/// Calls no longer wait.
const ABANDONED: u64 = 4;
/// Unit of the count of calls within the gate, in the upper bits.
const CALL: u64 = 8;

/// Maximum sleep of a waiting call before it checks the state again.
const WAIT_SLICE_NS: u64 = 1_000_000;
/// Limit of a call's wait, in slices: 5 s. A clock would also count time in which the process is
/// stopped.
const WAIT_SLICES_MAX: usize = 5000;

/// Maximum attempts to begin a part: a second in all.
pub(crate) const RETRIES_MAX: u32 = 10_000;
/// Interval of the attempts.
pub(crate) const RETRY_NS: u64 = 100_000;

/// Gate between calls of the program and parts of commands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    state: &'static AtomicU64,
    /// Count of ended parts, the futex that calls wait on.
    ended_parts: &'static AtomicU64,
    /// The helper's thread, whose own calls pass.
    owner: &'static AtomicU64,
}

/// Guard of a call of the program: within the gate until dropped.
#[derive(Debug)]
pub(crate) struct CallGuard(Gate);

/// Guard of a part of a command: within the gate until dropped.
#[derive(Debug)]
pub(crate) struct PartGuard(Gate);

/// Reason why a part cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeginError {
    /// A call of the program is within the gate.
    Busy,
    /// The gate is shut permanently: no further part begins.
    Shut,
}

impl Gate {
    /// Creates an open gate.
    pub(crate) fn new(words: &mut Words) -> Option<Self> {
        Some(Self { state: words.next()?, ended_parts: words.next()?, owner: words.next()? })
    }

    fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    /// Sets the calling thread as the owner: it runs the parts, and its calls pass.
    pub(crate) fn set_owner(&self) {
        self.owner.store(this_thread(), Ordering::Release);
    }

    /// Admits a call of the program, after the part in progress.
    pub(crate) fn enter(&self) -> CallGuard {
        // Before the check: no part begins from here on.
        self.state.fetch_add(CALL, Ordering::AcqRel);
        self.wait();
        CallGuard(*self)
    }

    /// Waits for the part in progress.
    fn wait(&self) {
        if self.state() & IN_PROGRESS == 0 || self.owner.load(Ordering::Acquire) == this_thread() {
            return;
        }
        for _ in 0..WAIT_SLICES_MAX {
            let ended = self.ended_parts.load(Ordering::Acquire);
            if self.state() & IN_PROGRESS == 0 || self.state() & ABANDONED != 0 {
                return;
            }
            system::wait(self.ended_parts, low(ended), Sharing::Private, WAIT_SLICE_NS);
        }
        self.state.fetch_or(SHUT | ABANDONED, Ordering::AcqRel);
    }

    /// Begins a part, if no call of the program is within the gate.
    ///
    /// # Errors
    /// Fails if a call of the program is within the gate, or if the gate is shut.
    pub(crate) fn begin(&self) -> Result<PartGuard, BeginError> {
        match self.state.compare_exchange(0, IN_PROGRESS, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(PartGuard(*self)),
            Err(state) if state & SHUT != 0 => Err(BeginError::Shut),
            Err(_) => Err(BeginError::Busy),
        }
    }

    /// Retries `is_done` for a second, until it returns true or the gate is shut.
    pub(crate) fn retry_for_one_second(&self, is_done: impl Fn() -> bool) {
        for _ in 0..RETRIES_MAX {
            if is_done() || self.is_shut() {
                break;
            }
            system::sleep(RETRY_NS);
        }
    }

    /// Whether the gate is shut for parts.
    pub(crate) fn is_shut(&self) -> bool {
        self.state() & SHUT != 0
    }

    /// Shuts the gate for parts, and waits for the part in progress.
    pub(crate) fn shut(&self) {
        self.state.fetch_or(SHUT, Ordering::AcqRel);
        self.wait();
    }
}

/// Id of the calling thread; `u64::MAX`, which is no thread's id, if it is unknown.
fn this_thread() -> u64 {
    thread::current_id().map_or(u64::MAX, u64::from)
}

#[expect(clippy::cast_possible_truncation, reason = "the half that a futex compares")]
const fn low(word: u64) -> u32 {
    word as u32
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.state.fetch_sub(CALL, Ordering::AcqRel);
    }
}

impl Drop for PartGuard {
    fn drop(&mut self) {
        let state = self.0.state.fetch_and(!IN_PROGRESS, Ordering::AcqRel);
        self.0.ended_parts.fetch_add(1, Ordering::AcqRel);
        if state & !IN_PROGRESS != 0 {
            system::wake(self.0.ended_parts, Sharing::Private);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize},
        thread,
        time::Duration,
    };

    use super::*;

    fn gate() -> Gate {
        Gate::new(&mut Words::new(crate::mapping::private(8).unwrap())).unwrap()
    }

    #[test]
    fn parts_yield_to_calls_and_calls_wait_for_the_part_in_progress() {
        let gate = gate();
        let call = gate.enter();
        let other = gate.enter();
        assert_eq!(gate.begin().unwrap_err(), BeginError::Busy);
        drop((call, other));
        let part = gate.begin().unwrap();
        let has_entered = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _call = gate.enter();
                has_entered.store(true, Ordering::SeqCst);
            });
            thread::sleep(Duration::from_millis(20));
            assert!(!has_entered.load(Ordering::SeqCst));
            drop(part);
        });
        assert!(has_entered.load(Ordering::SeqCst) && gate.begin().is_ok());
    }

    #[test]
    fn call_from_within_a_part_does_not_wait() {
        let gate = gate();
        gate.set_owner();
        let part = gate.begin().unwrap();
        drop(gate.enter());
        drop(part);
        assert!(gate.begin().is_ok());
    }

    #[test]
    fn no_part_begins_once_the_gate_is_shut() {
        let gate = gate();
        gate.shut();
        assert_eq!(gate.begin().unwrap_err(), BeginError::Shut);
        drop(gate.enter());
        assert!(gate.is_shut());
    }

    #[test]
    fn hung_part_delays_the_program_once_and_for_a_bounded_time() {
        let gate = gate();
        let part = gate.begin().unwrap();
        let start = std::time::Instant::now();
        drop(gate.enter());
        assert!(gate.is_shut());
        let (first, start) = (start.elapsed(), std::time::Instant::now());
        drop(gate.enter());
        assert!(start.elapsed() < first, "calls no longer wait");
        drop(part);
        assert_eq!(gate.begin().unwrap_err(), BeginError::Shut);
    }

    #[test]
    fn calls_and_parts_exclude_each_other() {
        let gate = gate();
        let (calls, parts) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let call = gate.enter();
                        calls.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(parts.load(Ordering::SeqCst), 0);
                        calls.fetch_sub(1, Ordering::SeqCst);
                        drop(call);
                        thread::yield_now();
                    }
                    is_done.store(true, Ordering::SeqCst);
                });
            }
            while !is_done.load(Ordering::SeqCst) {
                if let Ok(part) = gate.begin() {
                    parts.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(calls.load(Ordering::SeqCst), 0);
                    parts.fetch_sub(1, Ordering::SeqCst);
                    drop(part);
                }
            }
        });
    }
}

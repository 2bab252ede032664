//! Gate between the program and the helper's thread: either calls of the program that end what a
//! command names, or a part of a command, but not both at a time.
//!
//! The program's calls do not exclude each other, and come first: no part begins while one is
//! within the gate, and one that comes waits for no more than the part at work. The thread gives
//! way; what it does not come to is answered.
//!
//! No thread waits for ever:
//! * Within the gate, the helper's thread waits for nothing of the program's: for no lock that a
//!   call of the program holds while it waits here, since it waits before it calls the driver.
//! * A call from within the part itself, as of an allocator of the program's that calls the driver,
//!   is let through: the thread does not wait for itself.
//! * Whatever the driver does, a call waits for 5 seconds at most. Then the gate is given up:
//!   nobody waits at it any more, and no further part begins.
//! * A child that a fork makes has no such thread. Its gate is open, as its words are zeros.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{
    system::{self, Sharing},
    thread,
    zeroed::Words,
};

/// A part of a command is at work.
const IN_PROGRESS: u64 = 1;
/// No further part begins.
const SHUT: u64 = 2;
/// Nobody waits any more.
const GIVEN_UP: u64 = 4;
/// A call of the program, of which there may be many.
const CALL: u64 = 8;

/// Longest time in which a waiting call does not look by itself.
const SLICE_NS: u64 = 1_000_000;
/// Slices that a call waits, of the thread's own time and not of a clock: a process may be stopped.
const SLICES_MAX: usize = 5000;

/// Tries of what takes a turn at the gate before it is given up: a second.
pub(crate) const RETRIES_MAX: u32 = 10_000;
/// Time between two of them.
pub(crate) const RETRY_NS: u64 = 100_000;

/// Gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    state: &'static AtomicU64,
    /// Parts that have ended: what calls wait at.
    ended: &'static AtomicU64,
    /// The helper's thread.
    owner: &'static AtomicU64,
}

/// Call of the program within the gate, until this is dropped.
#[derive(Debug)]
pub(crate) struct Call(Gate);

/// Part of a command within the gate, until this is dropped.
#[derive(Debug)]
pub(crate) struct Part(Gate);

/// Reason why a part does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// A call of the program is within the gate.
    Calls,
    /// For ever.
    Shut,
}

impl Gate {
    /// Open gate.
    pub(crate) fn new(words: &mut Words) -> Option<Self> {
        Some(Self { state: words.next()?, ended: words.next()?, owner: words.next()? })
    }

    fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    /// Has calls of this thread let through: it is the one whose parts are at work.
    pub(crate) fn set_owner(&self) {
        self.owner.store(this_thread(), Ordering::Release);
    }

    /// Lets a call of the program in, behind the part at work.
    pub(crate) fn enter(&self) -> Call {
        // Before it looks: from now on, no part begins.
        self.state.fetch_add(CALL, Ordering::AcqRel);
        self.wait();
        Call(*self)
    }

    /// Waits for the part at work.
    fn wait(&self) {
        if self.state() & IN_PROGRESS == 0 || self.owner.load(Ordering::Acquire) == this_thread() {
            return;
        }
        for _ in 0..SLICES_MAX {
            let ended = self.ended.load(Ordering::Acquire);
            if self.state() & IN_PROGRESS == 0 || self.state() & GIVEN_UP != 0 {
                return;
            }
            system::wait(self.ended, low(ended), Sharing::Private, SLICE_NS);
        }
        self.state.fetch_or(SHUT | GIVEN_UP, Ordering::AcqRel);
    }

    /// Begins a part, if no call of the program is within.
    ///
    /// # Errors
    /// Otherwise, or if the gate is shut.
    pub(crate) fn begin(&self) -> Result<Part, Closed> {
        match self.state.compare_exchange(0, IN_PROGRESS, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(Part(*self)),
            Err(state) if state & SHUT != 0 => Err(Closed::Shut),
            Err(_) => Err(Closed::Calls),
        }
    }

    /// Tries something for a second, until it is done or the gate is shut.
    pub(crate) fn try_for_a_second(&self, is_done: impl Fn() -> bool) {
        for _ in 0..RETRIES_MAX {
            if is_done() || self.is_shut() {
                break;
            }
            system::sleep(RETRY_NS);
        }
    }

    /// Whether no further part begins.
    pub(crate) fn is_shut(&self) -> bool {
        self.state() & SHUT != 0
    }

    /// Shuts the gate for parts, and waits for the one at work.
    pub(crate) fn shut(&self) {
        self.state.fetch_or(SHUT, Ordering::AcqRel);
        self.wait();
    }
}

/// The calling thread; one that no other is if that is not known.
fn this_thread() -> u64 {
    thread::own_id().map_or(u64::MAX, u64::from)
}

#[expect(clippy::cast_possible_truncation, reason = "the half that a futex compares")]
const fn low(word: u64) -> u32 {
    word as u32
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.state.fetch_sub(CALL, Ordering::AcqRel);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let state = self.0.state.fetch_and(!IN_PROGRESS, Ordering::AcqRel);
        self.0.ended.fetch_add(1, Ordering::AcqRel);
        if state & !IN_PROGRESS != 0 {
            system::wake(self.0.ended, Sharing::Private);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize},
        thread,
        time::Duration,
    };

    use super::*;

    fn gate() -> Gate {
        Gate::new(&mut Words::new(crate::zeroed::private(8).unwrap())).unwrap()
    }

    #[test]
    fn parts_give_way_to_calls_and_calls_wait_for_the_part_at_work() {
        let gate = gate();
        let call = gate.enter();
        let other = gate.enter();
        assert_eq!(gate.begin().unwrap_err(), Closed::Calls);
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
    fn a_call_from_within_a_part_does_not_wait_for_itself() {
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
        assert_eq!(gate.begin().unwrap_err(), Closed::Shut);
        drop(gate.enter());
        assert!(gate.is_shut());
    }

    #[test]
    fn a_part_that_never_ends_holds_the_program_up_once_and_for_a_bounded_time() {
        let gate = gate();
        let part = gate.begin().unwrap();
        let begun = std::time::Instant::now();
        drop(gate.enter());
        assert!(gate.is_shut());
        let (first, begun) = (begun.elapsed(), std::time::Instant::now());
        drop(gate.enter());
        assert!(begun.elapsed() < first, "nobody waits any more");
        drop(part);
        assert_eq!(gate.begin().unwrap_err(), Closed::Shut);
    }

    #[test]
    fn calls_and_parts_are_never_within_at_a_time() {
        let gate = gate();
        let (calls, parts) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let ends = AtomicBool::new(false);
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
                    ends.store(true, Ordering::SeqCst);
                });
            }
            while !ends.load(Ordering::SeqCst) {
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

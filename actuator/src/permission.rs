//! Permission for the helper in a program to act.
//!
//! The helper does not query the filters of system calls that the program has installed since the helper
//! started: such a filter may end the program for the query. uvmd reads them before it makes the helper act: at
//! each command, and by a [`FilterCheck`] before plans.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use call_ring::{Memory, Mode};
use sys::{Roots, seccomp, shared_memory::SharedMemory};
use thiserror::Error;

/// Reason why the helper of a process does not act.
#[derive(Clone, Debug, Error)]
pub enum ActError {
    /// The helper passes calls through.
    #[error("recording is off in it")]
    Off,
    /// A thread has other filters of system calls than the helper had at its start.
    #[error("the program has installed a seccomp filter since it started")]
    Filtered,
    /// The filters of a thread are unknown.
    #[error("the program's seccomp filters are unknown: {}", sys::reason(.0))]
    Filters(Arc<io::Error>),
    /// The filters were not checked yet.
    #[error("the program's seccomp filters were not checked yet")]
    Unchecked,
    /// The program has overwritten the ring, or punched holes in it.
    #[error("its ring cannot be read")]
    Unreadable,
}

/// Makes the helper act by its ring, or stops it if the program has installed a filter since the helper
/// started. Adds the number of inspected threads to `threads`.
pub(crate) fn act(roots: &Roots, pid: u32, ring: &Memory<'_>, threads: &mut usize) -> Result<(), ActError> {
    act_if(ring, || check_filters(roots, pid, ring, threads))
}

/// Check of the filters of a process for its plan. It takes a system call per thread, so the follower makes it
/// in advance, and publications use its last result.
#[derive(Debug)]
pub struct FilterCheck {
    roots: Roots,
    pid: u32,
    ring: Arc<SharedMemory>,
    last: Mutex<Result<(), ActError>>,
}

impl FilterCheck {
    pub(crate) const fn new(roots: Roots, pid: u32, ring: Arc<SharedMemory>) -> Self {
        Self { roots, pid, ring, last: Mutex::new(Err(ActError::Unchecked)) }
    }

    fn last(&self) -> MutexGuard<'_, Result<(), ActError>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the filters of all threads. If the program has installed one since the helper started, the helper
    /// stops acting.
    pub fn run(&self) {
        let ring = self.ring.words().ok().and_then(|words| Memory::open(words).ok());
        let checked = match &ring {
            Some(ring) => check_filters(&self.roots, self.pid, ring, &mut 0),
            None => Err(ActError::Unreadable),
        };
        let mut last = self.last();
        if let (Err(_), Some(ring)) = (&checked, &ring) {
            stop(ring);
        }
        *last = checked;
    }

    /// Reason why the helper may not act, by the last check.
    pub(crate) fn refusal(&self) -> Option<ActError> {
        self.last().clone().err()
    }

    /// Makes the helper act by its ring, if the last check permits.
    pub(crate) fn act(&self, ring: &Memory<'_>) -> Result<(), ActError> {
        // The lock is held: no check completes between the two.
        let last = self.last();
        act_if(ring, || last.clone())
    }
}

fn act_if(ring: &Memory<'_>, check: impl FnOnce() -> Result<(), ActError>) -> Result<(), ActError> {
    if ring.mode() == Mode::Off {
        return Err(ActError::Off);
    }
    if let Err(error) = check() {
        stop(ring);
        return Err(error);
    }
    if ring.enable_acting() { Ok(()) } else { Err(ActError::Off) }
}

fn stop(ring: &Memory<'_>) {
    if ring.mode() == Mode::Act {
        ring.set_mode(Mode::Record);
    }
}

fn check_filters(roots: &Roots, pid: u32, ring: &Memory<'_>, threads: &mut usize) -> Result<(), ActError> {
    let has_those_of_start = match ring.filters() {
        Some(filters) => {
            seccomp::threads_have(roots, pid, filters, threads).map_err(|error| ActError::Filters(Arc::new(error)))?
        }
        None => false,
    };
    if has_those_of_start { Ok(()) } else { Err(ActError::Filtered) }
}

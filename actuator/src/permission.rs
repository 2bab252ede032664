//! Permission for the helper in a program to act.
//!
//! The helper does not query the filters of system calls that the program has installed since the helper
//! started: such a filter may end the program for the query. uvmd reads them before it makes the helper act: at
//! each command, and by a [`FilterCheck`] before plans.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use call_ring::{Memory, Mode, memory::HEADER_WORDS};
use sys::{
    Roots, seccomp,
    shared_memory::{SharedMemory, SharedMemoryError},
};
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
    /// The program has overwritten the ring, or it is not accessible.
    #[error("its ring cannot be read: {0}")]
    Unreadable(String),
}

impl From<SharedMemoryError> for ActError {
    fn from(error: SharedMemoryError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// Makes the helper act by its ring, or stops it if the program has installed a filter since the helper
/// started. Adds the number of inspected threads to `threads`.
pub(crate) fn act(roots: &Roots, pid: u32, ring: &SharedMemory, threads: &mut usize) -> Result<(), ActError> {
    Access { ring, retries: true }.act_if(|memory| check_filters(roots, pid, memory, threads))
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
        let ring = Access { ring: &self.ring, retries: true };
        let checked = ring.words().and_then(|words| check_filters(&self.roots, self.pid, &open(&words)?, &mut 0));
        let is_refused = checked.is_err();
        if is_refused {
            ring.stop();
        }
        // The loop that acts waits for the lock, which is therefore not held for a request that is pending.
        *self.last() = checked;
        if is_refused {
            // The loop may have made it act meanwhile, also by a request that is pending.
            ring.stop();
        }
    }

    /// Reason why the helper may not act, by the last check.
    pub(crate) fn refusal(&self) -> Option<ActError> {
        self.last().clone().err()
    }

    /// Makes the helper act by its ring, if the last check permits. Does not wait for a request that is pending.
    pub(crate) fn act(&self) -> Result<(), ActError> {
        // The lock is held: no check completes between the two.
        let last = self.last();
        Access { ring: &self.ring, retries: false }.act_if(|_| last.clone())
    }
}

fn open(words: &[u64]) -> Result<Memory<'_, u64>, ActError> {
    Memory::open(words).map_err(|error| ActError::Unreadable(error.to_string()))
}

/// Access to a ring.
#[derive(Clone, Copy)]
struct Access<'a> {
    ring: &'a SharedMemory,
    /// Whether it waits for requests that are pending.
    retries: bool,
}

impl Access<'_> {
    fn request<T>(self, mut request: impl FnMut(&SharedMemory) -> Result<T, SharedMemoryError>) -> Result<T, ActError> {
        Ok(if self.retries { self.ring.with_retries(request) } else { request(self.ring) }?)
    }

    fn words(self) -> Result<Vec<u64>, ActError> {
        self.request(|ring| ring.copy_words(HEADER_WORDS))
    }

    fn act_if(self, check: impl FnOnce(&Memory<'_, u64>) -> Result<(), ActError>) -> Result<(), ActError> {
        let words = self.words()?;
        let memory = open(&words)?;
        if memory.mode() == Mode::Off {
            return Err(ActError::Off);
        }
        if let Err(error) = check(&memory) {
            self.stop();
            return Err(error);
        }
        self.set_mode(|mode| mode != Mode::Off, Mode::Act)?;
        // Unless it was switched off just now.
        if open(&self.words()?)?.mode() == Mode::Act { Ok(()) } else { Err(ActError::Off) }
    }

    /// Stops a helper that acts. If its ring is not accessible, it gets no commands, and no heartbeats for a plan.
    fn stop(self) {
        let _ = self.set_mode(|mode| mode == Mode::Act, Mode::Record);
    }

    /// Sets a mode in place of another that is current.
    fn set_mode(self, is_replaced: impl Fn(Mode) -> bool, mode: Mode) -> Result<(), ActError> {
        let words = self.words()?;
        let memory = open(&words)?;
        if memory.mode() != mode && is_replaced(memory.mode()) {
            self.request(|ring| ring.write([memory.change_mode(mode)], None))?;
        }
        Ok(())
    }
}

fn check_filters(roots: &Roots, pid: u32, ring: &Memory<'_, u64>, threads: &mut usize) -> Result<(), ActError> {
    let has_those_of_start = match ring.filters() {
        Some(filters) => {
            seccomp::threads_have(roots, pid, filters, threads).map_err(|error| ActError::Filters(Arc::new(error)))?
        }
        None => false,
    };
    if has_those_of_start { Ok(()) } else { Err(ActError::Filtered) }
}

//! Recording of a process: its last calls, and the ring from which they are read.
//!
//! Cloning a recording takes constant time, so that its readers do not block others. The ring is
//! read in parts, without other locks.

use std::{
    fmt, mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use call_ring::call::Call;

#[cfg(test)]
use crate::visits;
use crate::{
    merge::Losses,
    process::{Memories, Process, ProcessError},
    window::Window,
};

/// Number of calls added to a recording under one lock, for which its readers wait.
const BATCH: usize = 64;

/// State of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Calls are read.
    Recording,
    /// The user's reader time is used up: reading pauses until it recovers.
    Throttled,
    /// The process has exited; its recording is retained.
    Ended,
    /// The ring cannot be read for now, for this reason.
    Inaccessible(String),
    /// The ring cannot be read, for this reason.
    Unreadable(String),
    /// The user, or the node, has as many recordings as its quota permits.
    QuotaReached(Holder),
}

/// Holder of the recordings that reach a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// User: the recording's own, or the one with the most recordings of the node.
    pub uid: u32,
    /// Number of recordings of this user.
    pub recordings: usize,
    /// The quota, of a user or of the node.
    pub max: usize,
}

/// Recording of a process.
#[derive(Clone, Debug)]
pub struct Recording {
    state: State,
    window: Window,
    losses: Losses,
    /// Time of the last calls read.
    active_at: Duration,
    /// Time of the last reading.
    read_at: Duration,
}

impl Recording {
    /// State of the recording.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Recorded calls.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Counts of lost calls.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        self.losses
    }

    /// Whether the recording holds memory.
    pub(crate) const fn is_held(&self) -> bool {
        matches!(self.state, State::Recording | State::Throttled | State::Inaccessible(_) | State::Ended)
    }

    /// Time of the last reading.
    pub(crate) const fn read_at(&self) -> Duration {
        self.read_at
    }

    /// Time of the last calls read.
    pub(crate) const fn active_at(&self) -> Duration {
        self.active_at
    }
}

/// Interface to a ring.
pub(crate) trait Ring: fmt::Debug + Send {
    /// Reads the next calls of a poll.
    fn poll_part(&mut self) -> Result<Vec<Call>, ProcessError>;

    /// Whether the poll has further parts.
    fn has_more(&self) -> bool;

    /// Returns the calls that wait for missing calls, as those will not arrive.
    fn drain_waiting(&mut self) -> Vec<Call>;

    fn losses(&self) -> Losses;

    /// Memories of the helper.
    fn memories(&self) -> Option<Memories> {
        None
    }
}

impl Ring for Process {
    fn poll_part(&mut self) -> Result<Vec<Call>, ProcessError> {
        self.poll_part()
    }

    fn has_more(&self) -> bool {
        self.has_more()
    }

    fn drain_waiting(&mut self) -> Vec<Call> {
        self.drain_waiting()
    }

    fn losses(&self) -> Losses {
        self.losses()
    }

    fn memories(&self) -> Option<Memories> {
        Some(self.memories().clone())
    }
}

/// Kind of a reading of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// While the process runs.
    Regular,
    /// After the process has exited.
    Last,
}

/// Reader of a ring, with its recording.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Ring; `None` once it is no longer read. This lock is never acquired while the recording is
    /// locked.
    ring: Mutex<Option<Box<dyn Ring>>>,
    recording: Mutex<Recording>,
}

impl Reader {
    pub(crate) fn new(state: State, ring: Option<Box<dyn Ring>>, window_bytes: usize, now: Duration) -> Self {
        let window = Window::new(if ring.is_some() { window_bytes } else { 0 });
        let recording = Recording { state, window, losses: Losses::default(), active_at: now, read_at: now };
        Self { ring: Mutex::new(ring), recording: Mutex::new(recording) }
    }

    /// Locks the recording.
    pub(crate) fn recording(&self) -> MutexGuard<'_, Recording> {
        #[cfg(test)]
        visits::add();
        lock(&self.recording)
    }

    /// Memories of the helper, while the ring is read.
    pub(crate) fn memories(&self) -> Option<Memories> {
        lock(&self.ring).as_ref().and_then(|ring| ring.memories())
    }

    /// Sets the state, unless the ring is no longer read.
    pub(crate) fn set_state(&self, state: State) {
        let mut recording = self.recording();
        if matches!(recording.state, State::Recording | State::Throttled | State::Inaccessible(_)) {
            recording.state = state;
        }
    }

    /// Reads a part of the ring. Returns whether more can be read now.
    pub(crate) fn read(&self, reading: Reading, now: Duration) -> bool {
        let mut slot = lock(&self.ring);
        let Some(ring) = &mut *slot else { return false };
        let part = ring.poll_part();
        let has_more = ring.has_more();
        let losses = ring.losses();
        match part {
            Ok(mut calls) => {
                let is_final = reading == Reading::Last && !has_more;
                if is_final {
                    calls.append(&mut ring.drain_waiting());
                }
                self.add(calls, now);
                if is_final {
                    *slot = None;
                    self.set_state(State::Ended);
                }
            }
            // Another part comes later, also of an exited process.
            Err(error) if error.is_pending() => return false,
            Err(error) if error.is_inaccessible() => {
                self.set_state(State::Inaccessible(error.to_string()));
                self.recording().read_at = now;
                return false;
            }
            Err(error) => {
                self.free_locked(&mut slot);
                self.recording().state = State::Unreadable(error.to_string());
            }
        }
        let mut recording = self.recording();
        if matches!(recording.state, State::Inaccessible(_)) {
            recording.state = State::Recording;
        }
        (recording.losses, recording.read_at) = (losses, now);
        drop(recording);
        has_more && slot.is_some()
    }

    /// Evicts the recording for another one. [`Self::free`] frees its memory.
    pub(crate) fn evict(&self, holder: Holder) {
        self.recording().state = State::QuotaReached(holder);
    }

    /// Locks the ring as a reading does.
    #[cfg(test)]
    pub(crate) fn lock_ring(&self) -> MutexGuard<'_, Option<Box<dyn Ring>>> {
        lock(&self.ring)
    }

    /// Frees the memory of an evicted recording, once its ring is not being read.
    pub(crate) fn free(&self) {
        self.free_locked(&mut lock(&self.ring));
    }

    /// Frees the memory of a recording, and its ring.
    fn free_locked(&self, slot: &mut Option<Box<dyn Ring>>) {
        *slot = None;
        let window = mem::replace(&mut self.recording().window, Window::new(0));
        drop(window);
    }

    fn add(&self, calls: Vec<Call>, now: Duration) {
        let mut calls = calls.into_iter().peekable();
        while calls.peek().is_some() {
            let mut recording = self.recording();
            recording.active_at = now;
            calls.by_ref().take(BATCH).for_each(|call| recording.window.add(call));
        }
    }
}

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

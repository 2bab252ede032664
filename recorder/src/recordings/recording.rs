//! Recording of a process: its last calls, and the ring that they are read from.
//!
//! A clone of a recording takes no time, so that nobody waits for those who look at it. The ring is
//! read in parts, and nothing else is held meanwhile.

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

/// Calls that are added to a recording at once, which those who look at it wait for.
const BATCH: usize = 64;

/// State of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Calls are read.
    Recording,
    /// Its user's reader time is used up: calls are read again in a while.
    Throttled,
    /// The process has exited; what it recorded is still there.
    Ended,
    /// The ring cannot be read, for this reason.
    Unreadable(String),
    /// Its user, or the node, has as many recordings as it may have.
    QuotaReached(Holder),
}

/// Who has the recordings that a quota allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// User: its own, or the one with the most recordings of the node.
    pub uid: u32,
    /// Recordings of this user.
    pub recordings: usize,
    /// Most recordings that the quota allows: of a user, or of the node.
    pub max: usize,
}

/// Recording of a process.
#[derive(Clone, Debug)]
pub struct Recording {
    state: State,
    window: Window,
    losses: Losses,
    /// Time of the last calls that were read.
    active_at: Duration,
    /// Time of the last reading.
    read_at: Duration,
}

impl Recording {
    /// State.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Calls.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// What is not among the calls.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        self.losses
    }

    /// Whether it takes memory.
    pub(crate) const fn is_held(&self) -> bool {
        matches!(self.state, State::Recording | State::Throttled | State::Ended)
    }

    /// Time of the last reading.
    pub(crate) const fn read_at(&self) -> Duration {
        self.read_at
    }

    /// Time of the last calls that were read.
    pub(crate) const fn active_at(&self) -> Duration {
        self.active_at
    }
}

/// Ring as it is read.
pub(crate) trait Ring: fmt::Debug + Send {
    /// Next calls of a poll, or of one between two polls.
    fn part(&mut self, is_early: bool) -> Result<Vec<Call>, ProcessError>;

    /// Whether the poll of the last part is not over.
    fn has_more(&self) -> bool;

    /// Calls that wait for others, which do not come.
    fn rest(&mut self) -> Vec<Call>;

    fn losses(&self) -> Losses;

    /// Memories of the helper.
    fn memories(&self) -> Option<Memories> {
        None
    }
}

impl Ring for Process {
    fn part(&mut self, is_early: bool) -> Result<Vec<Call>, ProcessError> {
        self.poll_part(is_early)
    }

    fn has_more(&self) -> bool {
        self.has_more()
    }

    fn rest(&mut self) -> Vec<Call> {
        self.finish_waiting()
    }

    fn losses(&self) -> Losses {
        self.losses()
    }

    fn memories(&self) -> Option<Memories> {
        Some(self.memories().clone())
    }
}

/// When a ring is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// With all others.
    Regular,
    /// Between two readings of all.
    Early,
    /// After the process has exited.
    Last,
}

/// Recording with the ring that it is read from.
#[derive(Debug)]
pub(crate) struct Reader {
    /// While it is read. Nobody who holds the recording waits for the ring.
    ring: Mutex<Option<Box<dyn Ring>>>,
    recording: Mutex<Recording>,
}

impl Reader {
    pub(crate) fn new(state: State, ring: Option<Box<dyn Ring>>, window_bytes: usize, now: Duration) -> Self {
        let window = Window::new(if ring.is_some() { window_bytes } else { 0 });
        let recording = Recording { state, window, losses: Losses::default(), active_at: now, read_at: now };
        Self { ring: Mutex::new(ring), recording: Mutex::new(recording) }
    }

    /// The recording as it is now.
    pub(crate) fn recording(&self) -> MutexGuard<'_, Recording> {
        #[cfg(test)]
        visits::add();
        lock(&self.recording)
    }

    /// Memories of the helper, while its ring is read.
    pub(crate) fn memories(&self) -> Option<Memories> {
        lock(&self.ring).as_ref().and_then(|ring| ring.memories())
    }

    /// Sets the state of a recording whose ring is read.
    pub(crate) fn set_state(&self, state: State) {
        let mut recording = self.recording();
        if matches!(recording.state, State::Recording | State::Throttled) {
            recording.state = state;
        }
    }

    /// Reads a part of the ring. Whether there is more to read now.
    pub(crate) fn read(&self, reading: Reading, now: Duration) -> bool {
        let mut place = lock(&self.ring);
        let Some(ring) = &mut *place else { return false };
        let part = ring.part(reading == Reading::Early);
        let has_more = ring.has_more();
        let losses = ring.losses();
        match part {
            Ok(mut calls) => {
                let is_over = reading == Reading::Last && !has_more;
                if is_over {
                    calls.append(&mut ring.rest());
                }
                self.add(calls, now);
                if is_over {
                    *place = None;
                    self.set_state(State::Ended);
                }
            }
            Err(error) => {
                self.free(&mut place);
                self.recording().state = State::Unreadable(error.to_string());
            }
        }
        let mut recording = self.recording();
        (recording.losses, recording.read_at) = (losses, now);
        drop(recording);
        has_more && place.is_some()
    }

    /// Takes the recording's place for another one. [`Self::release`] frees its memory.
    pub(crate) fn give_way(&self, holder: Holder) {
        self.recording().state = State::QuotaReached(holder);
    }

    /// Keeps the ring as its reading does.
    #[cfg(test)]
    pub(crate) fn while_read(&self) -> MutexGuard<'_, Option<Box<dyn Ring>>> {
        lock(&self.ring)
    }

    /// Frees the memory of a recording that has lost its place, once its ring is not being read.
    pub(crate) fn release(&self) {
        self.free(&mut lock(&self.ring));
    }

    /// Frees the memory of a recording with the place of its ring.
    fn free(&self, place: &mut Option<Box<dyn Ring>>) {
        *place = None;
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

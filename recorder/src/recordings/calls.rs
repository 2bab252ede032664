//! Calls of a recorded process, for a reader who follows them.

use std::sync::Arc;

use call_ring::call::Call;
use model::ProcessId;
use thiserror::Error;

use super::{
    Recordings,
    recording::{Holder, Recording, State, lock},
};
use crate::{process::Memories, program::Program, searches::Delay};

/// Calls of a process after a number of calls.
#[derive(Debug)]
pub struct NewCalls {
    /// State of the program before these calls, if calls after that number were dropped.
    pub program: Option<Box<Program>>,
    /// The calls.
    pub calls: Vec<Call>,
    /// Number of calls recorded so far.
    pub added: u64,
}

/// Reason why the calls of a process are not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unread {
    /// The helper in the process is not found.
    #[error("its calls are not recorded: {0}")]
    NotFound(NotFound),
    /// The user's reader time is used up: reading pauses until it recovers.
    #[error("its calls are not read for now: its user's reader time is used up")]
    Throttled,
    /// The recording has ended.
    #[error("its recording has ended")]
    Ended,
    /// The ring cannot be read, for this reason.
    #[error("its recording is not readable: {0}")]
    Unreadable(String),
    /// The user, or the node, has as many recordings as its quota permits.
    #[error("the quota of recordings is reached: user {} has {} of {}", .0.uid, .0.recordings, .0.max)]
    QuotaReached(Holder),
}

/// Reason why the helper in a process is not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotFound {
    /// The process has no helper that records.
    #[error("the helper is not in it, or is off, as under a seccomp filter (docs/troubleshooting.md)")]
    NoHelper,
    /// The search for the helper is incomplete.
    #[error(transparent)]
    Delayed(#[from] Delay),
}

impl State {
    /// Whether calls are read in this state, or the reason why not.
    fn check(&self) -> Result<(), Unread> {
        Err(match self {
            Self::Recording => return Ok(()),
            Self::Throttled => Unread::Throttled,
            Self::Ended => Unread::Ended,
            Self::Inaccessible(reason) | Self::Unreadable(reason) => Unread::Unreadable(reason.clone()),
            Self::QuotaReached(holder) => Unread::QuotaReached(*holder),
        })
    }
}

impl Recordings {
    /// Reason why the helper in a process without a recording is not found.
    #[must_use]
    pub fn not_found(&self, process: ProcessId) -> NotFound {
        self.delay_of(process).map_or(NotFound::NoHelper, NotFound::Delayed)
    }

    /// Checks whether the calls of a process are read.
    ///
    /// # Errors
    /// If they are not: the reason.
    pub fn check(&self, process: ProcessId) -> Result<(), Unread> {
        self.state_of(process).ok_or_else(|| Unread::NotFound(self.not_found(process)))?.check()
    }

    /// Memories of the helper in a process whose calls are read.
    ///
    /// # Errors
    /// If they are not read: the reason.
    pub fn memories(&self, process: ProcessId) -> Result<Memories, Unread> {
        self.check(process)?;
        let reader = lock(&self.registry).recorded_of(process).map(|recorded| Arc::clone(&recorded.reader));
        reader.and_then(|reader| reader.memories()).ok_or(Unread::Ended)
    }

    /// Bytes of the retained calls of a process, and of the program's state before them; 0 if its calls are not
    /// read.
    #[must_use]
    pub fn bytes_of(&self, process: ProcessId) -> usize {
        self.readable(process).map_or(0, |recording| recording.window().bytes())
    }

    /// Calls of a process after this number of calls; all retained ones without a number.
    ///
    /// # Errors
    /// If its calls are not read: the reason.
    pub fn calls_since(&self, process: ProcessId, added: Option<u64>) -> Result<NewCalls, Unread> {
        let recording = self.readable(process)?;
        let window = recording.window();
        // A recording with fewer calls than that is another one.
        let added = added.filter(|added| *added <= window.added());
        let (program, calls) = match added.and_then(|added| window.since(added)) {
            Some(calls) => (None, calls),
            None => (Some(Box::new(window.before().clone())), window.calls().cloned().collect()),
        };
        Ok(NewCalls { program, calls, added: window.added() })
    }

    /// Recording of a process whose calls are read.
    fn readable(&self, process: ProcessId) -> Result<Recording, Unread> {
        let recording = self.snapshot(process).ok_or_else(|| Unread::NotFound(self.not_found(process)))?;
        recording.state().check()?;
        Ok(recording)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_recording_in_progress_is_read() {
        let reason = |state: State| state.check().map_err(|unread| unread.to_string());
        assert_eq!(reason(State::Recording), Ok(()));
        for (state, expected) in [
            (State::Throttled, "its calls are not read for now: its user's reader time is used up"),
            (State::Ended, "its recording has ended"),
            (State::Unreadable("no ring".to_owned()), "its recording is not readable: no ring"),
            (
                State::QuotaReached(Holder { uid: 7, recordings: 4, max: 4 }),
                "the quota of recordings is reached: user 7 has 4 of 4",
            ),
        ] {
            assert_eq!(reason(state), Err(expected.to_owned()));
        }
    }
}

//! Ring of a process, with a place for commands.

use std::sync::Arc;

use call_ring::{
    Command, Commands, LayoutError, Memory,
    command::{AgentState, Busy, FUTEX_WORD, NoResponse, Response, Ticket},
    memory::HEADER_WORDS,
};
use sys::{
    Roots,
    pidfd::PidFd,
    shared_memory::{SharedMemory, SharedMemoryError},
};
use thiserror::Error;

use crate::permission::{self, ActError};

/// Reason why the helper of a process carries out no commands.
#[derive(Debug, Error)]
pub(crate) enum RingError {
    /// The process has no ring.
    #[error("the helper is not in it, or is off, as under a seccomp filter")]
    Absent,
    /// Its memory is not readable.
    #[error(transparent)]
    Memory(#[from] Arc<SharedMemoryError>),
    /// A command was submitted, or not.
    #[error("it is unknown whether its helper got the command: {0}")]
    Unconfirmed(#[source] Arc<SharedMemoryError>),
    /// Its memory is no ring of this version.
    #[error("its shared memory is not a ring of the helper: {0}")]
    Invalid(#[from] LayoutError),
    /// The helper is of a version without commands.
    #[error("its helper is of an older version, without commands")]
    Older,
    /// The helper may not act.
    #[error("its helper executes no commands: {0}")]
    NotPermitted(#[from] ActError),
    /// The helper's thread could not be started, or has ended.
    #[error("its helper executes no commands: its thread could not be started, or has ended")]
    Ended,
}

/// Ring whose helper carries out commands.
#[derive(Debug)]
pub(crate) struct Ring(SharedMemory);

impl RingError {
    /// Whether the ring is only not accessible: its helper may carry out a command.
    pub(crate) fn is_of_access(&self) -> bool {
        match self {
            Self::Memory(error) => matches!(
                **error,
                SharedMemoryError::Pending
                    | SharedMemoryError::Late
                    | SharedMemoryError::Hung
                    | SharedMemoryError::NoAccessor(_)
                    | SharedMemoryError::Access(_)
            ),
            Self::Unconfirmed(_) => true,
            Self::Absent | Self::Invalid(_) | Self::Older | Self::NotPermitted(_) | Self::Ended => false,
        }
    }
}

#[expect(clippy::redundant_closure_for_method_calls, reason = "the methods are of one lifetime of the copy")]
impl Ring {
    /// Ring in this memory of a process, whose helper acts from now on. Adds the number of inspected threads
    /// to `threads`.
    pub(crate) fn open(
        roots: &Roots,
        process: &PidFd,
        memory: Option<SharedMemory>,
        threads: &mut usize,
    ) -> Result<Self, RingError> {
        let ring = Self::attach(memory)?;
        permission::act(roots, process.pid(), &ring.0, threads)?;
        ring.commands(|_| ())?;
        Ok(ring)
    }

    /// Ring with commands in this memory of a process, whose helper is not made to act.
    pub(crate) fn attach(memory: Option<SharedMemory>) -> Result<Self, RingError> {
        let ring = Self(memory.ok_or(RingError::Absent)?);
        let words = ring.words()?;
        if Memory::open(&words)?.has_commands() { Ok(ring) } else { Err(RingError::Older) }
    }

    /// Copy of the words of the header.
    fn words(&self) -> Result<Vec<u64>, RingError> {
        Ok(self.0.with_retries(|memory| memory.copy_words(HEADER_WORDS)).map_err(Arc::new)?)
    }

    /// Reads a copy of the place of the command, unless the helper's thread has ended. The process may have
    /// overwritten anything since the last call.
    pub(super) fn commands<T>(&self, read: impl FnOnce(&Commands<'_, u64>) -> T) -> Result<T, RingError> {
        let words = self.words()?;
        let commands = Memory::open(&words)?.commands();
        if commands.agent_state() == AgentState::Ended { Err(RingError::Ended) } else { Ok(read(&commands)) }
    }

    /// State of the helper's thread.
    pub(super) fn agent_state(&self) -> Result<AgentState, RingError> {
        self.commands(|commands| commands.agent_state())
    }

    /// Submits a command, and wakes the helper. The outer error is that of the ring.
    pub(super) fn submit(&self, command: &Command) -> Result<Result<Ticket, Busy>, RingError> {
        let Ok(submission) = self.commands(|commands| commands.submit(command))? else { return Ok(Err(Busy)) };
        match self.0.write(submission.operations, Some(FUTEX_WORD)) {
            Ok(is_submitted) => Ok(is_submitted.then_some(submission.ticket).ok_or(Busy)),
            // The next request comes after this one, which may have been made.
            Err(SharedMemoryError::Pending) => match self.commands(|commands| commands.has(submission.ticket)) {
                Ok(is_submitted) => Ok(is_submitted.then_some(submission.ticket).ok_or(Busy)),
                Err(RingError::Memory(error)) => Err(RingError::Unconfirmed(error)),
                Err(error) => Err(error),
            },
            Err(error @ SharedMemoryError::Access(_)) => Err(RingError::Unconfirmed(Arc::new(error))),
            Err(error) => Err(Arc::new(error).into()),
        }
    }

    /// Revokes any pending command, and returns whether the helper carries one out.
    pub(super) fn revoke_pending(&self) -> Result<bool, RingError> {
        if let Some(revoke) = self.commands(|commands| commands.revoke_pending())? {
            self.0.with_retries(|memory| memory.write([revoke], None)).map_err(Arc::new)?;
        }
        self.commands(|commands| commands.is_taken())
    }

    /// Revokes a pending command; false if the helper has taken it.
    pub(super) fn revoke(&self, ticket: Ticket) -> Result<bool, RingError> {
        let revoke = self.commands(|commands| commands.revoke(ticket))?;
        match self.0.write([revoke], None) {
            Ok(is_revoked) => Ok(is_revoked),
            Err(SharedMemoryError::Pending) => Ok(!self.commands(|commands| commands.has(ticket))?),
            Err(error) => Err(Arc::new(error).into()),
        }
    }

    /// Response to a command. The outer error is that of the ring.
    pub(super) fn response(&self, ticket: Ticket) -> Result<Result<Response, NoResponse>, RingError> {
        let answered = self.commands(|commands| commands.response(ticket, commands))?;
        // An answer is read again: words of one copy may be older than others.
        if matches!(answered, Ok(_) | Err(NoResponse::Invalid)) {
            return self.commands(|commands| commands.response(ticket, commands));
        }
        Ok(answered)
    }
}

//! Ring of a process, with a place for commands.

use std::sync::Arc;

use call_ring::{Commands, LayoutError, Memory, command::AgentState};
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
    /// Its memory is no ring of this version.
    #[error("its shared memory is no ring of the helper: {0}")]
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
        permission::act(roots, process.pid(), &ring.header()?, threads)?;
        ring.commands()?;
        Ok(ring)
    }

    /// Ring with commands in this memory of a process, whose helper is not made to act.
    pub(crate) fn attach(memory: Option<SharedMemory>) -> Result<Self, RingError> {
        let ring = Self(memory.ok_or(RingError::Absent)?);
        if ring.header()?.has_commands() { Ok(ring) } else { Err(RingError::Older) }
    }

    fn header(&self) -> Result<Memory<'_>, RingError> {
        Ok(Memory::open(self.0.words().map_err(Arc::new)?)?)
    }

    /// Place of the command. The process may have overwritten anything since the last call.
    pub(super) fn commands(&self) -> Result<Commands<'_>, RingError> {
        let commands = self.header()?.commands();
        if commands.agent_state() == AgentState::Ended { Err(RingError::Ended) } else { Ok(commands) }
    }

    /// Place of the command, if the process may carry one out.
    pub(super) fn active_commands(&self) -> Option<Commands<'_>> {
        self.commands().ok()
    }
}

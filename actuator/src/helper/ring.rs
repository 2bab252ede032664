//! Ring of a process, with a place for commands.

use std::num::NonZeroUsize;

use call_ring::{Commands, Invalid, Memory, NAME, TOTAL_BYTES, command::AgentState};
use sys::{
    Roots,
    pidfd::PidFd,
    shared_memory::{Form, SharedMemory, SharedMemoryError},
};
use thiserror::Error;

/// Reason why the helper of a process carries out no commands.
#[derive(Debug, Error)]
pub(crate) enum RingError {
    /// The process has no ring.
    #[error("it runs without the helper")]
    Absent,
    /// Its memory is not readable.
    #[error(transparent)]
    Memory(#[from] SharedMemoryError),
    /// Its memory is no ring of this version.
    #[error("its shared memory is no ring of the helper: {0}")]
    Invalid(#[from] Invalid),
    /// The helper knows no commands.
    #[error("its helper is an older one, which carries out no commands")]
    Older,
    /// The helper passes calls through.
    #[error("its helper carries out no commands: recording is off in it")]
    Off,
    /// The helper's thread could not be started, or has ended.
    #[error("its helper carries out no commands: it could not start a thread, or that has ended")]
    Ended,
}

/// Ring whose helper carries out commands.
#[derive(Debug)]
pub(crate) struct Ring(SharedMemory);

impl Ring {
    /// Ring of a process, whose helper acts from now on. Reads the process's mappings, which may
    /// hang.
    pub(crate) fn open(roots: &Roots, process: &PidFd) -> Result<Self, RingError> {
        let ring = Self::look_up(roots, process)?;
        if !Memory::open(&ring.0)?.act() {
            return Err(RingError::Off);
        }
        ring.commands()?;
        Ok(ring)
    }

    /// Ring of a process with commands, whose helper is not made to act. Reads the process's
    /// mappings, which may hang.
    pub(crate) fn look_up(roots: &Roots, process: &PidFd) -> Result<Self, RingError> {
        const BYTES: NonZeroUsize = NonZeroUsize::new(TOTAL_BYTES).unwrap();
        let form = Form { name: NAME, bytes: BYTES, mapped_bytes: BYTES };
        let ring = Self(SharedMemory::of_process(roots, process.pid(), form)?.ok_or(RingError::Absent)?);
        if Memory::open(&ring.0)?.has_commands() { Ok(ring) } else { Err(RingError::Older) }
    }

    /// Place of the command. The process may have overwritten anything since the last call.
    pub(super) fn commands(&self) -> Result<Commands<'_>, RingError> {
        let commands = Memory::open(&self.0)?.commands();
        if commands.agent() == AgentState::Ended { Err(RingError::Ended) } else { Ok(commands) }
    }

    /// Place of the command, if the process may carry one out.
    pub(super) fn place(&self) -> Option<Commands<'_>> {
        self.commands().ok()
    }
}

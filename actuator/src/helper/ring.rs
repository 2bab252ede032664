//! Ring of a process, with a place for commands.

use std::num::NonZeroUsize;

use call_ring::{Commands, Invalid, Memory, Mode, NAME, TOTAL_BYTES, command::AgentState};
use sys::{
    Roots,
    pidfd::PidFd,
    processes,
    shared_memory::{SharedMemory, SharedMemoryError},
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
        const BYTES: NonZeroUsize = NonZeroUsize::new(TOTAL_BYTES).unwrap();
        let pid = process.pid();
        // Of a process whose first thread has exited, only the others have a memory map.
        let thread = processes::live_thread(roots, pid).ok().flatten().unwrap_or(pid);
        let ring = Self(SharedMemory::of_process(roots, thread, NAME, BYTES)?.ok_or(RingError::Absent)?);
        let memory = Memory::open(&ring.0)?;
        if !memory.has_commands() {
            return Err(RingError::Older);
        }
        memory.set_mode(Mode::Act);
        ring.commands()?;
        Ok(ring)
    }

    /// Place of the command. The process may have overwritten anything since the last call.
    pub(super) fn commands(&self) -> Result<Commands<'_>, RingError> {
        let commands = Memory::open(&self.0)?.commands();
        if commands.agent() == AgentState::Ended { Err(RingError::Ended) } else { Ok(commands) }
    }
}

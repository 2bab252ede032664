//! Ring of a process, with a place for commands.

use std::{num::NonZeroUsize, sync::Arc};

use call_ring::{Commands, Invalid, Memory, NAME, TOTAL_BYTES, command::AgentState, memory::HEADER_BYTES};
use sys::{
    Roots,
    pidfd::PidFd,
    processes::{self, Image},
    shared_memory::{Form, SharedMemory, SharedMemoryError},
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
    Memory(#[from] SharedMemoryError),
    /// Its memory is no ring of this version.
    #[error("its shared memory is no ring of the helper: {0}")]
    Invalid(#[from] Invalid),
    /// It has punched holes in its memory, whose pages uvmd would have to pay for.
    #[error("it has punched holes in its shared memory")]
    Sparse,
    /// The helper knows no commands.
    #[error("its helper is an older one, which carries out no commands")]
    Older,
    /// The helper may not act.
    #[error("its helper carries out no commands: {0}")]
    NoAction(#[from] ActError),
    /// The helper's thread could not be started, or has ended.
    #[error("its helper carries out no commands: it could not start a thread, or that has ended")]
    Ended,
}

/// Ring of a process. Its header alone is mapped: two pages at most that uvmd pays for.
const RING: Form = Form {
    name: NAME,
    bytes: NonZeroUsize::new(TOTAL_BYTES).unwrap(),
    mapped_bytes: NonZeroUsize::new(HEADER_BYTES).unwrap(),
};

/// Ring whose helper carries out commands.
#[derive(Debug)]
pub(crate) struct Ring(Arc<SharedMemory>);

/// Search for the ring of a process, which is made once for each program that the process executes.
#[derive(Clone, Debug, Default)]
pub(crate) struct RingSearch {
    /// Process, the program that it executed, and what was found; no memory without a helper.
    found: Option<(u32, Image, Option<Arc<SharedMemory>>)>,
}

impl RingSearch {
    fn memory(&mut self, roots: &Roots, pid: u32) -> Result<Option<Arc<SharedMemory>>, SharedMemoryError> {
        let image = || processes::image(roots, pid).ok().flatten();
        let before = image();
        if let (Some((of, known, memory)), Some(before)) = (&self.found, before)
            && (*of, *known) == (pid, before)
        {
            return Ok(memory.clone());
        }
        let memory = SharedMemory::of_process(roots, pid, RING)?.map(Arc::new);
        let after = image().filter(|after| before == Some(*after));
        self.found = after.map(|image| (pid, image, memory.clone()));
        Ok(memory)
    }
}

impl Ring {
    /// Ring of a process, whose helper acts from now on. May read the process's mappings, which may
    /// hang.
    pub(crate) fn open(search: &mut RingSearch, roots: &Roots, process: &PidFd) -> Result<Self, RingError> {
        let ring = Self::look_up(search, roots, process)?;
        permission::act(roots, process.pid(), &ring.header()?)?;
        ring.commands()?;
        Ok(ring)
    }

    /// Ring of a process with commands, whose helper is not made to act. May read the process's
    /// mappings, which may hang.
    pub(crate) fn look_up(search: &mut RingSearch, roots: &Roots, process: &PidFd) -> Result<Self, RingError> {
        let ring = Self(search.memory(roots, process.pid())?.ok_or(RingError::Absent)?);
        if ring.header()?.has_commands() { Ok(ring) } else { Err(RingError::Older) }
    }

    /// Header, unless the ring has holes: one that is punched just then costs uvmd a page.
    fn header(&self) -> Result<Memory<'_>, RingError> {
        // Where the kernel does not say, there may be some.
        if self.0.has_holes().unwrap_or(true) {
            return Err(RingError::Sparse);
        }
        Ok(Memory::open(&self.0)?)
    }

    /// Place of the command. The process may have overwritten anything since the last call.
    pub(super) fn commands(&self) -> Result<Commands<'_>, RingError> {
        let commands = self.header()?.commands();
        if commands.agent() == AgentState::Ended { Err(RingError::Ended) } else { Ok(commands) }
    }

    /// Place of the command, if the process may carry one out.
    pub(super) fn place(&self) -> Option<Commands<'_>> {
        self.commands().ok()
    }
}

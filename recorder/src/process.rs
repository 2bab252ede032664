//! The ring of a process.

use std::num::NonZeroUsize;

use call_ring::{Memory, Mode, NAME, TOTAL_BYTES, call::Call};
use sys::{
    Roots,
    shared_memory::{Form, SharedMemory, SharedMemoryError},
};
use thiserror::Error;

use crate::merge::{Losses, Merge};

/// Reason why a process's calls are not read.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// Its memory is not readable.
    #[error(transparent)]
    Memory(#[from] SharedMemoryError),
    /// Its memory is no ring of this version.
    #[error("its shared memory is no ring of the helper: {0}")]
    Ring(#[from] call_ring::Invalid),
}

/// A process with the helper in it.
#[derive(Debug)]
pub struct Process {
    memory: SharedMemory,
    merge: Merge,
}

impl Process {
    /// Finds the ring of a process; `None` if it has none.
    ///
    /// # Errors
    /// If there is one that cannot be read.
    pub fn find(roots: &Roots, pid: u32) -> Result<Option<Self>, ProcessError> {
        const BYTES: NonZeroUsize = NonZeroUsize::new(TOTAL_BYTES).unwrap();
        let form = Form { name: NAME, bytes: BYTES, mapped_bytes: BYTES };
        let Some(memory) = SharedMemory::of_process(roots, pid, form)? else { return Ok(None) };
        Memory::open(&memory)?;
        Ok(Some(Self { memory, merge: Merge::default() }))
    }

    /// Tells the helper to record, or to pass calls through.
    ///
    /// # Errors
    /// If the process has overwritten the header.
    pub fn set_mode(&self, mode: Mode) -> Result<(), ProcessError> {
        Memory::open(&self.memory)?.set_mode(mode);
        Ok(())
    }

    /// Calls since the last poll, in their order.
    ///
    /// # Errors
    /// If the process has overwritten the header.
    pub fn poll(&mut self) -> Result<Vec<Call>, ProcessError> {
        let memory = Memory::open(&self.memory)?;
        Ok(self.merge.poll(&memory))
    }

    /// The same between two polls, of which each still waits as long for calls that are missing.
    ///
    /// # Errors
    /// If the process has overwritten the header.
    pub fn poll_early(&mut self) -> Result<Vec<Call>, ProcessError> {
        let memory = Memory::open(&self.memory)?;
        Ok(self.merge.poll_early(&memory))
    }

    /// Last calls of a process that has exited, also those that waited for others.
    ///
    /// # Errors
    /// If the process has overwritten the header.
    pub fn finish(&mut self) -> Result<Vec<Call>, ProcessError> {
        let mut calls = self.poll()?;
        calls.extend(self.merge.finish());
        Ok(calls)
    }

    /// Calls that are not among those that were returned.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        self.merge.losses()
    }
}

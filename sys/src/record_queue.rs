//! The driver's records of one VA space, in a queue of this process. They begin with its attachment.
//!
//! The cost to the process, and the lifetime of its VA space, are those of [`counters`](crate::uvm::counters).

use std::{fs::File, num::NonZeroUsize, os::fd::AsFd};

use crate::{
    holder::memory::Memory,
    uvm::{
        Status, UvmError,
        queue::{KindCounts, QueueError, QueueMemory, QueueReader, QueueReading, RECORDS},
        records::{EventKind, Record},
        target::VaSpace,
        tracker::{self, DEVICE, Layout, REQUEST_NAME},
    },
};

/// Queue of records attached to a VA space. It keeps it alive: to be dropped when the process has
/// exited.
#[derive(Debug)]
pub struct RecordQueue {
    /// Tracker, declared before `memory`: the driver releases the pages when it is closed.
    _tracker: File,
    memory: Memory,
    reader: QueueReader,
}

impl RecordQueue {
    /// Attaches a queue of records of these kinds to a VA space, on a driver of this version.
    ///
    /// # Errors
    /// If the calls of that version are unknown, there is no memory, the driver's device cannot be
    /// opened, or the driver fails the call.
    #[expect(unsafe_code, reason = "memory that the driver writes")]
    pub fn attach(va_space: &VaSpace<'_>, driver_version: &str, kinds: &[EventKind]) -> Result<Self, UvmError> {
        let layout = Layout::of(driver_version)?;
        let pages = NonZeroUsize::MIN.saturating_add(Memory::pages_of_ring(RECORDS as usize));
        let memory = Memory::new(pages).map_err(|source| UvmError::Call { request: "memfd_create", source })?;
        let tracker = tracker::open(DEVICE)?;
        let mask = kinds.iter().fold(0, |mask, kind| mask | kind.mask());
        let (control, ring) = memory
            .page(0)
            .zip(memory.ring(1, RECORDS as usize))
            .ok_or(UvmError::Refused { request: REQUEST_NAME, status: Status::INVALID_ADDRESS })?;
        // SAFETY: the memory has no other use, and is dropped after the tracker.
        unsafe { tracker::watch(tracker.as_fd(), layout, control, ring, mask, va_space.as_fd()) }?;
        Ok(Self { _tracker: tracker, memory, reader: QueueReader::new() })
    }

    /// Reads all records so far, the oldest first, and gives their places back to the driver.
    ///
    /// # Errors
    /// If the driver's position is beyond the queue. Nothing is read then.
    pub fn read(&mut self, take: impl FnMut(Record)) -> Result<QueueReading, QueueError> {
        let (control, ring) = (self.memory.page(0), self.memory.ring(1, RECORDS as usize));
        let memory = QueueMemory::new(control.unwrap_or_default(), ring.unwrap_or_default())?;
        self.reader.read(&memory, RECORDS, take)
    }

    /// Records that found no room, by kind, until the last reading.
    #[must_use]
    pub const fn dropped(&self) -> &KindCounts {
        self.reader.dropped()
    }
}

//! Ring of a process.

use std::{
    num::NonZeroUsize,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use call_ring::{
    Memory, Mode, NAME, PLAN_BYTES, PLAN_NAME, TOTAL_BYTES,
    call::Call,
    memory::{HEADER_BYTES, HEADER_WORDS},
};
use sys::{
    Roots,
    shared_memory::{Form, Search, SharedMemory, SharedMemoryError},
};
use thiserror::Error;

use crate::merge::{Losses, Merge};

/// Reason why the calls of a process are not read.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// The memory is not readable.
    #[error(transparent)]
    Memory(#[from] SharedMemoryError),
    /// The memory is not a ring of this version.
    #[error("its shared memory is not a ring of the helper: {0}")]
    Ring(#[from] call_ring::LayoutError),
}

impl ProcessError {
    /// Whether the memory may be readable in a moment.
    #[must_use]
    pub const fn is_pending(&self) -> bool {
        matches!(self, Self::Memory(SharedMemoryError::Pending))
    }

    /// Whether the memory may be readable once there is an accessor for it.
    #[must_use]
    pub const fn is_inaccessible(&self) -> bool {
        matches!(self, Self::Memory(SharedMemoryError::Hung | SharedMemoryError::NoAccessor(_)))
    }
}

/// Pause after an access that is pending.
const PENDING_PAUSE: Duration = Duration::from_millis(5);
/// Time after which a part of a poll accesses no further memory.
const PART_MAX: Duration = Duration::from_millis(20);

/// Forms of the memories. Only the header of the ring may be written, so that at most two of its pages are
/// charged to uvmd.
pub(crate) const FORMS: [Form; 2] = [
    Form {
        name: NAME,
        bytes: NonZeroUsize::new(TOTAL_BYTES).unwrap(),
        writable_bytes: NonZeroUsize::new(HEADER_BYTES).unwrap(),
    },
    Form {
        name: PLAN_NAME,
        bytes: NonZeroUsize::new(PLAN_BYTES).unwrap(),
        writable_bytes: NonZeroUsize::new(PLAN_BYTES).unwrap(),
    },
];

/// Memories shared by the helper in a process.
#[derive(Clone, Debug)]
pub struct Memories {
    /// Ring, with the area for commands.
    pub ring: Arc<SharedMemory>,
    /// Memory for plans, or the reason why it is not readable; `None` if the helper does not follow
    /// plans.
    pub plan: Result<Option<Arc<SharedMemory>>, String>,
}

impl Memories {
    /// Opens the memories that a search has found; `None` without a ring.
    pub(crate) fn open(search: Search<2>) -> Result<Option<Self>, SharedMemoryError> {
        let [ring, plan] = search.open();
        let plan = plan.map(|plan| plan.map(Arc::new)).map_err(|error| error.to_string());
        Ok(ring?.map(|ring| Self { ring: Arc::new(ring), plan }))
    }
}

/// Process with the helper.
#[derive(Debug)]
pub struct Process {
    memories: Memories,
    merge: Merge,
}

impl Process {
    /// Finds the ring of a process by the id of one of its threads; `None` without a ring. Reads
    /// all mappings of the process. Waits for accesses that are pending.
    ///
    /// # Errors
    /// If the process has a ring that cannot be read.
    pub fn find(roots: &Roots, thread: u32) -> Result<Option<Self>, ProcessError> {
        let mut search = Search::begin(roots, thread, FORMS)?;
        while !search.advance(u64::MAX)? {}
        Memories::open(search)?.map(|memories| with_retries(|| Self::new(memories.clone()))).transpose()
    }

    /// Creates a process from its memories.
    pub(crate) fn new(memories: Memories) -> Result<Self, ProcessError> {
        match memories.ring.copy_words(HEADER_WORDS).map_err(ProcessError::from) {
            // Each part checks the header.
            Err(error) if error.is_inaccessible() => {}
            words => {
                Memory::open(&words?)?;
            }
        }
        Ok(Self { memories, merge: Merge::default() })
    }

    /// Memories of the process.
    #[must_use]
    pub const fn memories(&self) -> &Memories {
        &self.memories
    }

    /// Sets the mode of the helper. Waits for accesses that are pending.
    ///
    /// # Errors
    /// If the process has overwritten the header, or its memory is not accessible.
    pub fn set_mode(&self, mode: Mode) -> Result<(), ProcessError> {
        let ring = &self.memories.ring;
        let words = ring.with_retries(|ring| ring.copy_words(HEADER_WORDS))?;
        let operation = Memory::open(&words)?.set_mode(mode);
        ring.with_retries(|ring| ring.write([operation], None))?;
        Ok(())
    }

    /// Reads the calls since the last poll, in order. Waits for accesses that are pending.
    ///
    /// # Errors
    /// As [`Self::poll_part`].
    pub fn poll(&mut self) -> Result<Vec<Call>, ProcessError> {
        let mut calls = with_retries(|| self.poll_part())?;
        while self.has_more() {
            calls.append(&mut with_retries(|| self.poll_part())?);
        }
        Ok(calls)
    }

    /// Reads a part of a poll.
    ///
    /// # Errors
    /// If the process has overwritten the header or punched holes, or its memory is not accessible, at least now.
    pub fn poll_part(&mut self) -> Result<Vec<Call>, ProcessError> {
        let Self { memories: Memories { ring, .. }, merge } = self;
        let words = ring.copy_words(HEADER_WORDS)?;
        let memory = Memory::open(&words)?;
        // From here on, so that each part makes at least one access to a lane.
        let begun = Instant::now();
        let mut is_over = false;
        // The heads of lanes were read by a request before this one, so that all records before them are there.
        let calls = merge.poll_part(&memory, |offset, bytes| {
            // Each of many accesses could take nearly the time after which it is pending.
            is_over = begun.elapsed() >= PART_MAX;
            if is_over { Err(SharedMemoryError::Pending) } else { ring.read_at(offset as u64, bytes) }
        });
        let calls = if is_over { Ok(merge.release()) } else { calls };
        // Also the records before an error are not read again.
        let operations = merge.consumed(&memory);
        if !operations.is_empty() {
            match ring.post(operations, None) {
                Ok(()) => merge.set_consumed(),
                // The next part does it.
                Err(SharedMemoryError::Pending) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(calls?)
    }

    /// Whether the poll has further parts.
    #[must_use]
    pub const fn has_more(&self) -> bool {
        self.merge.has_more()
    }

    /// Returns the calls that wait for missing calls, for a process that has exited.
    pub fn drain_waiting(&mut self) -> Vec<Call> {
        self.merge.finish()
    }

    /// Reads the last calls of a process that has exited, including calls that waited for missing
    /// ones.
    ///
    /// # Errors
    /// As [`Self::poll_part`].
    pub fn finish(&mut self) -> Result<Vec<Call>, ProcessError> {
        let mut calls = self.poll()?;
        calls.extend(self.merge.finish());
        Ok(calls)
    }

    /// Counts of lost calls.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        self.merge.losses()
    }
}

/// Repeats an access while it is pending, which an accessor ends within seconds.
fn with_retries<T>(mut access: impl FnMut() -> Result<T, ProcessError>) -> Result<T, ProcessError> {
    loop {
        match access() {
            Err(error) if error.is_pending() => thread::sleep(PENDING_PAUSE),
            result => return result,
        }
    }
}

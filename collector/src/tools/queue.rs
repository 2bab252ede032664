//! A queue of records that is read, in the memory of a VA space.

use sys::{
    trackers::Memory,
    uvm::{
        queue::{KindCounts, QueueError, QueueMemory, QueueReader, RECORDS},
        records::{EventKind, Record},
    },
};

/// Maximum of records that one reading takes, so that a fast writer cannot keep it busy.
const READ_MAX: u32 = 2 * RECORDS;

/// Queue of records of some kinds: a control page, and the ring after it.
pub(super) struct Queue {
    control_page: u32,
    kinds: &'static [EventKind],
    reader: QueueReader,
    /// Whether the last reading left records.
    is_behind: bool,
    /// Reason why it is not read any more.
    broken: Option<QueueError>,
    /// Dropped records at the last call of [`Self::has_dropped`].
    dropped_before: u64,
}

impl Queue {
    /// Queue whose control page is this page of a memory.
    pub(super) fn new(control_page: u32, kinds: &'static [EventKind]) -> Self {
        Self { control_page, kinds, reader: QueueReader::new(), is_behind: false, broken: None, dropped_before: 0 }
    }

    /// Pages of a queue.
    pub(super) fn pages() -> usize {
        1 + Memory::pages_of_ring(RECORDS as usize)
    }

    /// Kinds of its records.
    pub(super) const fn kinds(&self) -> &'static [EventKind] {
        self.kinds
    }

    /// Control page, records and mask of kinds.
    pub(super) fn request(&self) -> (u32, u32, u64) {
        (self.control_page, RECORDS, mask(self.kinds))
    }

    /// Reads at most `max` of the records so far, and returns how many.
    pub(super) fn read(&mut self, memory: &Memory, max: u32, take: impl FnMut(Record)) -> u32 {
        let ring = memory.ring(self.control_page as usize + 1, RECORDS as usize);
        let Some((control, ring)) = memory.page(self.control_page as usize).zip(ring) else { return 0 };
        if self.broken.is_some() {
            return 0;
        }
        let reader = &mut self.reader;
        match QueueMemory::new(control, ring).and_then(|memory| reader.read(&memory, max.min(READ_MAX), take)) {
            Ok(reading) => {
                self.is_behind = reading.left() > 0;
                reading.read
            }
            Err(error) => {
                self.broken = Some(error);
                0
            }
        }
    }

    /// Expects records until the next reading.
    pub(super) const fn expect_records(&mut self) {
        self.is_behind = true;
    }

    /// Whether records are in it that were not read.
    pub(super) const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Reason why it is not read any more.
    pub(super) const fn broken(&self) -> Option<QueueError> {
        self.broken
    }

    /// Records that found no room so far.
    pub(super) const fn dropped(&self) -> &KindCounts {
        self.reader.dropped()
    }

    /// Whether records found no room since the last call.
    pub(super) fn has_dropped(&mut self) -> bool {
        let dropped = self.dropped().sum();
        std::mem::replace(&mut self.dropped_before, dropped) < dropped
    }
}

/// Mask of kinds.
pub(super) fn mask(kinds: &[EventKind]) -> u64 {
    kinds.iter().fold(0, |mask, kind| mask | kind.mask())
}

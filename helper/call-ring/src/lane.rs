//! Lane: a ring buffer of records with one producer and one consumer.
//!
//! The header has two cache lines. The producer's comes first: head (records written since the start),
//! dropped (calls that did not fit), owner (thread, or 0), lock (of a shared lane). Then the
//! consumer's: tail (records read since the start).

use core::ops::Range;

use crate::{
    operation::Operation,
    record::{RECORD_BYTES, RECORD_WORDS, Record},
    sync::{AtomicU64, Ordering},
    word::{self, Word, copyable},
};

const HEAD: usize = 0;
const DROPPED: usize = 1;
const OWNER: usize = 2;
const LOCK: usize = 3;
const TAIL: usize = 8;

/// Lane of the ring.
#[derive(Debug)]
pub struct Lane<'a, W = AtomicU64> {
    header: &'a [W],
    /// First word of the header in the memory.
    header_at: usize,
    words: &'a [W],
    /// Offset of the first record in the memory.
    offset_bytes: usize,
    /// Capacity in records, a power of two.
    capacity: usize,
}

copyable!(Lane);

/// Unread records of a lane.
#[derive(Clone, Copy, Debug)]
pub struct Unread {
    /// Position of the first record.
    position: u64,
    records: usize,
}

impl Unread {
    /// Position of the first record: the count of records before it since the start.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Skips the first records.
    pub fn skip(&mut self, records: usize) {
        self.position = self.position.wrapping_add(records as u64);
        self.records = self.records.saturating_sub(records);
    }

    /// Number of records.
    #[must_use]
    pub const fn records(&self) -> usize {
        self.records
    }
}

impl<'a, W: Word> Lane<'a, W> {
    /// Lane with this header and these record words, which are empty if only the header is there.
    pub(crate) const fn new(
        header: &'a [W],
        header_at: usize,
        words: &'a [W],
        offset_bytes: usize,
        capacity: usize,
    ) -> Self {
        Self { header, header_at, words, offset_bytes, capacity }
    }

    fn load(&self, at: usize) -> u64 {
        word::load(self.header, at)
    }

    /// Calls that did not fit, since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.load(DROPPED)
    }

    /// Unread records, from a position that a former call has reached. With an invalid head, the lane counts as
    /// empty.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "within the capacity")]
    pub fn unread(&self, position: Option<u64>) -> Unread {
        let position = position.unwrap_or_else(|| self.load(TAIL));
        let records = Some(self.load(HEAD).wrapping_sub(position)).filter(|records| *records <= self.capacity as u64);
        Unread { position, records: records.unwrap_or(0) as usize }
    }

    /// Byte ranges of the first `records` unread records in the memory. The second range is the part that
    /// wraps around.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "masked by the capacity")]
    pub fn byte_ranges(&self, unread: &Unread, records: usize) -> [Range<usize>; 2] {
        let first = unread.position as usize & (self.capacity - 1);
        let contiguous = records.min(self.capacity - first);
        let byte_range = |first: usize, records: usize| {
            let begin = self.offset_bytes + first * RECORD_BYTES;
            begin..begin + records * RECORD_BYTES
        };
        [byte_range(first, contiguous), byte_range(0, records - contiguous)]
    }

    /// Consumes the records before a position: the producer may overwrite them.
    #[must_use]
    pub const fn consume(&self, position: u64) -> Operation {
        Operation::Store { at: self.header_at + TAIL, value: position }
    }

    /// Capacity in records.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }
}

impl<'a> Lane<'a> {
    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.header.get(at) {
            word.store(value, Ordering::Release);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "masked by the capacity")]
    fn slot(&self, position: u64) -> &'a [AtomicU64] {
        let at = (position as usize & (self.capacity - 1)) * RECORD_WORDS;
        self.words.get(at..at + RECORD_WORDS).unwrap_or_default()
    }

    /// Acquires the lane for a thread; false if the lane has an owner.
    #[must_use]
    pub fn acquire(&self, thread: u32) -> bool {
        let owner = self.header.get(OWNER);
        owner.is_some_and(|word| word.compare_exchange(0, thread.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    /// Releases the lane for another thread.
    pub fn release(&self) {
        self.store(OWNER, 0);
    }

    /// Locks a shared lane; false if another thread has the lock. The caller then tries another lane.
    #[must_use]
    pub fn try_lock(&self) -> bool {
        let lock = self.header.get(LOCK);
        lock.is_some_and(|word| word.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    /// Unlocks a shared lane.
    pub fn unlock(&self) {
        self.store(LOCK, 0);
    }

    /// Whether `records` more records fit. For the producer: only its own writes reduce the room.
    #[must_use]
    pub fn has_room(&self, records: usize) -> bool {
        let used = self.load(HEAD).wrapping_sub(self.load(TAIL));
        used.checked_add(records as u64).is_some_and(|used| used <= self.capacity as u64)
    }

    /// Writes the record at `ahead` records after the head, unseen by the consumer until it is published.
    pub fn write(&self, ahead: usize, record: Record) {
        let slot = self.slot(self.load(HEAD).wrapping_add(ahead as u64));
        for (word, value) in slot.iter().zip(record.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Publishes `records` records.
    pub fn publish(&self, records: usize) {
        self.store(HEAD, self.load(HEAD).wrapping_add(records as u64));
    }

    /// Counts a call that did not fit.
    pub fn count_dropped(&self) {
        if let Some(word) = self.header.get(DROPPED) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }
}

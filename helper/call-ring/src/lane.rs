//! Lane of the ring: records of one producer and one consumer.
//!
//! Its header has two cache lines. First the producer's: head (records ever written), dropped
//! (calls that did not fit), owner (thread, or 0), lock (of a shared lane). Then the consumer's:
//! tail (records ever read).

use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::record::{RECORD_BYTES, RECORD_WORDS, Record};

const HEAD: usize = 0;
const DROPPED: usize = 1;
const OWNER: usize = 2;
const LOCK: usize = 3;
const TAIL: usize = 8;

/// Lane of the ring.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'a> {
    header: &'a [AtomicU64],
    words: &'a [AtomicU64],
    /// Place of its first record in the memory, in bytes.
    begin: usize,
    /// Records, a power of two.
    capacity: usize,
}

/// Records of a lane that wait for the consumer.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Position of the first one.
    position: u64,
    records: usize,
}

impl Waiting {
    /// Number of records.
    #[must_use]
    pub const fn records(&self) -> usize {
        self.records
    }
}

impl<'a> Lane<'a> {
    /// Lane with this header and these records, which are empty where the header alone is mapped.
    pub(crate) const fn new(header: &'a [AtomicU64], words: &'a [AtomicU64], begin: usize, capacity: usize) -> Self {
        Self { header, words, begin, capacity }
    }

    fn load(&self, at: usize) -> u64 {
        self.header.get(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

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

    /// Takes the lane for a thread, if nobody has it.
    #[must_use]
    pub fn acquire(&self, thread: u32) -> bool {
        let owner = self.header.get(OWNER);
        owner.is_some_and(|word| word.compare_exchange(0, thread.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    /// Gives the lane up, for another thread to take.
    pub fn release(&self) {
        self.store(OWNER, 0);
    }

    /// Locks a lane that threads share. Nobody waits: on failure, the call goes to another lane.
    #[must_use]
    pub fn try_lock(&self) -> bool {
        let lock = self.header.get(LOCK);
        lock.is_some_and(|word| word.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    /// Unlocks it.
    pub fn unlock(&self) {
        self.store(LOCK, 0);
    }

    /// Whether so many records fit. For the producer, whose next records then do.
    #[must_use]
    pub fn has_room(&self, records: usize) -> bool {
        let used = self.load(HEAD).wrapping_sub(self.load(TAIL));
        used.checked_add(records as u64).is_some_and(|used| used <= self.capacity as u64)
    }

    /// Writes a record `ahead` of the head, where the consumer does not see it yet.
    pub fn write(&self, ahead: usize, record: Record) {
        let slot = self.slot(self.load(HEAD).wrapping_add(ahead as u64));
        for (word, value) in slot.iter().zip(record.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Shows the consumer so many records more.
    pub fn publish(&self, records: usize) {
        self.store(HEAD, self.load(HEAD).wrapping_add(records as u64));
    }

    /// Counts a call that did not fit.
    pub fn count_dropped(&self) {
        if let Some(word) = self.header.get(DROPPED) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls that did not fit, ever.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.load(DROPPED)
    }

    /// Records that wait for the consumer. A head that no producer can have written counts as that of
    /// an empty lane.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "within the capacity")]
    pub fn waiting(&self) -> Waiting {
        let (head, position) = (self.load(HEAD), self.load(TAIL));
        let records = Some(head.wrapping_sub(position)).filter(|records| *records <= self.capacity as u64);
        Waiting { position, records: records.unwrap_or(0) as usize }
    }

    /// Places of the first of these records in the memory, in bytes: in two parts where the lane begins
    /// anew.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "masked by the capacity")]
    pub fn places(&self, waiting: &Waiting, records: usize) -> [Range<usize>; 2] {
        let first = waiting.position as usize & (self.capacity - 1);
        let in_a_row = records.min(self.capacity - first);
        let place = |first: usize, records: usize| {
            let begin = self.begin + first * RECORD_BYTES;
            begin..begin + records * RECORD_BYTES
        };
        [place(first, in_a_row), place(0, records - in_a_row)]
    }

    /// Gives the producer the room of the first of these records, which were copied.
    pub fn consume(&self, waiting: &mut Waiting, records: usize) {
        waiting.position = waiting.position.wrapping_add(records as u64);
        waiting.records = waiting.records.saturating_sub(records);
        self.store(TAIL, waiting.position);
    }

    /// Most records that a lane holds.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }
}

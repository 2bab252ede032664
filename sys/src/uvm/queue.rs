//! Queues of the driver's tools interface: a ring of records and a control page, in memory that the
//! driver writes too.
//!
//! The control page (`UvmToolsEventControlData_V1`) has the reader's position twice (`get_ahead`,
//! `get_behind`), the writer's twice (`put_ahead`, `put_behind`), 32 bits each, and then the number
//! of dropped records of each kind, 64 bits each. The ring has a power of two of records, one of
//! which stays free. The driver never waits for the reader: it counts a record that finds no room
//! as dropped.
//!
//! Whoever maps the memory may write it. So every number in it is a claim: the reader keeps its own
//! position, and a position of the writer beyond the ring is an error. Dropped records are only ever
//! counted upwards.
//!
//! * [`QueueMemory`], [`QueueReader`]: a queue whose records are read
//! * [`FullQueue`]: a queue that counts, and is never read
//! * [`KindCounts`]: counts of records by kind

use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use super::records::{EventKind, KINDS, RECORD_WORDS, Record};

/// Index of the reader's positions in the control page, in 64-bit words.
const GET: usize = 0;
/// Index of the writer's positions.
const PUT: usize = 1;
/// Index of the dropped records of kind 0.
const DROPPED: usize = 2;
/// Words of the control page.
pub const CONTROL_WORDS: usize = DROPPED + KINDS;

/// Records of the ring of a queue that is read: 1 MiB. Copies of 64 KiB at the full rate of a link fill
/// it in 40 ms.
pub const RECORDS: u32 = 16_384;
/// Records of the ring of a [`FullQueue`], the driver's minimum.
pub const FULL_QUEUE_RECORDS: usize = 2;
/// Maximum of records of a ring: the driver's positions are 32 bits.
const RECORDS_MAX: usize = 1 << 31;

/// Error of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QueueError {
    /// The control page is smaller than the driver's.
    #[error("the control page has {words} words, less than {CONTROL_WORDS}")]
    Control {
        /// Words of the page.
        words: usize,
    },
    /// The ring has no power of two of records, at least two.
    #[error("the ring has {words} words, which is no power of two of records")]
    Ring {
        /// Words of the ring.
        words: usize,
    },
    /// The writer's position is beyond the ring.
    #[error("the driver's position {put} is beyond the {records} records of the ring")]
    WildPosition {
        /// Position.
        put: u32,
        /// Records of the ring.
        records: u32,
    },
    /// A queue that only counts has taken a record, which is in no count.
    #[error("the queue is not full: the driver's position is {put}")]
    NotFull {
        /// Position of the writer.
        put: u32,
    },
}

/// Counts of records, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindCounts([u64; KINDS]);

impl Default for KindCounts {
    fn default() -> Self {
        Self([0; KINDS])
    }
}

impl KindCounts {
    /// Count of a kind.
    #[must_use]
    pub fn of(&self, kind: EventKind) -> u64 {
        self.0.get(usize::from(kind.number())).copied().unwrap_or_default()
    }

    /// Sum over all kinds, unknown ones included.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Increase since earlier counts; 0 where they decreased.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut increase = *self;
        for (count, earlier) in increase.0.iter_mut().zip(earlier.0) {
            *count = count.saturating_sub(earlier);
        }
        increase
    }

    /// Sum with the counts of another queue.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (count, other) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(other);
        }
        self
    }

    /// Reads the dropped records of a control page.
    fn read(control: &[AtomicU64]) -> Self {
        let mut counts = Self::default();
        for (count, word) in counts.0.iter_mut().zip(control.iter().skip(DROPPED)) {
            *count = word.load(Ordering::Acquire);
        }
        counts
    }

    /// Raises each count to that of `other`.
    fn raise(&mut self, other: &Self) {
        for (count, other) in self.0.iter_mut().zip(other.0) {
            *count = other.max(*count);
        }
    }
}

/// Memory of a queue: shared with the driver, and with nobody who is trusted.
#[derive(Clone, Copy, Debug)]
pub struct QueueMemory<'a> {
    control: &'a [AtomicU64],
    ring: &'a [[AtomicU64; RECORD_WORDS]],
    /// Records of the ring.
    records: u32,
}

impl<'a> QueueMemory<'a> {
    /// Memory of a control page and a ring.
    ///
    /// # Errors
    /// If the page is too small, or the ring has no power of two of records.
    pub fn new(control: &'a [AtomicU64], ring: &'a [AtomicU64]) -> Result<Self, QueueError> {
        let words = ring.len();
        let (ring, rest) = ring.as_chunks();
        if control.len() < CONTROL_WORDS {
            return Err(QueueError::Control { words: control.len() });
        }
        let is_ring = rest.is_empty() && ring.len() >= 2 && ring.len().is_power_of_two() && ring.len() <= RECORDS_MAX;
        match u32::try_from(ring.len()) {
            Ok(records) if is_ring => Ok(Self { control, ring, records }),
            _ => Err(QueueError::Ring { words }),
        }
    }

    /// Position of the writer.
    fn put(&self) -> Result<u32, QueueError> {
        let word = self.control.get(PUT).map_or(0, |word| word.load(Ordering::Acquire));
        // `put_behind`, which the driver writes last.
        let put = high(word);
        if put < self.records { Ok(put) } else { Err(QueueError::WildPosition { put, records: self.records }) }
    }

    fn record(&self, at: u32) -> Option<Record> {
        let words = self.ring.get(usize::try_from(at).ok()?)?;
        Some(Record::from_words(words.each_ref().map(|word| word.load(Ordering::Relaxed))))
    }
}

/// Result of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueReading {
    /// Records read.
    pub read: u32,
    /// Records that were in the queue at the start of the reading.
    pub pending: u32,
}

impl QueueReading {
    /// Records that are left for the next reading.
    #[must_use]
    pub const fn left(self) -> u32 {
        self.pending.saturating_sub(self.read)
    }
}

/// Reader of a queue. It has no reference to the memory, whose owner may move it.
#[derive(Clone, Debug, Default)]
pub struct QueueReader {
    /// Position of the next record: the reader's own, whatever the memory has.
    get: u32,
    dropped: KindCounts,
}

impl QueueReader {
    /// Reader of a new queue, whose control page is all zeros.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads at most `max` records, the oldest first, and gives their places back to the driver.
    ///
    /// # Errors
    /// If the writer's position is beyond the ring. Nothing is read then.
    pub fn read(
        &mut self,
        memory: &QueueMemory<'_>,
        max: u32,
        mut take: impl FnMut(Record),
    ) -> Result<QueueReading, QueueError> {
        let put = memory.put()?;
        let mask = memory.records - 1;
        let pending = put.wrapping_sub(self.get) & mask;
        let read = pending.min(max);
        for _ in 0..read {
            self.get &= mask;
            if let Some(record) = memory.record(self.get) {
                take(record);
            }
            self.get = self.get.wrapping_add(1) & mask;
        }
        if let Some(word) = memory.control.get(GET) {
            // Both copies at once. Records are read before their places are free.
            word.store(u64::from(self.get) << 32 | u64::from(self.get), Ordering::Release);
        }
        self.dropped.raise(&KindCounts::read(memory.control));
        Ok(QueueReading { read, pending })
    }

    /// Records that found no room, by kind, since the queue's start.
    #[must_use]
    pub const fn dropped(&self) -> &KindCounts {
        &self.dropped
    }
}

/// Queue of [`FULL_QUEUE_RECORDS`] that is full from the start, so that the driver counts every
/// record as dropped: exact counts by kind, of which none has to be read in time.
#[derive(Clone, Debug, Default)]
pub struct FullQueue {
    counts: KindCounts,
}

impl FullQueue {
    /// Fills the queue of a control page that is all zeros. To be called before the driver is asked
    /// for events.
    ///
    /// # Errors
    /// If the page is too small.
    pub fn new(control: &[AtomicU64]) -> Result<Self, QueueError> {
        match control.get(GET) {
            // The next record to read is the one after the next to write.
            Some(word) if control.len() >= CONTROL_WORDS => word.store(1 << 32 | 1, Ordering::Release),
            _ => return Err(QueueError::Control { words: control.len() }),
        }
        Ok(Self::default())
    }

    /// Reads the counts, which never decrease.
    ///
    /// # Errors
    /// If the queue is not full any more: records in it are in no count.
    pub fn read(&mut self, control: &[AtomicU64]) -> Result<KindCounts, QueueError> {
        if control.len() < CONTROL_WORDS {
            return Err(QueueError::Control { words: control.len() });
        }
        let put = high(control.get(PUT).map_or(0, |word| word.load(Ordering::Acquire)));
        if put != 0 {
            return Err(QueueError::NotFull { put });
        }
        self.counts.raise(&KindCounts::read(control));
        Ok(self.counts)
    }
}

/// Second of two 32-bit fields.
const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

const _: () = assert!(cfg!(target_endian = "little"), "fields are taken from words by their position");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uvm::records::{CpuFault, ProcessorIndex, Throttle};

    /// Memory of a queue, and the driver's side of it (`enqueue_event` of its `uvm_tools.c`).
    struct Driver {
        control: Vec<AtomicU64>,
        ring: Vec<AtomicU64>,
    }

    fn zeros(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    impl Driver {
        fn new(records: usize) -> Self {
            Self { control: zeros(CONTROL_WORDS), ring: zeros(records * RECORD_WORDS) }
        }

        fn memory(&self) -> QueueMemory<'_> {
            QueueMemory::new(&self.control, &self.ring).unwrap()
        }

        fn set(&self, at: usize, value: u64) {
            self.control[at].store(value, Ordering::Relaxed);
        }

        /// Writes a record of a kind, with a number as its address, or counts it as dropped.
        fn enqueue(&self, kind: EventKind, address: u64) {
            let mask = self.memory().records - 1;
            let position = |at: usize| high(self.control[at].load(Ordering::Acquire)) & mask;
            let (get, put) = (position(GET), position(PUT));
            if (mask + 1 + get - put) & mask == 1 {
                self.control[DROPPED + usize::from(kind.number())].fetch_add(1, Ordering::Relaxed);
                return;
            }
            let [first, second, ..] = self.memory().ring[put as usize].each_ref();
            first.store(u64::from(kind.number()), Ordering::Relaxed);
            second.store(address, Ordering::Relaxed);
            let next = u64::from((put + 1) & mask);
            self.set(PUT, next << 32 | next);
        }

        /// Reads at most `max` records, and returns their addresses.
        fn read(&self, reader: &mut QueueReader, max: u32) -> (QueueReading, Vec<u64>) {
            let mut addresses = Vec::new();
            let reading = reader.read(&self.memory(), max, |record| addresses.push(address(record))).unwrap();
            (reading, addresses)
        }
    }

    fn address(record: Record) -> u64 {
        match record {
            Record::CpuFault(CpuFault { address, .. })
            | Record::ThrottleStart(Throttle { address, processor: ProcessorIndex::CPU, .. }) => address,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn records_are_read_in_order_and_their_places_are_used_again() {
        let (driver, mut reader) = (Driver::new(4), QueueReader::new());
        assert_eq!(driver.read(&mut reader, 100), (QueueReading { read: 0, pending: 0 }, vec![]));
        for round in 0..10 {
            for number in 0..3 {
                driver.enqueue(EventKind::CpuFault, round * 3 + number);
            }
            let (reading, addresses) = driver.read(&mut reader, 100);
            assert_eq!(reading, QueueReading { read: 3, pending: 3 });
            assert_eq!(addresses, [round * 3, round * 3 + 1, round * 3 + 2]);
        }
        assert_eq!(reader.dropped().sum(), 0);
    }

    #[test]
    fn one_record_stays_free_and_those_without_room_are_counted_by_kind() {
        let (driver, mut reader) = (Driver::new(8), QueueReader::new());
        for number in 0..10 {
            driver.enqueue(EventKind::CpuFault, number);
        }
        driver.enqueue(EventKind::ThrottleStart, 0);
        let (reading, addresses) = driver.read(&mut reader, 100);
        assert_eq!((reading.read, addresses), (7, (0..7).collect()));
        let dropped = reader.dropped();
        assert_eq!((dropped.of(EventKind::CpuFault), dropped.of(EventKind::ThrottleStart), dropped.sum()), (3, 1, 4));
        // Read and dropped together are all.
        driver.enqueue(EventKind::ThrottleStart, 7);
        assert_eq!(driver.read(&mut reader, 100).1, [7]);
        assert_eq!(reader.dropped().sum(), 4);
    }

    #[test]
    fn reading_is_bounded_and_the_next_one_continues() {
        let (driver, mut reader) = (Driver::new(16), QueueReader::new());
        for number in 0..12 {
            driver.enqueue(EventKind::CpuFault, number);
        }
        let (reading, addresses) = driver.read(&mut reader, 5);
        assert_eq!((reading, reading.left(), addresses), (QueueReading { read: 5, pending: 12 }, 7, (0..5).collect()));
        // The places of those five are free again.
        for number in 12..20 {
            driver.enqueue(EventKind::CpuFault, number);
        }
        let (reading, addresses) = driver.read(&mut reader, 100);
        assert_eq!((reading.left(), addresses), (0, (5..20).collect()));
        assert_eq!((driver.read(&mut reader, 0).0.read, reader.dropped().sum()), (0, 0));
    }

    #[test]
    fn position_beyond_the_ring_is_an_error_and_nothing_is_read() {
        let (driver, mut reader) = (Driver::new(8), QueueReader::new());
        driver.enqueue(EventKind::CpuFault, 1);
        for put in [8, 9, u32::MAX] {
            driver.set(PUT, u64::from(put) << 32 | 1);
            let result = reader.read(&driver.memory(), 100, |record| panic!("{record:?}"));
            assert_eq!(result, Err(QueueError::WildPosition { put, records: 8 }));
        }
        driver.set(PUT, 1 << 32 | 1);
        assert_eq!(driver.read(&mut reader, 100).1, [1]);
    }

    #[test]
    fn position_of_the_reader_is_its_own() {
        let (driver, mut reader) = (Driver::new(8), QueueReader::new());
        driver.enqueue(EventKind::CpuFault, 1);
        // Somebody else moves it in the memory.
        driver.set(GET, u64::MAX);
        assert_eq!(driver.read(&mut reader, 100).1, [1]);
        assert_eq!(driver.control[GET].load(Ordering::Relaxed), 1 << 32 | 1);
    }

    #[test]
    fn counts_of_dropped_records_never_decrease() {
        let (driver, mut reader) = (Driver::new(2), QueueReader::new());
        for _ in 0..5 {
            driver.enqueue(EventKind::CpuFault, 0);
        }
        driver.read(&mut reader, 100);
        let before = *reader.dropped();
        assert_eq!(before.of(EventKind::CpuFault), 4);
        driver.set(DROPPED + usize::from(EventKind::CpuFault.number()), 1);
        driver.set(DROPPED, u64::MAX);
        driver.read(&mut reader, 100);
        assert_eq!(reader.dropped().since(&before).of(EventKind::CpuFault), 0);
        assert_eq!((reader.dropped().of(EventKind::CpuFault), reader.dropped().sum()), (4, u64::MAX));
    }

    #[test]
    fn memory_of_another_size_is_refused() {
        let control = zeros(CONTROL_WORDS);
        for words in [0, 8, 15, 17, 24, 16 + 1] {
            let error = QueueMemory::new(&control, &zeros(words)).unwrap_err();
            assert_eq!(error, QueueError::Ring { words });
        }
        let words = CONTROL_WORDS - 1;
        let small = zeros(words);
        assert_eq!(QueueMemory::new(&small, &zeros(16)).unwrap_err(), QueueError::Control { words });
        assert_eq!(FullQueue::new(&small).unwrap_err(), QueueError::Control { words });
    }

    #[test]
    fn full_queue_counts_every_record_by_kind() {
        let driver = Driver::new(FULL_QUEUE_RECORDS);
        let mut full = FullQueue::new(&driver.control).unwrap();
        assert_eq!(full.read(&driver.control), Ok(KindCounts::default()));
        for number in 0..1000 {
            driver.enqueue(if number % 10 == 0 { EventKind::ThrottleStart } else { EventKind::CpuFault }, number);
        }
        let counts = full.read(&driver.control).unwrap();
        assert_eq!((counts.of(EventKind::ThrottleStart), counts.of(EventKind::CpuFault)), (100, 900));
        assert_eq!(counts.sum(), 1000);
        assert_eq!(driver.memory().put(), Ok(0));
    }

    #[test]
    fn queue_that_was_not_filled_before_its_events_is_an_error() {
        let driver = Driver::new(FULL_QUEUE_RECORDS);
        driver.enqueue(EventKind::CpuFault, 0);
        let mut full = FullQueue::new(&driver.control).unwrap();
        assert_eq!(full.read(&driver.control), Err(QueueError::NotFull { put: 1 }));
    }
}

//! `sys::uvm::queue`: the reader of a queue of the driver's tools interface.
//!
//! Input: size of the ring, and steps: records that the driver writes, readings, and words that
//! somebody else writes. A reading ends, gives no more records than asked for or than the ring
//! has, and no count decreases. As long as nobody else writes, every record is read once and in
//! order, or counted as dropped.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
};

use sys::uvm::{
    queue::{CONTROL_WORDS, FULL_QUEUE_RECORDS, FullQueue, QueueMemory, QueueReader},
    records::{EventKind, RECORD_WORDS, Record, Throttle},
};

/// Largest ring, as a power of two.
const RECORDS_LOG2_MAX: u8 = 6;

pub(super) fn run(input: &[u8]) {
    let [log2, steps @ ..] = input else { return };
    let (read, full) = (Memory::new(1 << (1 + log2 % RECORDS_LOG2_MAX)), Memory::new(FULL_QUEUE_RECORDS));
    let mut reader = QueueReader::new();
    let mut full_queue = FullQueue::new(&full.control).expect("the page is large enough");
    // Addresses of the records that are to be read, while the memory is left alone.
    let mut expected = Some(VecDeque::new());
    let (mut written, mut taken, mut counted) = (0, 0, 0);
    for step in steps.as_chunks::<3>().0 {
        match *step {
            [0, repeat, _] => {
                for _ in 0..repeat {
                    written += 1;
                    full.enqueue(written);
                    if read.enqueue(written) && let Some(expected) = &mut expected {
                        expected.push_back(written);
                    }
                }
            }
            [1, max, _] => {
                let dropped = *reader.dropped();
                let mut addresses = Vec::new();
                let memory = QueueMemory::new(&read.control, &read.ring).expect("a power of two");
                let reading = reader.read(&memory, max.into(), |record| addresses.push(address(record)));
                assert!(addresses.len() <= usize::from(max) && addresses.len() < read.ring.len() / RECORD_WORDS);
                assert!(reading.map_or(0, |reading| reading.read) as usize == addresses.len());
                assert_eq!(dropped.since(reader.dropped()).sum(), 0, "counts never decrease");
                if let Some(expected) = &mut expected {
                    assert!(addresses.iter().copied().eq(expected.drain(..addresses.len()).map(Some)));
                    taken += addresses.len() as u64;
                    let all = taken + expected.len() as u64 + reader.dropped().sum();
                    assert_eq!(all, written, "every record is read or dropped");
                    let counts = full_queue.read(&full.control).expect("it is full");
                    assert_eq!(counts.of(EventKind::ThrottleStart), written);
                    counted = written;
                } else if let Ok(counts) = full_queue.read(&full.control) {
                    assert!(counts.of(EventKind::ThrottleStart) >= counted);
                }
            }
            [at, high, low] => {
                expected = None;
                for memory in [&read, &full] {
                    let words = memory.control.iter().chain(&memory.ring);
                    if let Some(word) = words.cycle().nth(usize::from(at) - 2) {
                        word.store(u64::from(high) << 32 | u64::from(low), Ordering::Relaxed);
                    }
                }
            }
        }
    }
}

/// Address of a record that the driver wrote; `None` for any other.
fn address(record: Record) -> Option<u64> {
    match record {
        Record::ThrottleStart(Throttle { address, .. }) => Some(address),
        _ => None,
    }
}

/// Memory of a queue, and the driver's side of it.
struct Memory {
    control: Vec<AtomicU64>,
    ring: Vec<AtomicU64>,
}

impl Memory {
    fn new(records: usize) -> Self {
        let zeros = |words: usize| (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { control: zeros(CONTROL_WORDS), ring: zeros(records * RECORD_WORDS) }
    }

    /// Writes a record with a number as its address; `false` if there is no room.
    fn enqueue(&self, address: u64) -> bool {
        let records = self.ring.len() / RECORD_WORDS;
        let position = |at: usize| {
            let [.., one, two, three, four] = self.control[at].load(Ordering::Relaxed).to_le_bytes();
            u32::from_le_bytes([one, two, three, four]) as usize & (records - 1)
        };
        let (get, put) = (position(0), position(1));
        if (records + get - put) & (records - 1) == 1 {
            self.control[2 + usize::from(EventKind::ThrottleStart.number())].fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let record = put * RECORD_WORDS;
        self.ring[record].store(EventKind::ThrottleStart.number().into(), Ordering::Relaxed);
        self.ring[record + 1].store(address, Ordering::Relaxed);
        let next = (put as u64 + 1) & (records as u64 - 1);
        self.control[1].store(next << 32 | next, Ordering::Relaxed);
        true
    }
}

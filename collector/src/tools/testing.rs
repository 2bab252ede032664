//! The driver's side of a queue, for tests: what it writes into the memory of a VA space.

use std::sync::atomic::Ordering;

use sys::{
    trackers::Memory,
    uvm::{
        queue::RECORDS,
        records::{EventKind, RECORD_WORDS},
    },
};

/// GPU fault by a read of a page, in a batch.
pub(super) const fn gpu_fault(address: u64, time_ns: u64, batch: u32) -> [u64; RECORD_WORDS] {
    // Kind, access and GPU.
    let head = 3 | 1 << 16 | 1 << 24;
    let client = 1 << 32;
    [head, address, time_ns, 0, batch as u64 | client, 0, 0, 0]
}

/// CPU fault by a write.
pub(super) const fn cpu_fault(address: u64, time_ns: u64) -> [u64; RECORD_WORDS] {
    [1 | 2 << 8, address, time_ns, 0, 0, 0, 0, 0]
}

/// Copy of a page, from GPU 1 to the host for an eviction, or to it for a fault.
pub(super) const fn copy(is_eviction: bool, address: u64, begin_ns: u64) -> [u64; RECORD_WORDS] {
    let (cause, from, to) = if is_eviction { (4, 1, 0) } else { (2, 0, 1) };
    [2 | cause << 8 | from << 16 | to << 24, address, 4096, begin_ns, begin_ns + 5, 0, 0, 0]
}

/// Replay of a batch at GPU 1.
pub(super) const fn replay(batch: u32, time_ns: u64) -> [u64; RECORD_WORDS] {
    [4 | 1 << 8 | 1 << 16 | (batch as u64) << 32, time_ns, 0, 0, 0, 0, 0, 0]
}

/// Writes a record to the queue whose control page is this one, or counts it as dropped, as
/// `enqueue_event` of the driver's `uvm_tools.c`.
pub(super) fn enqueue(memory: &Memory, control_page: usize, record: [u64; RECORD_WORDS]) {
    let control = memory.page(control_page).unwrap();
    let ring = memory.ring(control_page + 1, RECORDS as usize).unwrap();
    let mask = u64::from(RECORDS) - 1;
    let position = |at: usize| control[at].load(Ordering::Acquire) >> 32 & mask;
    let (get, put) = (position(0), position(1));
    if get.wrapping_sub(put + 1) & mask == 0 {
        let kind = EventKind::from_number(record[0].to_le_bytes()[0]).unwrap();
        control[2 + usize::from(kind.number())].fetch_add(1, Ordering::Relaxed);
        return;
    }
    let at = usize::try_from(put).unwrap() * RECORD_WORDS;
    for (word, value) in ring[at..].iter().zip(record) {
        word.store(value, Ordering::Relaxed);
    }
    let next = (put + 1) & mask;
    control[1].store(next << 32 | next, Ordering::Release);
}

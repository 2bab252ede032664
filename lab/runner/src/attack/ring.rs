//! Ring of a hostile program: shared memory in the layout of the helper's (`helper/call-ring`), with
//! records of calls that were never made. Written anew, as the runner links nothing that it attacks.
//!
//! Numbers of words are offsets in the memory, each 8 bytes.

use std::{
    fs::File,
    hint,
    sync::atomic::{Ordering, fence},
};

use gpu::words::Words;

use crate::sys::memory;

const WORD_BYTES: u64 = 8;
const RECORD_WORDS: usize = 8;
const LANES: usize = 16;
const HEADER_BYTES: u64 = 8192;
const FIRST_LANE_RECORDS: u64 = 16384;
const LANE_RECORDS: u64 = 1024;
const RECORD_BYTES: u64 = 64;
const RING_BYTES: u64 = HEADER_BYTES + RECORD_BYTES * (FIRST_LANE_RECORDS + (LANES as u64 - 1) * LANE_RECORDS);
/// Sequence number of the next record.
const SEQUENCE: usize = 8;
/// Mode, which is to record.
const MODE: (usize, u64) = (16, 1);
/// Header of a lane: records ever written, and ever read.
const HEAD: usize = 32;
const TAIL: usize = 40;
const LANE_HEADER_WORDS: usize = 16;
/// Memory of a plan, which uvmd finds with the ring.
const PLAN_BYTES: u64 = 262_720;

/// Kinds of records, and of managed memory.
const MALLOC: u64 = 1;
const LAUNCH: u64 = 5;
const SYNC: u64 = 10;
const POINTERS: u64 = 64;
const NODE: u64 = 66;
const MANAGED: u64 = 1;
/// Flags of a launch to a node of a graph.
const TO_GRAPH: u64 = 2 << 6;

/// Shared memory of a program, as the helper makes it.
pub(super) struct Ring {
    file: File,
    words: Words,
    /// Memory of a plan.
    _plan: Words,
    /// Records ever written to lane 0.
    head: u64,
    sequence: u64,
    launches: u64,
}

impl Ring {
    /// Empty ring.
    pub(super) fn create() -> anyhow::Result<Self> {
        let (file, words) = mapped(c"uvmd-ring", RING_BYTES, *b"UVMDRING", 1 << 32 | 2)?;
        words.write(3, LANES as u64);
        words.write(MODE.0, MODE.1);
        let (_, plan) = mapped(c"uvmd-plan", PLAN_BYTES, *b"UVMDPLAN", 2 << 32 | 2)?;
        Ok(Self { file, words, _plan: plan, head: 0, sequence: 0, launches: 0 })
    }

    /// Managed memory that was allocated.
    pub(super) fn malloc(&mut self, address: u64, bytes: u64) {
        self.call(MALLOC, [0, address, bytes, MANAGED, 0], &[]);
    }

    /// Launch of a kernel with these pointers among its arguments.
    pub(super) fn launch(&mut self, function: u64, pointers: &[u64]) {
        const ONE: u64 = 1 | 1 << 32 | 1 << 48;
        self.launches += 1;
        let more: Vec<(u64, [u64; 5])> = pointers.chunks(4).enumerate().map(pointers_record).collect();
        self.call(LAUNCH, [0, 1 + function, ONE, ONE, self.launches << 32], &more);
    }

    /// Node of a graph, new or with other work.
    pub(super) fn node(&mut self, graph: u64, node: u64) {
        self.call(LAUNCH | TO_GRAPH << 8, [graph, 1, 1, 1, 0], &[(NODE, [0, node, 0, 0, 0])]);
    }

    /// Wait for all work.
    pub(super) fn sync(&mut self) {
        self.call(SYNC, [0, 1, 0, 0, 0], &[]);
    }

    /// Writes the records of a call, once there is room.
    fn call(&mut self, kind: u64, words: [u64; 5], more: &[(u64, [u64; 5])]) {
        let count = more.len() as u64;
        while self.head + count + 1 - self.words.read(TAIL) > FIRST_LANE_RECORDS {
            hint::spin_loop();
        }
        self.record(0, kind | count << 16, words);
        for (at, (kind, words)) in more.iter().enumerate() {
            self.record(at as u64 + 1, *kind, *words);
        }
        self.sequence += 1;
        self.words.write(SEQUENCE, self.sequence);
        self.head += count + 1;
        fence(Ordering::Release);
        self.words.write(HEAD, self.head);
    }

    fn record(&self, ahead: u64, kind: u64, words: [u64; 5]) {
        let slot = usize::try_from((self.head + ahead) % FIRST_LANE_RECORDS).unwrap_or(0);
        let first = (HEADER_BYTES / WORD_BYTES) as usize + slot * RECORD_WORDS;
        let all = [self.sequence, self.sequence, kind | 1 << 32].into_iter().chain(words);
        for (at, word) in all.enumerate() {
            self.words.write(first + at, word);
        }
    }

    /// Waits until all records were read.
    pub(super) fn wait_until_read(&self) {
        let is_read = |lane: usize| {
            let header = lane * LANE_HEADER_WORDS;
            self.words.read(HEAD + header) == self.words.read(TAIL + header)
        };
        while !(0..LANES).all(is_read) {
            hint::spin_loop();
        }
    }

    /// Takes the memory of all records away, and fills the lanes with records that are not there.
    pub(super) fn fill_with_holes(&mut self) -> anyhow::Result<()> {
        memory::punch(&self.file, HEADER_BYTES, RING_BYTES - HEADER_BYTES)?;
        self.head += FIRST_LANE_RECORDS;
        self.words.write(HEAD, self.head);
        for lane in 1..LANES {
            self.words.add(HEAD + lane * LANE_HEADER_WORDS, LANE_RECORDS);
        }
        Ok(())
    }
}

/// Record of four pointers at most, which follow each other among the arguments.
fn pointers_record((at, pointers): (usize, &[u64])) -> (u64, [u64; 5]) {
    let mut words = [0; 5];
    let [offsets, addresses @ ..] = &mut words;
    for ((place, pointer), address) in pointers.iter().enumerate().zip(addresses) {
        *address = *pointer;
        // Of 16 bits each.
        *offsets |= (8 * (4 * at + place) as u64) << (16 * place);
    }
    (POINTERS | (pointers.len() as u64) << 16, words)
}

/// Sealed memory with the header that both kinds have.
fn mapped(name: &std::ffi::CStr, bytes: u64, magic: [u8; 8], version: u64) -> anyhow::Result<(File, Words)> {
    let file = memory::sealed(name, bytes)?;
    let words = Words::map(&file, 0, 0, bytes)?;
    for (at, word) in [u64::from_le_bytes(magic), version, bytes].into_iter().enumerate() {
        words.write(at, word);
    }
    Ok((file, words))
}

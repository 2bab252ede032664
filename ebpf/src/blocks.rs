//! Block records: events of single 2 MiB blocks.
//!
//! Produces: `BLOCKS`, and in `RECORDS` and the VA space's entry what became of each record.
//! Cost: about 0.1 µs a record. Nobody is woken: user space comes by in time.
//!
//! Counts do not depend on them. Each CPU may write only so many in a tenth of a second, and only while a quarter of the ring is free: the rest is
//! left out, which is counted. What is resident is always told, if there is room at all: what is not told stays wrong until the block changes again.

use abi::{
    BlockRecord, RecordFate, RecordKind,
    block::{BLOCK_BYTES, RESIDENT_UNKNOWN, WINDOW_NS},
};
use aya_ebpf::{
    helpers::generated::bpf_ktime_get_boot_ns,
    macros::map,
    maps::{PerCpuArray, RingBuf},
};

use crate::{
    counting::Known,
    maps::{RECORD_LIMIT, increment, layout},
    memory,
};

/// The loader sets its size.
#[map]
static BLOCKS: RingBuf = RingBuf::with_byte_size(1024 * 1024, 0);

#[map]
static RECORDS: PerCpuArray<u64> = PerCpuArray::with_max_entries(RecordFate::COUNT, 0);

/// What one CPU has written lately.
#[derive(Clone, Copy)]
#[repr(C)]
struct Window {
    began_ns: u64,
    records: u64,
}

#[map]
static WINDOWS: PerCpuArray<Window> = PerCpuArray::with_max_entries(1, 0);

const BPF_RB_NO_WAKEUP: u64 = 1;
const BPF_RB_AVAIL_DATA: u64 = 0;

/// An event of a block, for a record.
#[derive(Clone, Copy)]
pub struct BlockEvent {
    /// Any address in it.
    pub address: u64,
    /// The GPU.
    pub gpu: u32,
    /// What happened.
    pub kind: RecordKind,
    /// Why, of a copy.
    pub cause: u32,
    /// How often.
    pub events: u64,
    /// Bytes copied or populated.
    pub bytes: u64,
    /// In which of its slots, where that is known.
    pub slots: u32,
    /// Pages that are resident at the GPU.
    pub resident_pages: u16,
}

impl BlockEvent {
    /// Something that happened once.
    #[inline(always)]
    pub const fn of(address: u64, gpu: u32, kind: RecordKind) -> Self {
        Self { address, gpu, kind, cause: 0, events: 1, bytes: 0, slots: 0, resident_pages: RESIDENT_UNKNOWN }
    }
}

/// Whether records are wanted at all.
#[inline(always)]
pub fn are_wanted() -> bool {
    limit() > 0
}

#[inline(always)]
fn limit() -> u64 {
    let limit = &raw const RECORD_LIMIT.per_window;
    // SAFETY: a field of a static that nothing writes while programs run. Volatile, as the loader fills it in.
    u64::from(unsafe { limit.read_volatile() })
}

/// Writes a record, or counts that it was not written.
#[inline(always)]
pub fn record(space: &Known, event: &BlockEvent) {
    if are_wanted() {
        write_or_count(space, event);
    }
}

/// Not inlined: the stack has 512 bytes for all.
#[inline(never)]
fn write_or_count(space: &Known, event: &BlockEvent) -> u32 {
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    let tells_state = matches!(event.kind, RecordKind::Residency | RecordKind::Gone);
    let fate = match tells_state {
        // Its own share first: what one writes too much must not use up the CPU's window, which serves others.
        false if !is_in_share(space, now) || !may_write(now) => RecordFate::SampledOut,
        false if !has_room() => RecordFate::Dropped,
        _ => write(now, space.generation, event),
    };
    increment(&RECORDS, fate as u32);
    if tells_state && !matches!(fate, RecordFate::Written) {
        mark_stale(space);
    }
    let losses = match fate {
        RecordFate::Written => return 0,
        // SAFETY: a field of a value of the map.
        RecordFate::SampledOut => unsafe { &raw mut (*space.value).records.sampled_out },
        // SAFETY: as above.
        RecordFate::Dropped => unsafe { &raw mut (*space.value).records.dropped },
    };
    // SAFETY: 8-byte aligned, and only ever changed atomically.
    unsafe { memory::add_atomically(losses, 1) };
    1
}

#[inline(always)]
fn may_write(now: u64) -> bool {
    let Some(window) = WINDOWS.get_ptr_mut(0) else { return false };
    // SAFETY: this CPU's own value, and probes do not interrupt each other on one CPU.
    let window = unsafe { &mut *window };
    if now.wrapping_sub(window.began_ns) >= WINDOW_NS {
        *window = Window { began_ns: now, records: 0 };
    }
    if window.records >= limit() {
        return false;
    }
    window.records += 1;
    true
}

/// Whether a VA space has written less than its share of the ring lately, all CPUs together: more or less, as none waits for another.
#[inline(always)]
fn is_in_share(space: &Known, now: u64) -> bool {
    // SAFETY: fields of a value of the map, which other CPUs change too: at worst a few records more or less are written.
    let space = unsafe { &mut *space.value };
    if now.wrapping_sub(space.window_began_ns) >= WINDOW_NS {
        space.window_began_ns = now;
        space.window_records = 0;
    }
    space.window_records += 1;
    let limit = &raw const RECORD_LIMIT.per_space;
    // SAFETY: as in `limit`.
    space.window_records <= u64::from(unsafe { limit.read_volatile() })
}

/// Whether there is room for what could be left out: a quarter of the ring is for what must not be.
#[inline(always)]
fn has_room() -> bool {
    let limit = &raw const RECORD_LIMIT.used_bytes;
    // SAFETY: as in `limit`.
    BLOCKS.query(BPF_RB_AVAIL_DATA) < u64::from(unsafe { limit.read_volatile() })
}

/// Marks a VA space's residency as stale: a block's changed, and no record reports it.
#[inline(always)]
pub fn mark_stale(space: &Known) {
    // SAFETY: a field of a value of the map.
    let stale = unsafe { &raw mut (*space.value).records.stale };
    // SAFETY: 8-byte aligned, and only ever changed atomically.
    unsafe { memory::add_atomically(stale, 1) };
}

#[inline(always)]
fn write(boottime_ns: u64, generation: u64, event: &BlockEvent) -> RecordFate {
    let first_page = match event.kind {
        RecordKind::Residency | RecordKind::Gone => {
            ((event.address % BLOCK_BYTES) >> (layout!(page_shift) & 31)) as u16
        }
        _ => 0,
    };
    let record = BlockRecord {
        boottime_ns,
        generation,
        address: event.address & !(BLOCK_BYTES - 1),
        bytes: event.bytes as u32,
        events: event.events as u32,
        gpu: event.gpu,
        slots: event.slots,
        kind: event.kind as u16,
        cause: event.cause as u16,
        resident_pages: event.resident_pages,
        first_page,
    };
    match BLOCKS.output::<BlockRecord>(&record, BPF_RB_NO_WAKEUP) {
        Ok(()) => RecordFate::Written,
        Err(_) => RecordFate::Dropped,
    }
}

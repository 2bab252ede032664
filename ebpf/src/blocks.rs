//! Block records: events of single 2 MiB blocks.
//!
//! Produces: `BLOCKS`, and the fate of each record in `RECORDS` and in the VA space's entry.
//! Cost: about 0.1 µs per record. User space is not woken: it polls.
//!
//! Counts do not depend on records. Each CPU and VA space may write a limited number per tenth of a
//! second, while a quarter of the ring is free. Further records are sampled out, and their number
//! is counted. Residency records have no such limit and fail only if the ring is full: a missing
//! one leaves the residency wrong until the block changes again.

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

/// Ring of block records. The loader sets its size.
#[map]
static BLOCKS: RingBuf = RingBuf::with_byte_size(1024 * 1024, 0);

#[map]
static RECORDS: PerCpuArray<u64> = PerCpuArray::with_max_entries(RecordFate::COUNT, 0);

/// Records that one CPU wrote in the current window.
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

/// Event of a block, for a record.
#[derive(Clone, Copy)]
pub struct BlockEvent {
    /// Any address in the block.
    pub address: u64,
    /// The GPU.
    pub gpu: u32,
    /// Kind of the event.
    pub kind: RecordKind,
    /// Cause of a copy.
    pub cause: u32,
    /// Number of events.
    pub events: u64,
    /// Bytes copied or populated.
    pub bytes: u64,
    /// Slots of the block that it concerns, if known.
    pub slots: u32,
    /// Pages that are resident at the GPU.
    pub resident_pages: u16,
}

impl BlockEvent {
    /// Single event.
    #[inline(always)]
    pub const fn of(address: u64, gpu: u32, kind: RecordKind) -> Self {
        Self { address, gpu, kind, cause: 0, events: 1, bytes: 0, slots: 0, resident_pages: RESIDENT_UNKNOWN }
    }
}

/// Field of the limit of records.
macro_rules! limit {
    ($field:ident) => {{
        let limit = &raw const RECORD_LIMIT.$field;
        // SAFETY: a field of a static that nothing writes while programs run. Volatile, as the
        // loader fills it in.
        u64::from(unsafe { limit.read_volatile() })
    }};
}

/// Whether block records are enabled.
#[inline(always)]
pub fn are_enabled() -> bool {
    limit!(per_window) > 0
}

/// Writes a record, or counts that none was written.
#[inline(always)]
pub fn record(space: &Known, event: &BlockEvent) {
    if are_enabled() {
        write_or_count(space, event);
    }
}

/// Writes a record or counts its fate. Not inlined: the stack has 512 bytes in all.
#[inline(never)]
fn write_or_count(space: &Known, event: &BlockEvent) -> u32 {
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    let is_residency = matches!(event.kind, RecordKind::Residency | RecordKind::Gone);
    let fate = match is_residency {
        // The VA space's share first: its excess must not use up the CPU's window, which serves
        // others too.
        false if !is_in_share(space, now) || !may_write(now) => RecordFate::SampledOut,
        false if !has_room() => RecordFate::Dropped,
        _ => write(now, space.generation, event),
    };
    increment(&RECORDS, fate as u32);
    if is_residency && !matches!(fate, RecordFate::Written) {
        mark_stale(space);
    }
    let losses = match fate {
        RecordFate::Written => return 0,
        // SAFETY: the value of a `Known`, in preallocated memory; only the field's address is taken.
        RecordFate::SampledOut => unsafe { &raw mut (*space.value).records.sampled_out },
        // SAFETY: the value of a `Known`, in preallocated memory; only the field's address is taken.
        RecordFate::Dropped => unsafe { &raw mut (*space.value).records.dropped },
    };
    // SAFETY: 8-byte aligned, and only ever changed atomically.
    unsafe { memory::add_atomically(losses, 1) };
    1
}

#[inline(always)]
fn may_write(now: u64) -> bool {
    let Some(window) = WINDOWS.get_ptr_mut(0) else { return false };
    // SAFETY: this CPU's value, and probes do not interrupt each other on one CPU.
    let window = unsafe { &mut *window };
    if now.wrapping_sub(window.began_ns) >= WINDOW_NS {
        *window = Window { began_ns: now, records: 0 };
    }
    if window.records >= limit!(per_window) {
        return false;
    }
    window.records += 1;
    true
}

/// Whether a VA space has written less than its share of the ring in the current window, over all
/// CPUs. Approximate, as CPUs do not wait for each other.
#[inline(always)]
fn is_in_share(space: &Known, now: u64) -> bool {
    let Known { value, .. } = *space;
    // Other CPUs change both fields too: at worst, a few records too many or too few are written.
    // SAFETY: the value of a `Known`, in preallocated memory.
    let began_ns = unsafe { (*value).window_began_ns };
    // SAFETY: the value of a `Known`, in preallocated memory.
    let mut records = unsafe { (*value).window_records };
    if now.wrapping_sub(began_ns) >= WINDOW_NS {
        // SAFETY: the value of a `Known`, in preallocated memory, to which no reference exists.
        unsafe { (*value).window_began_ns = now };
        records = 0;
    }
    records += 1;
    // SAFETY: the value of a `Known`, in preallocated memory, to which no reference exists.
    unsafe { (*value).window_records = records };
    records <= limit!(per_space)
}

/// Whether the ring has room for records that may be sampled out. A quarter of the ring is reserved
/// for residency records.
#[inline(always)]
fn has_room() -> bool {
    BLOCKS.query(BPF_RB_AVAIL_DATA) < limit!(used_bytes)
}

/// Marks a VA space's residency as stale: a block changed without a record.
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

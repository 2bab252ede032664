//! The driver's responses to thrashing pages. The driver detects thrashing by faults, not by
//! evictions.
//!
//! Attaches to: kprobes `uvm_tools_record_thrashing(uvm_va_space_t *, u64 address, size_t bytes,
//! const uvm_processor_mask_t *)`, and `uvm_tools_record_throttling_start` and `_end(uvm_va_space_t
//! *, u64 address, u32 processor)`, which the driver calls with or without listeners.
//! Produces: thrashing pages and throttles in `COUNTS`.

use abi::{DropReason, Kind, Probe, Tally};
use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::{kprobe, map},
    maps::LruHashMap,
    programs::ProbeContext,
};

use crate::{
    context::{Invocation, argument},
    counting::{self, Dropped, Known},
    maps::layout,
    memory::{self, PROCESSOR_WORDS, Unreadable},
};

/// Page for which a processor is throttled.
#[derive(Clone, Copy)]
#[repr(C)]
struct Throttled {
    va_space: u64,
    address: u64,
    processor: u64,
    /// Thread, as the threads of all CPUs share one processor id and sleep separately; 0 for a GPU.
    thread: u64,
}

/// Start of each throttling. The driver does not report every end: the entries used longest ago are
/// replaced.
#[map]
static THROTTLED: LruHashMap<Throttled, u64> = LruHashMap::with_max_entries(16384, 0);

#[kprobe]
fn uvm_thrashing(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::Thrashing);
    counting::count_error(thrashing(&ctx));
    0
}

#[inline(always)]
fn thrashing(ctx: &ProbeContext) -> Result<(), Dropped> {
    let space = Known::at(argument::<u64>(ctx, 0)?)?;
    let bytes = argument::<u64>(ctx, 2)?;
    let gpu = first_gpu(argument::<u64>(ctx, 3)?)?;
    space.add(gpu, Kind::Thrashing, 0, Tally { events: bytes >> (layout!(page_shift) & 63), amount: 0 })
}

/// Lowest GPU in a processor mask; 0 if there is none.
#[inline(always)]
fn first_gpu(mask: u64) -> Result<u32, Unreadable> {
    for at in 0..PROCESSOR_WORDS {
        if at >= memory::processor_words() {
            break;
        }
        let word = memory::driver::<u64>(mask.wrapping_add(u64::from(at) * 8))?;
        // Bit 0 of the first word is the CPU.
        let word = if at == 0 { word & !1 } else { word };
        if word != 0 {
            return Ok(at * 64 + word.trailing_zeros());
        }
    }
    Ok(0)
}

#[kprobe]
fn uvm_throttle(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::ThrottleStart);
    counting::count_error(throttle(&ctx));
    0
}

#[inline(always)]
fn throttle(ctx: &ProbeContext) -> Result<(), Dropped> {
    let throttled = throttled(ctx)?;
    let space = Known::at(throttled.va_space)?;
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    THROTTLED.insert(throttled, now, 0).map_err(|_| Dropped(DropReason::CountsFull))?;
    space.add(throttled.processor as u32, Kind::Throttle, 0, Tally { events: 1, amount: 0 })
}

#[kprobe]
fn uvm_throttled(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::ThrottleEnd);
    counting::count_error(unthrottle(&ctx));
    0
}

#[inline(always)]
fn unthrottle(ctx: &ProbeContext) -> Result<(), Dropped> {
    let throttled = throttled(ctx)?;
    let Some(since) = THROTTLED.get_ptr(throttled) else { return Ok(()) };
    // SAFETY: a value of the map, read at once.
    let since = unsafe { *since };
    let _ = THROTTLED.remove(throttled);
    let space = Known::at(throttled.va_space)?;
    // SAFETY: a helper without arguments.
    let amount = unsafe { bpf_ktime_get_ns() }.wrapping_sub(since);
    space.add(throttled.processor as u32, Kind::Throttle, 0, Tally { events: 0, amount })
}

#[inline(always)]
fn throttled(ctx: &ProbeContext) -> Result<Throttled, Unreadable> {
    let processor = u64::from(argument::<u32>(ctx, 2)?);
    let thread = if processor == 0 { bpf_get_current_pid_tgid() } else { 0 };
    Ok(Throttled { va_space: argument(ctx, 0)?, address: argument(ctx, 1)?, processor, thread })
}

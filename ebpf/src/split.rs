//! Blocks that the driver splits in two, as for advice on a part of one. Each part is reported
//! separately from then on.
//!
//! Attaches to: kprobe and kretprobe `uvm_va_block_split(uvm_va_block_t *, u64 new_end,
//! uvm_va_block_t **, uvm_va_range_t *)`.
//! Produces: block records of the resident pages of each part.
//! Cost: one or two microseconds per split.

use abi::{DropReason, Probe, quota::CALLS_CAPACITY};
use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{kprobe, kretprobe, map},
    maps::HashMap,
    programs::{ProbeContext, RetProbeContext},
};

use crate::{
    blocks,
    context::{Invocation, argument, status},
    counting::{self, Dropped, Known},
    memory::{self, Unreadable},
    quotas::{self, Caller},
    residency::{self, Processors},
    va_block::va_space_of,
};

/// Block being split in two.
#[derive(Clone, Copy)]
#[repr(C)]
struct Split {
    va_space: u64,
    block: u64,
    /// Address to which the driver writes the new block's pointer.
    other: u64,
    /// Processors that held pages of the block.
    processors: Processors,
    caller: Caller,
}

/// Splits by thread.
#[map]
static SPLITS: HashMap<u64, Split> = HashMap::with_max_entries(CALLS_CAPACITY, 0);

#[kprobe]
fn uvm_split(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::Split);
    if blocks::are_enabled() {
        counting::count_error(begin(&ctx));
    }
    0
}

#[inline(always)]
fn begin(ctx: &ProbeContext) -> Result<(), Dropped> {
    abandon();
    let block = argument::<u64>(ctx, 0)?;
    let Some(va_space) = va_space_of(block)? else { return Ok(()) };
    let space = Known::at(va_space)?;
    let result = note(ctx, va_space, block);
    if result.is_err() {
        blocks::mark_stale(&space);
    }
    result
}

#[inline(always)]
fn note(ctx: &ProbeContext, va_space: u64, block: u64) -> Result<(), Dropped> {
    let other = argument::<u64>(ctx, 2)?;
    let processors = *residency::processors_of(block)?;
    if let Some(caller) = quotas::enter_call() {
        let split = Split { va_space, block, other, processors, caller };
        if SPLITS.insert(bpf_get_current_pid_tgid(), split, 0).is_ok() {
            return Ok(());
        }
        quotas::leave_call(caller);
    }
    Err(Dropped(DropReason::CountsFull))
}

/// Ends a split whose return was missed: its parts were not reported. Not inlined: rare.
#[inline(never)]
fn abandon() -> u32 {
    let thread = bpf_get_current_pid_tgid();
    let Some(missed) = SPLITS.get_ptr(thread) else { return 0 };
    // SAFETY: a value of the map, of this thread alone.
    let va_space = unsafe { (*missed).va_space };
    if let Ok(space) = Known::at(va_space) {
        blocks::mark_stale(&space);
    }
    end(thread);
    0
}

#[inline(always)]
fn end(thread: u64) {
    let Some(split) = SPLITS.get_ptr(thread) else { return };
    // SAFETY: a value of the map, of this thread alone.
    let caller = unsafe { (*split).caller };
    let _ = SPLITS.remove(thread);
    quotas::leave_call(caller);
}

#[kretprobe]
fn uvm_split_done(ctx: RetProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::SplitReturn);
    let thread = bpf_get_current_pid_tgid();
    let Some(split) = SPLITS.get_ptr(thread) else { return 0 };
    // SAFETY: a value of the map, of this thread alone, which is removed after its last use.
    let split = unsafe { &*split };
    if matches!(status(&ctx), Ok(0)) {
        counting::count_error(ended(split));
    }
    end(thread);
    0
}

#[inline(always)]
fn ended(split: &Split) -> Result<(), Dropped> {
    let space = Known::at(split.va_space)?;
    let result = report_parts(&space, split);
    if result.is_err() {
        blocks::mark_stale(&space);
    }
    Ok(result?)
}

#[inline(always)]
fn report_parts(space: &Known, split: &Split) -> Result<(), Unreadable> {
    let other = memory::driver::<u64>(split.other)?;
    for block in [split.block, other] {
        if residency::split(space, block, &split.processors)? != 0 {
            return Err(Unreadable);
        }
    }
    Ok(())
}

//! Blocks made resident at a processor, from the call to its return.
//!
//! Attaches to: kprobes and kretprobes `uvm_va_block_make_resident_copy` and
//! `_read_duplicate(uvm_va_block_t *, uvm_va_block_retry_t *, uvm_va_block_context_t *, u32
//! destination, uvm_va_block_region_t, const uvm_page_mask_t *, const uvm_page_mask_t *, cause)`.
//! Produces: populated bytes in `COUNTS`: first touches, for which the driver has no event; and the
//! moves of blocks of ordinary memory (HMM), of which nothing else here is counted. And
//! block records: of populated bytes, of copies, and of the resident pages at each GPU where they
//! changed.
//! Cost: one or two microseconds per call.
//!
//! Populated pages are the requested ones, less those that are resident already, less those copied
//! between entry and return. The driver has an event per copy, up to 512 where a block's pages are
//! scattered in host memory: one record covers them together. Where two GPUs cannot copy to each
//! other, the driver copies to the host and on: such a copy to the host has a record of its own
//! kind, as it is no sign of a CPU.

use abi::{CountKey, DropReason, Kind, Probe, RecordKind, Tally, block::BLOCK_BYTES};
use aya_ebpf::{
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};

use crate::{
    blocks::{self, BlockEvent},
    context::{Invocation, argument, status},
    counting::{self, Account, Dropped, Known},
    maps::{count_drop, layout},
    movement::{Copies, MOVES, Move, NO_COPIES, place},
    pages::{at_gpu, set_requested},
    quotas,
    residency::report_move,
    va_block::{CAUSE_EVICTION, start_of, va_space_of},
};

#[kprobe]
fn uvm_resident(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::Resident);
    counting::count_error(entered(&ctx, false));
    0
}

#[kprobe]
fn uvm_duplicate(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::Duplicate);
    counting::count_error(entered(&ctx, true));
    0
}

#[kretprobe]
fn uvm_resident_done(ctx: RetProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::ResidentReturn);
    counting::count_error(returned(&ctx));
    0
}

#[kretprobe]
fn uvm_duplicate_done(ctx: RetProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::DuplicateReturn);
    counting::count_error(returned(&ctx));
    0
}

#[inline(always)]
fn entered(ctx: &ProbeContext, is_duplicate: bool) -> Result<(), Dropped> {
    let cause = argument::<u32>(ctx, 7)?;
    let is_eviction = cause == CAUSE_EVICTION;
    if !is_eviction {
        abandon(place(true));
    }
    abandon(place(is_eviction));
    let result = note(ctx, cause, is_duplicate);
    if result.is_err() && is_eviction {
        // Its return would be taken for that of the block that needs the memory.
        abandon(place(false));
    }
    result
}

#[inline(always)]
fn note(ctx: &ProbeContext, cause: u32, is_duplicate: bool) -> Result<(), Dropped> {
    let block = argument::<u64>(ctx, 0)?;
    let va_space = va_space_of(block)?.unwrap_or_default();
    if va_space == 0 {
        count_hmm_move(argument::<u32>(ctx, 3)?);
    }
    let result = begin(ctx, block, va_space, cause, is_duplicate);
    if result.is_err() && va_space != 0 {
        mark_stale(va_space);
    }
    result
}

#[inline(always)]
fn begin(ctx: &ProbeContext, block: u64, va_space: u64, cause: u32, is_duplicate: bool) -> Result<(), Dropped> {
    let gpu = argument::<u32>(ctx, 3)?;
    if gpu > layout!(gpu_max) {
        return Err(Dropped(DropReason::Unreadable));
    }
    let region = argument::<u32>(ctx, 4)?;
    let mask = argument::<u64>(ctx, 5)?;
    let missing =
        if gpu == 0 || va_space == 0 { 0 } else { set_requested(region, mask)? - at_gpu(block, gpu)?.requested };
    let caller = quotas::enter_call().ok_or(Dropped(DropReason::CountsFull))?;
    let started = Move {
        va_space,
        generation: Known::at(va_space).map_or(0, |space| space.generation),
        block,
        gpu,
        cause,
        region,
        is_duplicate: u32::from(is_duplicate),
        mask,
        missing: missing << (layout!(page_shift) & 31),
        received: 0,
        copies: NO_COPIES,
        caller,
    };
    if MOVES.insert(place(cause == CAUSE_EVICTION), started, 0).is_ok() {
        return Ok(());
    }
    quotas::leave_call(caller);
    Err(Dropped(DropReason::CountsFull))
}

/// Counts a move of a block of ordinary memory (HMM), which is not tracked. Not inlined: the
/// verifier would follow it on the way of each managed block.
#[inline(never)]
fn count_hmm_move(gpu: u32) -> u32 {
    let key = CountKey { generation: 0, gpu, kind: Kind::HmmMove as u16, detail: 0 };
    if gpu > layout!(gpu_max) || counting::add(&Account::UNKNOWN, &key, Tally { events: 1, amount: 0 }).is_err() {
        count_drop(DropReason::CountsFull);
    }
    0
}

/// Marks a VA space's residency as stale. Not inlined: rare.
#[inline(never)]
fn mark_stale(va_space: u64) -> u32 {
    if let Ok(space) = Known::at(va_space) {
        blocks::mark_stale(&space);
    }
    0
}

/// Ends a move whose return was missed, with unknown result. Not inlined: rare.
#[inline(never)]
fn abandon(place: u64) -> u32 {
    let Some(missed) = MOVES.get_ptr_mut(place) else { return 0 };
    // SAFETY: a value of the map, of this thread alone.
    let missed = unsafe { &mut *missed };
    // The VA space may have been destroyed since, and replaced by another one.
    if let Ok(space) = Known::at(missed.va_space)
        && space.generation == missed.generation
    {
        write_copies(&space, &mut missed.copies);
        blocks::mark_stale(&space);
    }
    end(place);
    0
}

#[inline(always)]
fn end(place: u64) {
    let Some(ended) = MOVES.get_ptr(place) else { return };
    // SAFETY: a value of the map, of this thread alone.
    let caller = unsafe { (*ended).caller };
    let _ = MOVES.remove(place);
    quotas::leave_call(caller);
}

/// Adds a copy to the move that it is part of; `false` if there is none.
#[inline(always)]
pub fn copied(space: &Known, va_space: u64, copy: &BlockEvent) -> bool {
    let Some(part_of) = MOVES.get_ptr_mut(place(copy.cause == CAUSE_EVICTION)) else { return false };
    // SAFETY: a value of the map, of this thread alone.
    let part_of = unsafe { &mut *part_of };
    if part_of.va_space != va_space {
        return false;
    }
    if copy.kind as u32 != RecordKind::CopyDtoh as u32 && part_of.gpu == copy.gpu {
        part_of.received += copy.bytes;
    }
    if blocks::are_enabled() {
        let is_staged = part_of.gpu != 0 && copy.kind as u32 == RecordKind::CopyDtoh as u32;
        let kind = if is_staged { RecordKind::CopyStaged } else { copy.kind };
        gather(space, &BlockEvent { kind, ..*copy }, &mut part_of.copies);
    }
    true
}

#[inline(always)]
fn gather(space: &Known, copy: &BlockEvent, copies: &mut Copies) {
    let address = copy.address & !(BLOCK_BYTES - 1);
    let is_alike = copies.kind as u32 == copy.kind as u32
        && copies.gpu == copy.gpu
        && copies.cause == copy.cause
        && copies.address == address;
    if !is_alike {
        write_copies(space, copies);
        copies.kind = copy.kind;
        copies.gpu = copy.gpu;
        copies.cause = copy.cause;
        copies.address = address;
    }
    copies.bytes += copy.bytes;
    copies.events += 1;
    copies.slots |= copy.slots;
}

/// Writes the record of copies. Not inlined: the stack has 512 bytes in all.
#[inline(never)]
fn write_copies(space: &Known, copies: &mut Copies) -> u32 {
    if copies.events == 0 {
        return 0;
    }
    let Copies { address, bytes, kind, gpu, cause, events, slots, .. } = *copies;
    blocks::record(
        space,
        &BlockEvent { cause, events: u64::from(events), bytes, slots, ..BlockEvent::of(address, gpu, kind) },
    );
    *copies = NO_COPIES;
    1
}

#[inline(always)]
fn returned(ctx: &RetProbeContext) -> Result<(), Dropped> {
    let status = status(ctx)?;
    // Evictions within the call return first.
    let mut at = place(true);
    let mut found = MOVES.get_ptr_mut(at);
    if found.is_none() {
        at = place(false);
        found = MOVES.get_ptr_mut(at);
    }
    let Some(done) = found else { return Ok(()) };
    // SAFETY: a value of the map, of this thread alone, which is removed after its last use.
    let result = ended(unsafe { &mut *done }, status);
    end(at);
    result
}

#[inline(always)]
fn ended(done: &mut Move, status: u32) -> Result<(), Dropped> {
    if done.va_space == 0 {
        return Ok(());
    }
    let space = Known::at(done.va_space)?;
    write_copies(&space, &mut done.copies);
    // A failed call changes nothing else: the driver tries again. An eviction is the exception: its
    // return was missed, and this return belongs to the block that needs the memory. That call
    // always fails.
    if status != 0 {
        if done.cause == CAUSE_EVICTION {
            blocks::mark_stale(&space);
        }
        return Ok(());
    }
    if blocks::are_enabled() && report_move(&space, done) != 0 {
        blocks::mark_stale(&space);
    }
    if done.missing <= done.received {
        return Ok(());
    }
    let bytes = done.missing - done.received;
    let gpu = done.gpu;
    space.add(gpu, Kind::Populated, 0, Tally { events: 1, amount: bytes })?;
    let address = start_of(done.block)?;
    blocks::record(&space, &BlockEvent { bytes, ..BlockEvent::of(address, gpu, RecordKind::Populated) });
    Ok(())
}

//! Memory that becomes resident at a GPU with nothing to copy: first touches, of which no event tells.
//!
//! Attaches to: kprobes and kretprobes `uvm_va_block_make_resident_copy` and `_read_duplicate(uvm_va_block_t *, uvm_va_block_retry_t *,
//! uvm_va_block_context_t *, u32 destination, uvm_va_block_region_t, const uvm_page_mask_t *, const uvm_page_mask_t *, cause)`.
//! Produces: populated bytes in `COUNTS`, and block records.
//! Cost: a microsecond or two for each block that is made resident at a GPU.
//!
//! The pages asked for, less those that are there already, less those that are copied between entry and return. Which are there already must be
//! known, as the driver asks for whole regions that it has in part.

use abi::{Kind, LostReason, Probe, RecordKind, Tally};
use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{kprobe, kretprobe, map},
    maps::HashMap,
    programs::{ProbeContext, RetProbeContext},
};

use crate::{
    blocks::{self, Happening},
    counting::{self, Known, Lost},
    eviction::va_space_of,
    maps::{hit, layout},
    memory::{self, Unreadable},
};

/// A block that is being made resident at a GPU.
#[derive(Clone, Copy)]
#[repr(C)]
struct Move {
    va_space: u64,
    address: u64,
    gpu: u64,
    /// Bytes that were not there.
    missing: u64,
    copied: u64,
    /// Calls inside this one: other blocks are pushed out to make room.
    inner: u64,
}

/// By thread.
#[map]
static MOVES: HashMap<u64, Move> = HashMap::with_max_entries(4096, 0);

/// Words of a mask of pages: 512 bits, or 32 where pages are of 64 KiB.
const MASK_WORDS: u32 = 8;

#[kprobe]
fn uvm_resident(ctx: ProbeContext) -> u32 {
    hit(Probe::Resident);
    counting::note(entered(&ctx));
    0
}

#[kprobe]
fn uvm_duplicate(ctx: ProbeContext) -> u32 {
    hit(Probe::Duplicate);
    counting::note(entered(&ctx));
    0
}

#[kretprobe]
fn uvm_resident_done(ctx: RetProbeContext) -> u32 {
    hit(Probe::ResidentReturn);
    counting::note(returned(ctx.ret()));
    0
}

#[kretprobe]
fn uvm_duplicate_done(ctx: RetProbeContext) -> u32 {
    hit(Probe::DuplicateReturn);
    counting::note(returned(ctx.ret()));
    0
}

/// A copy on this thread.
#[inline(always)]
pub fn copied(va_space: u64, gpu: u32, bytes: u64) {
    if let Some(under_way) = MOVES.get_ptr_mut(bpf_get_current_pid_tgid()) {
        // SAFETY: a value of the map, of this thread alone.
        let under_way = unsafe { &mut *under_way };
        if under_way.inner == 0 && under_way.va_space == va_space && under_way.gpu == u64::from(gpu) {
            under_way.copied += bytes;
        }
    }
}

#[inline(always)]
fn entered(ctx: &ProbeContext) -> Result<(), Lost> {
    let thread = bpf_get_current_pid_tgid();
    let gpu = ctx.arg::<u32>(3).ok_or(Unreadable)?;
    if gpu == 0 {
        // To the host: perhaps to make room for what is under way.
        if let Some(outer) = MOVES.get_ptr_mut(thread) {
            // SAFETY: a value of the map, of this thread alone.
            unsafe { (*outer).inner += 1 };
        }
        return Ok(());
    }
    if gpu > layout!(gpu_max) {
        return Err(Lost(LostReason::Unreadable));
    }
    let block = ctx.arg::<u64>(0).ok_or(Unreadable)?;
    let Some(va_space) = va_space_of(block)? else { return Ok(()) };
    let address = memory::driver(block.wrapping_add(u64::from(layout!(block_start))))?;
    let pages = missing(block, gpu, ctx.arg(4).ok_or(Unreadable)?, ctx.arg(5).ok_or(Unreadable)?)?;
    let started = Move {
        va_space,
        address,
        gpu: u64::from(gpu),
        missing: pages << (layout!(page_shift) & 31),
        copied: 0,
        inner: 0,
    };
    MOVES.insert(thread, started, 0).map_err(|_| Lost(LostReason::CountsFull))
}

/// How many of the pages asked for are not resident at the GPU. `region`: first page, and behind the last, in 16 bits each. No mask: all of them.
#[inline(always)]
fn missing(block: u64, gpu: u32, region: u32, mask: u64) -> Result<u64, Unreadable> {
    let (first, outer) = (region & 0xffff, region >> 16);
    // What the block has at the GPU begins with the mask of resident pages; 0 if it has nothing there yet.
    let at_gpu = block.wrapping_add(u64::from(layout!(block_gpus)) + u64::from(gpu - 1) * 8);
    let resident = memory::driver::<u64>(at_gpu)?;
    let mut pages = 0;
    for at in 0..MASK_WORDS {
        if at * 64 >= outer {
            break;
        }
        let mut word = below(outer, at) & !below(first, at);
        if mask != 0 {
            word &= memory::driver::<u64>(mask.wrapping_add(u64::from(at) * 8))?;
        }
        if resident != 0 {
            word &= !memory::driver::<u64>(resident.wrapping_add(u64::from(at) * 8))?;
        }
        pages += u64::from(word.count_ones());
    }
    Ok(pages)
}

/// The bits of a mask's word that stand for pages below one.
#[inline(always)]
const fn below(page: u32, word: u32) -> u64 {
    let bits = page.saturating_sub(word * 64);
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

#[inline(always)]
fn returned(status: u32) -> Result<(), Lost> {
    let thread = bpf_get_current_pid_tgid();
    let Some(under_way) = MOVES.get_ptr_mut(thread) else { return Ok(()) };
    // SAFETY: a value of the map, of this thread alone.
    let done = unsafe { *under_way };
    if done.inner > 0 {
        // SAFETY: as above.
        unsafe { (*under_way).inner -= 1 };
        return Ok(());
    }
    let _ = MOVES.remove(thread);
    // Where it failed, nothing became resident: the driver tries again.
    if status != 0 || done.missing <= done.copied {
        return Ok(());
    }
    let bytes = done.missing - done.copied;
    let gpu = done.gpu as u32;
    let space = Known::at(done.va_space)?;
    space.add(gpu, Kind::Populated, 0, Tally { events: 1, amount: bytes })?;
    let Move { address, .. } = done;
    let happening = Happening { address, gpu, kind: RecordKind::Populated, cause: 0, events: 1, bytes, slots: 0 };
    blocks::record(&space, &happening);
    Ok(())
}

//! Which pages of a block are at which GPU, as they become resident there and as they are taken away.
//!
//! Attaches to: kprobes and kretprobes `uvm_va_block_make_resident_copy` and `_read_duplicate(uvm_va_block_t *, uvm_va_block_retry_t *,
//! uvm_va_block_context_t *, u32 destination, uvm_va_block_region_t, const uvm_page_mask_t *, const uvm_page_mask_t *, cause)`, and
//! `uvm_va_block_split(uvm_va_block_t *, u64 new_end, uvm_va_block_t **, uvm_va_range_t *)`.
//! Produces: populated bytes in `COUNTS`: first touches, of which no event tells. And block records: of what was populated, and of how many pages
//! are resident at each GPU for which that changed.
//! Cost: a microsecond or two for each block that is made resident somewhere.
//!
//! Populated are the pages asked for, less those that are there already, less those that are copied between entry and return. Resident at the
//! destination are those that are there and those asked for; at each other GPU those that are there but for those asked for, unless copies are
//! allowed. All the masks stay as they are from entry to return, where the block's lock is held throughout: where it is let go, the call fails.

use abi::{
    Kind, LostReason, Probe, RecordKind, Tally,
    block::{BLOCK_BYTES, RESIDENT_UNKNOWN},
};
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
    memory::{self, PROCESSOR_WORDS, Room, Unreadable},
    notify::CAUSE_EVICTION,
};

/// A block that is being made resident somewhere.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Move {
    /// 0 for ordinary memory (HMM), which is not followed.
    pub va_space: u64,
    block: u64,
    /// The destination; 0 for the host.
    pub gpu: u64,
    /// `uvm_make_resident_cause_t`
    pub cause: u64,
    region: u64,
    mask: u64,
    /// Bytes asked for that were not there.
    missing: u64,
    copied: u64,
    is_duplicate: u64,
}

/// By thread: see [`place`].
#[map]
static MOVES: HashMap<u64, Move> = HashMap::with_max_entries(4096, 0);

/// Where a thread's move is kept. While a block is made resident, others may be pushed out to make room; while one is pushed out, nothing is
/// moved beside it. So two places are enough.
#[inline(always)]
fn place(is_eviction: bool) -> u64 {
    bpf_get_current_pid_tgid() << 1 | u64::from(is_eviction)
}

/// What is being made resident on this thread, but for what is pushed out to make room.
#[inline(always)]
pub fn under_way() -> Option<&'static Move> {
    // SAFETY: a value of the map, of this thread alone.
    MOVES.get_ptr(place(false)).map(|under_way| unsafe { &*under_way })
}

#[kprobe]
fn uvm_resident(ctx: ProbeContext) -> u32 {
    hit(Probe::Resident);
    counting::note(entered(&ctx, false));
    0
}

#[kprobe]
fn uvm_duplicate(ctx: ProbeContext) -> u32 {
    hit(Probe::Duplicate);
    counting::note(entered(&ctx, true));
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

/// A copy to a GPU on this thread.
#[inline(always)]
pub fn copied(va_space: u64, gpu: u32, bytes: u64) {
    if let Some(under_way) = MOVES.get_ptr_mut(place(false)) {
        // SAFETY: a value of the map, of this thread alone.
        let under_way = unsafe { &mut *under_way };
        if under_way.va_space == va_space && under_way.gpu == u64::from(gpu) {
            under_way.copied += bytes;
        }
    }
}

#[inline(always)]
fn entered(ctx: &ProbeContext, is_duplicate: bool) -> Result<(), Lost> {
    let cause = memory::late_argument::<u32>(ctx, 7)?;
    let is_eviction = cause == CAUSE_EVICTION;
    if !is_eviction {
        // Left where the return was missed: it would be taken for this one's.
        let _ = MOVES.remove(place(true));
    }
    let block = ctx.arg::<u64>(0).ok_or(Unreadable)?;
    let gpu = ctx.arg::<u32>(3).ok_or(Unreadable)?;
    if gpu > layout!(gpu_max) {
        return Err(Lost(LostReason::Unreadable));
    }
    let region = ctx.arg::<u32>(4).ok_or(Unreadable)?;
    let mask = ctx.arg::<u64>(5).ok_or(Unreadable)?;
    let va_space = va_space_of(block)?.unwrap_or_default();
    let missing = if gpu == 0 || va_space == 0 { 0 } else { ask(region, mask)? - at_gpu(block, gpu)?.asked };
    let started = Move {
        va_space,
        block,
        gpu: u64::from(gpu),
        cause: u64::from(cause),
        region: u64::from(region),
        mask,
        missing: missing << (layout!(page_shift) & 31),
        copied: 0,
        is_duplicate: u64::from(is_duplicate),
    };
    MOVES.insert(place(is_eviction), started, 0).map_err(|_| Lost(LostReason::CountsFull))
}

#[inline(always)]
fn returned(status: u32) -> Result<(), Lost> {
    // What is pushed out meanwhile returns first.
    let mut at = place(true);
    let mut found = MOVES.get_ptr(at);
    if found.is_none() {
        at = place(false);
        found = MOVES.get_ptr(at);
    }
    let Some(done) = found else { return Ok(()) };
    // SAFETY: a value of the map, of this thread alone.
    let done = unsafe { *done };
    let _ = MOVES.remove(at);
    // Where it failed, nothing changed: the driver tries again.
    if status != 0 || done.va_space == 0 {
        return Ok(());
    }
    let space = Known::at(done.va_space)?;
    if blocks::are_wanted() {
        moved(&space, &done);
    }
    if done.missing <= done.copied {
        return Ok(());
    }
    let bytes = done.missing - done.copied;
    let gpu = done.gpu as u32;
    space.add(gpu, Kind::Populated, 0, Tally { events: 1, amount: bytes })?;
    let address = start_of(done.block)?;
    blocks::record(&space, &Happening { bytes, ..Happening::of(address, gpu, RecordKind::Populated) });
    Ok(())
}

#[inline(always)]
fn start_of(block: u64) -> Result<u64, Unreadable> {
    memory::driver(block.wrapping_add(u64::from(layout!(block_start))))
}

/// Tells what is resident of a block that was made resident somewhere. Not inlined: the stack has 512 bytes for all.
#[inline(never)]
fn moved(space: &Known, done: &Move) -> u32 {
    let Ok(asked) = ask(done.region as u32, done.mask) else { return 1 };
    let Ok(address) = start_of(done.block) else { return 1 };
    if done.gpu != 0 {
        let gpu = done.gpu as u32;
        let pages = at_gpu(done.block, gpu).map(|there| there.resident + asked - there.asked);
        tell(space, address, gpu, pages);
    }
    let processors = done.block.wrapping_add(u64::from(layout!(block_resident)));
    if done.is_duplicate != 0 || memory::fill(&PROCESSORS, processors, memory::processor_words() * 8).is_err() {
        return 1;
    }
    each(space, &Piece { block: done.block, address, but: done.gpu, is_taken: 1 })
}

/// A block that GPUs have something of.
struct Piece {
    block: u64,
    address: u64,
    /// A GPU of which nothing is to be told.
    but: u64,
    /// Whether the pages asked for are gone from the GPUs; otherwise they are what is left there.
    is_taken: u64,
}

/// The most GPUs of one word of a mask of processors that are told of: more than a process can use.
const GPUS_MAX: u32 = 16;

/// Tells what is resident of a block at each GPU of `PROCESSORS`.
#[inline(never)]
fn each(space: &Known, piece: &Piece) -> u32 {
    for at in 0..PROCESSOR_WORDS {
        if at >= memory::processor_words() {
            break;
        }
        let Some(processors) = PROCESSORS.get_ptr(0) else { return 1 };
        // SAFETY: a value of the map, this CPU's own.
        let Some(word) = (unsafe { (*processors).get(at as usize) }) else { return 1 };
        // Bit 0 of the first is the CPU.
        let mut left = if at == 0 { *word & !1 } else { *word };
        for _ in 0..GPUS_MAX {
            if left == 0 {
                break;
            }
            let gpu = at * 64 + left.trailing_zeros();
            left &= left - 1;
            if u64::from(gpu) != piece.but {
                one(space, piece, gpu);
            }
        }
    }
    0
}

#[inline(never)]
fn one(space: &Known, piece: &Piece, gpu: u32) -> u32 {
    let pages = match at_gpu(piece.block, gpu) {
        Ok(there) if piece.is_taken == 0 => Ok(there.asked),
        // It had none of them.
        Ok(there) if there.asked == 0 => return 0,
        Ok(there) => Ok(there.resident - there.asked),
        Err(Unreadable) => Err(Unreadable),
    };
    tell(space, piece.address, gpu, pages);
    0
}

#[inline(always)]
fn tell(space: &Known, address: u64, gpu: u32, pages: Result<u64, Unreadable>) {
    let resident_pages = pages.map_or(RESIDENT_UNKNOWN, |pages| pages as u16);
    blocks::record(space, &Happening { resident_pages, ..Happening::of(address, gpu, RecordKind::Residency) });
}

/// Words of a mask of pages, where pages are of 4 KiB.
const MASK_WORDS: usize = 8;

/// The pages asked for.
#[map]
static ASKED: Room<MASK_WORDS> = Room::with_max_entries(1, 0);
/// The pages that are resident at a GPU.
#[map]
static RESIDENT: Room<MASK_WORDS> = Room::with_max_entries(1, 0);
/// The processors that have something of a block.
#[map]
static PROCESSORS: Room<{ PROCESSOR_WORDS as usize }> = Room::with_max_entries(1, 0);

#[inline(always)]
fn mask_words() -> u32 {
    ((BLOCK_BYTES >> (layout!(page_shift) & 31)) as u32 / 64).max(1)
}

/// What a function that is not inlined returns where it could not read.
const UNREADABLE: u64 = u64::MAX;

/// Pages of a block at a GPU.
#[derive(Clone, Copy)]
struct There {
    resident: u64,
    /// Those of them that are asked for.
    asked: u64,
}

/// Notes in `ASKED` which pages are asked for; how many.
#[inline(always)]
fn ask(region: u32, mask: u64) -> Result<u64, Unreadable> {
    match note_asked(region, mask) {
        UNREADABLE => Err(Unreadable),
        pages => Ok(pages),
    }
}

/// `region`: first page, and behind the last, in 16 bits each. No mask: all of them.
#[inline(never)]
fn note_asked(region: u32, mask: u64) -> u64 {
    let (first, outer) = (region & 0xffff, region >> 16);
    let words = if mask == 0 {
        let Some(words) = ASKED.get_ptr_mut(0) else { return UNREADABLE };
        // SAFETY: a value of the map, this CPU's own.
        let words = unsafe { &mut *words };
        *words = [u64::MAX; MASK_WORDS];
        words
    } else {
        let Ok(words) = memory::fill(&ASKED, mask, mask_words() * 8) else { return UNREADABLE };
        words
    };
    let mut pages = 0;
    for (at, word) in (0..mask_words()).zip(words) {
        *word &= below(outer, at) & !below(first, at);
        pages += u64::from(word.count_ones());
    }
    pages
}

/// The bits of a mask's word that stand for pages below one.
#[inline(always)]
const fn below(page: u32, word: u32) -> u64 {
    let bits = page.saturating_sub(word * 64);
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// What of a block is at a GPU, and of `ASKED`.
#[inline(always)]
fn at_gpu(block: u64, gpu: u32) -> Result<There, Unreadable> {
    match count_at_gpu(block, gpu) {
        UNREADABLE => Err(Unreadable),
        packed => Ok(There { resident: packed >> 32, asked: packed & 0xffff_ffff }),
    }
}

#[inline(never)]
fn count_at_gpu(block: u64, gpu: u32) -> u64 {
    let state = block.wrapping_add(u64::from(layout!(block_gpus)) + u64::from(gpu.wrapping_sub(1)) * 8);
    // What the block has at the GPU begins with the mask of resident pages; there is none if it has nothing there yet.
    let resident = match memory::driver::<u64>(state) {
        Ok(0) => return 0,
        Ok(resident) => memory::fill(&RESIDENT, resident, mask_words() * 8),
        Err(Unreadable) => return UNREADABLE,
    };
    let (Ok(resident), Some(asked)) = (resident, ASKED.get_ptr(0)) else { return UNREADABLE };
    // SAFETY: a value of the map, this CPU's own.
    let asked = unsafe { &*asked };
    let (mut pages, mut asked_pages) = (0, 0);
    for (_, (resident, asked)) in (0..mask_words()).zip(resident.iter().zip(asked)) {
        pages += u64::from(resident.count_ones());
        asked_pages += u64::from((resident & asked).count_ones());
    }
    pages << 32 | asked_pages
}

/// A block that is being split in two.
#[derive(Clone, Copy)]
#[repr(C)]
struct Split {
    block: u64,
    /// Where the other one will be written.
    other: u64,
    /// Who had something of it.
    processors: [u64; PROCESSOR_WORDS as usize],
}

/// By thread.
#[map]
static SPLITS: HashMap<u64, Split> = HashMap::with_max_entries(256, 0);

#[kprobe]
fn uvm_split(ctx: ProbeContext) -> u32 {
    hit(Probe::Split);
    if blocks::are_wanted() {
        counting::note(splits(&ctx));
    }
    0
}

#[inline(always)]
fn splits(ctx: &ProbeContext) -> Result<(), Lost> {
    let block = ctx.arg::<u64>(0).ok_or(Unreadable)?;
    let other = ctx.arg::<u64>(2).ok_or(Unreadable)?;
    let resident = block.wrapping_add(u64::from(layout!(block_resident)));
    let processors = *memory::fill(&PROCESSORS, resident, memory::processor_words() * 8)?;
    let split = Split { block, other, processors };
    SPLITS.insert(bpf_get_current_pid_tgid(), split, 0).map_err(|_| Lost(LostReason::CountsFull))
}

#[kretprobe]
fn uvm_split_done(ctx: RetProbeContext) -> u32 {
    hit(Probe::SplitReturn);
    let thread = bpf_get_current_pid_tgid();
    let Some(split) = SPLITS.get_ptr(thread) else { return 0 };
    // SAFETY: a value of the map, of this thread alone.
    let split = unsafe { *split };
    let _ = SPLITS.remove(thread);
    if ctx.ret::<u32>() == 0
        && let Some(processors) = PROCESSORS.get_ptr_mut(0)
        && let Ok(other) = memory::driver::<u64>(split.other)
    {
        // SAFETY: a value of the map, this CPU's own.
        unsafe { *processors = split.processors };
        for block in [split.block, other] {
            counting::note(piece(block));
        }
    }
    0
}

/// Tells what is resident of a part of what was one block.
#[inline(always)]
fn piece(block: u64) -> Result<(), Lost> {
    let Some(va_space) = va_space_of(block)? else { return Ok(()) };
    let space = Known::at(va_space)?;
    let start = start_of(block)?;
    let end = memory::driver::<u64>(block.wrapping_add(u64::from(layout!(block_start)) + 8))?;
    let pages = end.wrapping_sub(start).wrapping_add(1) >> (layout!(page_shift) & 31);
    ask((pages as u32) << 16, 0)?;
    each(&space, &Piece { block, address: start, but: 0, is_taken: 0 });
    Ok(())
}

/// A block goes, and all its memory with it. `data`: of the event that tells.
#[inline(always)]
pub fn gone(va_space: u64, data: u64) -> Result<(), Unreadable> {
    // Nothing is lost of a VA space that is not known.
    if blocks::are_wanted()
        && let Ok(space) = Known::at(va_space)
    {
        let address = start_of(memory::driver(data)?)?;
        blocks::record(&space, &Happening::of(address, 0, RecordKind::Gone));
    }
    Ok(())
}

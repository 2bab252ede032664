//! Resident pages of a block at each GPU, reported in block records as they change.
//!
//! At a move's destination, the resident pages are those resident before plus the requested ones.
//! At each other GPU, the requested ones are no longer resident, unless copies are allowed. The
//! masks are stable from a move's entry to its return, while the block's lock is held. If the
//! driver releases the lock, the call fails.

use abi::{Kind, RecordKind, Tally, block::RESIDENT_UNKNOWN};
use aya_ebpf::macros::map;

use crate::{
    blocks::{self, BlockEvent},
    counting::{Dropped, Known},
    maps::layout,
    memory::{self, PROCESSOR_WORDS, Scratch, Unreadable},
    movement::Move,
    pages::{at_gpu, set_requested},
    va_block::start_of,
};

/// Processor mask of the driver.
pub type Processors = [u64; PROCESSOR_WORDS as usize];

/// Processors that hold pages of a block.
#[map]
static PROCESSORS: Scratch<{ PROCESSOR_WORDS as usize }> = Scratch::with_max_entries(1, 0);

/// Reports the resident pages of a block that was made resident at a processor; 0 on success. Not
/// inlined: the stack has 512 bytes in all.
#[inline(never)]
pub fn report_move(space: &Known, done: &Move) -> u32 {
    let Ok(requested) = set_requested(done.region, done.mask) else { return 1 };
    let Ok(address) = start_of(done.block) else { return 1 };
    if done.gpu != 0 {
        let gpu = done.gpu;
        let pages = at_gpu(done.block, gpu).map(|there| there.resident + requested - there.requested);
        report(space, address, gpu, pages);
    }
    if done.is_duplicate != 0 {
        return 0;
    }
    if processors_of(done.block).is_err() {
        return 1;
    }
    report_each(space, &Piece { block: done.block, address, except: u64::from(done.gpu), left_gpus: 1 })
}

/// Writes to `PROCESSORS` the mask of processors that hold pages of a block.
#[inline(always)]
pub fn processors_of(block: u64) -> Result<&'static mut Processors, Unreadable> {
    let resident = block.wrapping_add(u64::from(layout!(block_resident)));
    memory::fill(&PROCESSORS, resident, memory::processor_words() * 8)
}

/// Reports the resident pages of one part of a split block, at each GPU that had any of it; 0 on
/// success.
#[inline(always)]
pub fn split(space: &Known, block: u64, processors: &Processors) -> Result<u32, Unreadable> {
    let mask = PROCESSORS.get_ptr_mut(0).ok_or(Unreadable)?;
    // SAFETY: a value of the map, this CPU's own.
    unsafe { *mask = *processors };
    let start = start_of(block)?;
    let end = memory::driver::<u64>(block.wrapping_add(u64::from(layout!(block_start)) + 8))?;
    let pages = end.wrapping_sub(start).wrapping_add(1) >> (layout!(page_shift) & 31);
    set_requested((pages as u32) << 16, 0)?;
    Ok(report_each(space, &Piece { block, address: start, except: 0, left_gpus: 0 }))
}

/// Block of which GPUs hold pages.
struct Piece {
    block: u64,
    address: u64,
    /// GPU that is not reported.
    except: u64,
    /// Whether the requested pages left the GPUs; otherwise they are the ones that remain there.
    left_gpus: u64,
}

/// Maximum of GPUs reported for a block: more than a node has whose processes use managed memory.
const GPUS_MAX: u32 = 16;

/// Reports the resident pages of a block at each GPU of `PROCESSORS`; 0 on success. One loop over
/// the GPUs of all words: the verifier follows each turn.
#[inline(never)]
fn report_each(space: &Known, piece: &Piece) -> u32 {
    let Some(processors) = PROCESSORS.get_ptr_mut(0) else { return 1 };
    // SAFETY: a value of the map, this CPU's own.
    let processors = unsafe { &mut *processors };
    // Bit 0 of the first word is the CPU.
    processors[0] &= !1;
    for _ in 0..GPUS_MAX {
        let Some(gpu) = take_first(processors) else { return 0 };
        if u64::from(gpu) != piece.except {
            report_at(space, piece, gpu);
        }
    }
    u32::from(take_first(processors).is_some())
}

/// Removes the first processor from a mask.
#[inline(always)]
fn take_first(processors: &mut Processors) -> Option<u32> {
    for (at, word) in (0..memory::processor_words()).zip(processors) {
        if *word != 0 {
            let bit = word.trailing_zeros();
            *word &= *word - 1;
            return Some(at * 64 + bit);
        }
    }
    None
}

#[inline(never)]
fn report_at(space: &Known, piece: &Piece, gpu: u32) -> u32 {
    let pages = match at_gpu(piece.block, gpu) {
        Ok(there) if piece.left_gpus == 0 => Ok(there.requested),
        // It held none of them.
        Ok(there) if there.requested == 0 => return 0,
        Ok(there) => Ok(there.resident - there.requested),
        Err(Unreadable) => Err(Unreadable),
    };
    report(space, piece.address, gpu, pages);
    0
}

#[inline(always)]
fn report(space: &Known, address: u64, gpu: u32, pages: Result<u64, Unreadable>) {
    let resident_pages = pages.map_or(RESIDENT_UNKNOWN, |pages| pages as u16);
    blocks::record(space, &BlockEvent { resident_pages, ..BlockEvent::of(address, gpu, RecordKind::Residency) });
}

/// Counts and reports a block's destruction, which frees all its memory. `data`: of the driver's
/// event.
#[inline(always)]
pub fn block_destroyed(va_space: u64, data: u64) -> Result<(), Dropped> {
    // An unknown VA space has no records to correct.
    let Ok(space) = Known::at(va_space) else { return Ok(()) };
    if blocks::are_enabled() {
        let Ok(address) = memory::driver(data).and_then(start_of) else {
            blocks::mark_stale(&space);
            return Err(Unreadable.into());
        };
        blocks::record(&space, &BlockEvent::of(address, 0, RecordKind::Gone));
    }
    space.add(0, Kind::FreedBlock, 0, Tally { events: 1, amount: 0 })
}

//! Resident pages of a block at each GPU, reported in block records as they change.
//!
//! Resident at a move's destination are the pages that are there and those asked for; at each other GPU those that are there but for those asked
//! for, unless copies are allowed. All the masks stay as they are from a move's entry to its return, where the block's lock is held throughout: where it is
//! let go, the call fails.

use abi::{RecordKind, block::RESIDENT_UNKNOWN};
use aya_ebpf::macros::map;

use crate::{
    blocks::{self, BlockEvent},
    counting::Known,
    maps::layout,
    memory::{self, PROCESSOR_WORDS, Room, Unreadable},
    movement::Move,
    pages::{ask, at_gpu},
    va_block::start_of,
};

/// A mask of processors, as the driver has it.
pub type Processors = [u64; PROCESSOR_WORDS as usize];

/// The processors that have something of a block.
#[map]
static PROCESSORS: Room<{ PROCESSOR_WORDS as usize }> = Room::with_max_entries(1, 0);

/// Reports the resident pages of a block that was made resident somewhere; 0 on success. Not inlined: the stack has 512 bytes for all.
#[inline(never)]
pub fn moved(space: &Known, done: &Move) -> u32 {
    let Ok(asked) = ask(done.region, done.mask) else { return 1 };
    let Ok(address) = start_of(done.block) else { return 1 };
    if done.gpu != 0 {
        let gpu = done.gpu;
        let pages = at_gpu(done.block, gpu).map(|there| there.resident + asked - there.asked);
        report(space, address, gpu, pages);
    }
    if done.is_duplicate != 0 {
        return 0;
    }
    if processors_of(done.block).is_err() {
        return 1;
    }
    each(space, &Piece { block: done.block, address, but: u64::from(done.gpu), is_taken: 1 })
}

/// Writes to `PROCESSORS` the mask of processors that hold pages of a block.
#[inline(always)]
pub fn processors_of(block: u64) -> Result<&'static mut Processors, Unreadable> {
    let resident = block.wrapping_add(u64::from(layout!(block_resident)));
    memory::fill(&PROCESSORS, resident, memory::processor_words() * 8)
}

/// Reports the resident pages of one part of a split block, at each GPU that had any of it; 0 on success.
#[inline(always)]
pub fn split(space: &Known, block: u64, processors: &Processors) -> Result<u32, Unreadable> {
    let noted = PROCESSORS.get_ptr_mut(0).ok_or(Unreadable)?;
    // SAFETY: a value of the map, this CPU's own.
    unsafe { *noted = *processors };
    let start = start_of(block)?;
    let end = memory::driver::<u64>(block.wrapping_add(u64::from(layout!(block_start)) + 8))?;
    let pages = end.wrapping_sub(start).wrapping_add(1) >> (layout!(page_shift) & 31);
    ask((pages as u32) << 16, 0)?;
    Ok(each(space, &Piece { block, address: start, but: 0, is_taken: 0 }))
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

/// Reports the resident pages of a block at each GPU of `PROCESSORS`; 0 on success.
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
        if left != 0 {
            return 1;
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
    report(space, piece.address, gpu, pages);
    0
}

#[inline(always)]
fn report(space: &Known, address: u64, gpu: u32, pages: Result<u64, Unreadable>) {
    let resident_pages = pages.map_or(RESIDENT_UNKNOWN, |pages| pages as u16);
    blocks::record(space, &BlockEvent { resident_pages, ..BlockEvent::of(address, gpu, RecordKind::Residency) });
}

/// A block goes, and all its memory with it. `data`: of the event that tells.
#[inline(always)]
pub fn gone(va_space: u64, data: u64) -> Result<(), Unreadable> {
    // Nothing is lost of a VA space that is not known.
    if blocks::are_wanted()
        && let Ok(space) = Known::at(va_space)
    {
        let Ok(address) = memory::driver(data).and_then(start_of) else {
            blocks::mark_stale(&space);
            return Err(Unreadable);
        };
        blocks::record(&space, &BlockEvent::of(address, 0, RecordKind::Gone));
    }
    Ok(())
}

//! Masks of pages of the driver's: which of a block are asked for, and which are at a GPU.

use abi::block::BLOCK_BYTES;
use aya_ebpf::macros::map;

use crate::{
    maps::layout,
    memory::{self, Room, Unreadable},
};

/// Words of a mask of pages, where pages are of 4 KiB.
const MASK_WORDS: usize = 8;

/// The pages asked for.
#[map]
static ASKED: Room<MASK_WORDS> = Room::with_max_entries(1, 0);
/// The pages that are resident at a GPU.
#[map]
static RESIDENT: Room<MASK_WORDS> = Room::with_max_entries(1, 0);

#[inline(always)]
fn mask_words() -> u32 {
    ((BLOCK_BYTES >> (layout!(page_shift) & 31)) as u32 / 64).max(1)
}

/// What a function that is not inlined returns where it could not read.
const UNREADABLE: u64 = u64::MAX;

/// Pages of a block at a GPU.
#[derive(Clone, Copy)]
pub struct There {
    pub resident: u64,
    /// Those of them that are asked for.
    pub asked: u64,
}

/// Notes in `ASKED` which pages are asked for; how many.
#[inline(always)]
pub fn ask(region: u32, mask: u64) -> Result<u64, Unreadable> {
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
pub fn at_gpu(block: u64, gpu: u32) -> Result<There, Unreadable> {
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

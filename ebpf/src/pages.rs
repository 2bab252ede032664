//! Page masks of the driver: pages of a block that are requested, and pages resident at a GPU.

use abi::block::BLOCK_BYTES;
use aya_ebpf::macros::map;

use crate::{
    maps::layout,
    memory::{self, Scratch, Unreadable},
};

/// Words of a page mask with pages of 4 KiB.
const MASK_WORDS: usize = 8;

/// Requested pages.
#[map]
static REQUESTED: Scratch<MASK_WORDS> = Scratch::with_max_entries(1, 0);
/// Pages resident at a GPU.
#[map]
static RESIDENT: Scratch<MASK_WORDS> = Scratch::with_max_entries(1, 0);

#[inline(always)]
fn mask_words() -> u32 {
    ((BLOCK_BYTES >> (layout!(page_shift) & 31)) as u32 / 64).max(1)
}

/// Result of a function that is not inlined, if it could not read.
const UNREADABLE: u64 = u64::MAX;

/// Pages of a block at a GPU.
#[derive(Clone, Copy)]
pub struct PagesAtGpu {
    pub resident: u64,
    /// Those of them that are requested.
    pub requested: u64,
}

/// Writes the requested pages to `REQUESTED`, and returns their number.
#[inline(always)]
pub fn set_requested(region: u32, mask: u64) -> Result<u64, Unreadable> {
    match write_requested(region, mask) {
        UNREADABLE => Err(Unreadable),
        pages => Ok(pages),
    }
}

/// Writes `REQUESTED`. `region`: the first page and the one after the last, in 16 bits each. `mask`
/// 0: all of them.
#[inline(never)]
fn write_requested(region: u32, mask: u64) -> u64 {
    let (first, outer) = (region & 0xffff, region >> 16);
    let words = if mask == 0 {
        let Some(words) = REQUESTED.get_ptr_mut(0) else { return UNREADABLE };
        // SAFETY: a value of the map, this CPU's own.
        let words = unsafe { &mut *words };
        *words = [u64::MAX; MASK_WORDS];
        words
    } else {
        let Ok(words) = memory::fill(&REQUESTED, mask, mask_words() * 8) else { return UNREADABLE };
        words
    };
    let mut pages = 0;
    for (at, word) in (0..mask_words()).zip(words) {
        *word &= below(outer, at) & !below(first, at);
        pages += u64::from(word.count_ones());
    }
    pages
}

/// Bits of a mask's word for the pages below `page`.
#[inline(always)]
const fn below(page: u32, word: u32) -> u64 {
    let bits = page.saturating_sub(word * 64);
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Pages of a block at a GPU, and those of them in `REQUESTED`.
#[inline(always)]
pub fn at_gpu(block: u64, gpu: u32) -> Result<PagesAtGpu, Unreadable> {
    match count_at_gpu(block, gpu) {
        UNREADABLE => Err(Unreadable),
        packed => Ok(PagesAtGpu { resident: packed >> 32, requested: packed & 0xffff_ffff }),
    }
}

#[inline(never)]
fn count_at_gpu(block: u64, gpu: u32) -> u64 {
    let state = block.wrapping_add(u64::from(layout!(block_gpus)) + u64::from(gpu.wrapping_sub(1)) * 8);
    // The block's state at the GPU begins with the mask of resident pages. It is null before the
    // GPU has had any.
    let resident = match memory::driver::<u64>(state) {
        Ok(0) => return 0,
        Ok(resident) => memory::fill(&RESIDENT, resident, mask_words() * 8),
        Err(Unreadable) => return UNREADABLE,
    };
    let (Ok(resident), Some(requested)) = (resident, REQUESTED.get_ptr(0)) else { return UNREADABLE };
    // SAFETY: a value of the map, this CPU's own.
    let requested = unsafe { &*requested };
    let (mut pages, mut requested_pages) = (0, 0);
    for (_, (resident, requested)) in (0..mask_words()).zip(resident.iter().zip(requested)) {
        pages += u64::from(resident.count_ones());
        requested_pages += u64::from((resident & requested).count_ones());
    }
    pages << 32 | requested_pages
}

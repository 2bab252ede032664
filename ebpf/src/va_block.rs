//! What the driver keeps of a block of managed memory (`uvm_va_block_t`), and why it makes one resident somewhere (`uvm_make_resident_cause_t`).

use crate::{
    maps::layout,
    memory::{self, Unreadable},
};

/// `UVM_MAKE_RESIDENT_CAUSE_API_HINT`, the last.
pub const CAUSE_MAX: u32 = 8;
/// `UVM_MAKE_RESIDENT_CAUSE_NON_REPLAYABLE_FAULT`: it and the lower one, of those that are replayed.
pub const CAUSE_FAULT_MAX: u32 = 1;
/// `UVM_MAKE_RESIDENT_CAUSE_EVICTION`
pub const CAUSE_EVICTION: u32 = 4;
/// `UVM_MAKE_RESIDENT_CAUSE_API_TOOLS`: it and the higher ones were asked for by a process, on its own thread.
pub const CAUSE_API: u32 = 5;

/// The VA space of a block of managed memory; `None` for one that is dead, or of ordinary memory (HMM), which keeps its VA space elsewhere.
#[inline(always)]
pub fn va_space_of(block: u64) -> Result<Option<u64>, Unreadable> {
    match memory::driver::<u64>(block.wrapping_add(u64::from(layout!(block_range))))? {
        0 => Ok(None),
        range => Ok(Some(memory::driver(range)?)),
    }
}

/// Where a block begins.
#[inline(always)]
pub fn start_of(block: u64) -> Result<u64, Unreadable> {
    memory::driver(block.wrapping_add(u64::from(layout!(block_start))))
}

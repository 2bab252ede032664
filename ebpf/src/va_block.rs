//! Fields of a block of managed memory (`uvm_va_block_t`), and causes of a migration
//! (`uvm_make_resident_cause_t`).

use crate::{
    maps::layout,
    memory::{self, Unreadable},
};

/// Last cause: `UVM_MAKE_RESIDENT_CAUSE_API_HINT`.
pub const CAUSE_MAX: u32 = 8;
/// Last cause of a fault, `UVM_MAKE_RESIDENT_CAUSE_NON_REPLAYABLE_FAULT`; the one below is for
/// replayable faults.
pub const CAUSE_FAULT_MAX: u32 = 1;
/// `UVM_MAKE_RESIDENT_CAUSE_EVICTION`
pub const CAUSE_EVICTION: u32 = 4;
/// First cause that a process requests on its own thread: `UVM_MAKE_RESIDENT_CAUSE_API_TOOLS` and
/// above.
pub const CAUSE_API: u32 = 5;

/// VA space of a block of managed memory. `None` for a dead block, or for ordinary memory (HMM),
/// which stores its VA space elsewhere, at an offset that depends on the kernel's configuration.
#[inline(always)]
pub fn va_space_of(block: u64) -> Result<Option<u64>, Unreadable> {
    match memory::driver::<u64>(block.wrapping_add(u64::from(layout!(block_range))))? {
        0 => Ok(None),
        range => Ok(Some(memory::driver(range)?)),
    }
}

/// Start address of a block.
#[inline(always)]
pub fn start_of(block: u64) -> Result<u64, Unreadable> {
    memory::driver(block.wrapping_add(u64::from(layout!(block_start))))
}

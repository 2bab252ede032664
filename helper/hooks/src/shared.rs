//! The ring's memory, which the program pays for: not made where that could do harm.

use core::sync::atomic::AtomicU64;

use call_ring::{NAME, TOTAL_BYTES};

use crate::{
    headroom,
    system::{self, Errno},
    zeroed,
};

/// Largest file that the process may make, of linux/resource.h. Beyond it, a signal ends the process.
const FILE_SIZE: usize = 1;
/// Address space that the process may have, of linux/resource.h.
const ADDRESS_SPACE: usize = 9;
/// Share of what the process has left of memory and address space that the ring takes at most: 1 /
/// this. The helper's own tables are smaller than the ring.
const LEFT_PART: u64 = 16;

/// Whether a filter may restrict the process's system calls.
fn is_filtered() -> bool {
    const FILTER: &[u8] = b"\nSeccomp:\t2";
    let mut text = [0; system::TEXT_BYTES_MAX];
    let status = system::read_text(c"/proc/self/status", &mut text);
    // One that is cut, as for hundreds of groups, may be of a process with a filter.
    status.is_none_or(|status| {
        status.len() >= system::TEXT_BYTES_MAX || status.windows(FILTER.len()).any(|window| window == FILTER)
    })
}

/// Whether the memory can be made, and the program go on as without it.
pub(crate) fn is_permitted() -> bool {
    let bytes = TOTAL_BYTES as u64;
    system::limit(FILE_SIZE) >= bytes
        && headroom::address_space_bytes(system::limit(ADDRESS_SPACE)) / LEFT_PART >= bytes
        && headroom::bytes() / LEFT_PART >= bytes
        // A filter may end the process for the call.
        && (!is_filtered() || system::may_make_memory())
}

/// Makes the memory. No descriptor of it stays open.
///
/// # Errors
/// If the kernel has none.
pub(crate) fn make() -> Result<&'static [AtomicU64], Errno> {
    let memory = system::sealed_memory(NAME, TOTAL_BYTES)?;
    zeroed::shared(&memory, TOTAL_BYTES / 8)
}

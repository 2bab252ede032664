//! The ring's memory, which the program pays for: not made where that could do harm.

use core::sync::atomic::AtomicU64;

use call_ring::{NAME, TOTAL_BYTES};

use crate::{
    filter, headroom,
    system::{self, Errno},
    zeroed,
};

/// Largest file that the process may make, of linux/resource.h. Beyond it, a signal ends the process.
const FILE_SIZE: usize = 1;

/// Whether the memory can be made, and the program go on as without it. The helper's own tables are
/// smaller than the ring.
pub(crate) fn is_permitted() -> bool {
    let bytes = TOTAL_BYTES as u64;
    system::limit(FILE_SIZE) >= bytes
        && headroom::has_room(bytes, bytes)
        // A filter may end the process for the call.
        && (filter::count() == Some(0) || system::may_make_memory())
}

/// Makes the memory. No descriptor of it stays open.
///
/// # Errors
/// If the kernel has none.
pub(crate) fn make() -> Result<&'static [AtomicU64], Errno> {
    let memory = system::sealed_memory(NAME, TOTAL_BYTES)?;
    zeroed::shared(&memory, TOTAL_BYTES / 8)
}

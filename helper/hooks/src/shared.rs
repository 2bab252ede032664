//! The ring's memory, which the program pays for: not made where that could do harm.

use core::sync::atomic::AtomicU64;

use call_ring::TOTAL_BYTES;

use crate::{
    system::{self, Errno},
    zeroed,
};

/// Name by which uvmd knows it among the mappings of the process.
const NAME: &core::ffi::CStr = c"uvmd-ring";
/// Largest file that the process may make, of linux/resource.h. Beyond it, a signal ends the process.
const FILE_SIZE: usize = 1;

/// Makes the memory. No descriptor of it stays open.
///
/// # Errors
/// If a limit forbids it.
pub(crate) fn make() -> Result<&'static [AtomicU64], Errno> {
    if system::limit(FILE_SIZE) < TOTAL_BYTES as u64 {
        return Err(Errno(0));
    }
    let memory = system::sealed_memory(NAME, TOTAL_BYTES)?;
    zeroed::shared(&memory, TOTAL_BYTES / 8)
}

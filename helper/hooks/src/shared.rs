//! Memory of the ring and of the plan. It is charged to the program, and not created where that
//! could harm the program.

use core::{ffi::CStr, sync::atomic::AtomicU64};

use call_ring::{NAME, PLAN_BYTES, PLAN_NAME, TOTAL_BYTES};

use crate::{
    headroom,
    system::{self, Errno},
    zeroed,
};

/// `RLIMIT_FSIZE` of linux/resource.h. A larger file would kill the process by the signal
/// `SIGXFSZ`.
const FILE_SIZE: usize = 1;

/// Whether the memory can be created without harm to the program. The helper's own tables are of
/// about the same size.
pub(crate) fn is_permitted() -> bool {
    let bytes = (TOTAL_BYTES + PLAN_BYTES) as u64;
    system::limit(FILE_SIZE) >= TOTAL_BYTES as u64 && headroom::has_room(bytes, bytes)
}

/// Creates the memory of the ring. No descriptor of it stays open.
///
/// # Errors
/// Fails if the kernel refuses the memory.
pub(crate) fn make() -> Result<&'static [AtomicU64], Errno> {
    of_name(NAME, TOTAL_BYTES)
}

/// Creates the memory of the plan.
///
/// # Errors
/// Fails if the kernel refuses the memory.
pub(crate) fn make_plan() -> Result<&'static [AtomicU64], Errno> {
    of_name(PLAN_NAME, PLAN_BYTES)
}

fn of_name(name: &CStr, bytes: usize) -> Result<&'static [AtomicU64], Errno> {
    let memory = system::sealed_memory(name, bytes)?;
    zeroed::shared(&memory, bytes / 8)
}

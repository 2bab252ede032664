//! Memory of the ring and of the plan. It is charged to the program, and not created where that
//! could harm the program.

use core::{ffi::CStr, sync::atomic::AtomicU64};

use call_ring::{NAME, PLAN_BYTES, PLAN_NAME, TOTAL_BYTES};

use crate::{
    headroom, mapping,
    system::{self, Errno},
};

/// `RLIMIT_FSIZE` of linux/resource.h. A larger file would kill the process by the signal
/// `SIGXFSZ`.
const RLIMIT_FSIZE: usize = 1;

/// Whether the memory can be created without harm to the program. The helper's own tables are of
/// about the same size.
pub(crate) fn is_permitted() -> bool {
    let bytes = (TOTAL_BYTES + PLAN_BYTES) as u64;
    system::limit(RLIMIT_FSIZE) >= TOTAL_BYTES as u64 && headroom::has_room(bytes, bytes)
}

/// Creates the memory of the ring. No descriptor of it stays open.
///
/// # Errors
/// Fails if the kernel refuses the memory.
pub(crate) fn create_ring() -> Result<&'static [AtomicU64], Errno> {
    create(NAME, TOTAL_BYTES)
}

/// Creates the memory of the plan.
///
/// # Errors
/// Fails if the kernel refuses the memory.
pub(crate) fn create_plan() -> Result<&'static [AtomicU64], Errno> {
    create(PLAN_NAME, PLAN_BYTES)
}

fn create(name: &CStr, bytes: usize) -> Result<&'static [AtomicU64], Errno> {
    let memory = system::sealed_memory(name, bytes)?;
    mapping::shared(&memory, bytes / 8)
}

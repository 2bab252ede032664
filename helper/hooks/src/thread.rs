//! Thread ids from the C library, read without a system call, which a filter could forbid.

#![expect(unsafe_code, reason = "functions found by name")]

use core::{ffi::c_int, ptr::null_mut};

use crate::{libc::Dlsym, real::Real, system};

static OWN: Real = Real::none();
static CLOCK_OF: Real = Real::none();

/// Thread as the C library names it (`pthread_t`).
pub(crate) type Thread = usize;

/// Finds the functions; false if one is missing.
pub(crate) fn find(dlsym: Dlsym) -> bool {
    OWN.find(dlsym, null_mut(), c"pthread_self");
    CLOCK_OF.find(dlsym, null_mut(), c"pthread_getcpuclockid");
    !OWN.address().is_null() && !CLOCK_OF.address().is_null()
}

/// Whether the C library knows the kernel's id of the calling thread. It does not after a fork by a
/// direct system call.
pub(crate) fn has_number_of_kernel() -> bool {
    own_id() == Some(system::thread_id())
}

/// The calling thread, once the functions are found.
pub(crate) fn own() -> Thread {
    #[cfg(test)]
    find(crate::libc::dlsym);
    // SAFETY: the type is that of pthread.h. `find` succeeded before the recorder was created, and
    // only the recorder leads here.
    let own: unsafe extern "C" fn() -> Thread = unsafe { OWN.function() };
    // SAFETY: takes no arguments.
    unsafe { own() }
}

/// Id of a thread whose data the C library still has; `None` once the thread has ended.
///
/// The thread's id is encoded in the number of its CPU-time clock, which the C library derives from
/// the id that it stores. The kernel clears that id when the thread ends, even if it is killed.
pub(crate) fn id_of(thread: Thread) -> Option<u32> {
    const BITS_OF_THE_CLOCK: u32 = 3;
    if thread == 0 {
        return None;
    }
    // SAFETY: the type is that of pthread.h. `find` succeeded before the recorder was created, and
    // only the recorder leads here.
    let clock_of: unsafe extern "C" fn(Thread, *mut c_int) -> c_int = unsafe { CLOCK_OF.function() };
    let mut clock = 0;
    // SAFETY: the thread's data exist, and the clock's address is writable.
    let is_found = unsafe { clock_of(thread, &raw mut clock) } == 0;
    is_found.then(|| u32::try_from(!(clock >> BITS_OF_THE_CLOCK)).ok()).flatten()
}

/// Id of the calling thread.
pub(crate) fn own_id() -> Option<u32> {
    id_of(own())
}

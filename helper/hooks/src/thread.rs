//! Numbers of threads, as the C library knows them: that takes no system call, which a filter could forbid.

#![expect(unsafe_code, reason = "functions found by name")]

use core::{ffi::c_int, ptr::null_mut};

use crate::{libc::Dlsym, real::Real, system};

static OWN: Real = Real::none();
static CLOCK_OF: Real = Real::none();

/// Thread as the C library names it.
pub(crate) type Thread = usize;

/// Finds the functions; false if one is missing.
pub(crate) fn find(dlsym: Dlsym) -> bool {
    OWN.find(dlsym, null_mut(), c"pthread_self");
    CLOCK_OF.find(dlsym, null_mut(), c"pthread_getcpuclockid");
    !OWN.address().is_null() && !CLOCK_OF.address().is_null()
}

/// Whether the C library knows the kernel's number of the calling thread: not after a fork that a program made
/// by the system call itself.
pub(crate) fn has_number_of_kernel() -> bool {
    own_id() == Some(system::thread_id())
}

/// The calling thread, once the functions are found.
pub(crate) fn own() -> Thread {
    #[cfg(test)]
    find(crate::libc::dlsym);
    // SAFETY: of pthread.h. The recorder is made after it is found, and nobody asks before.
    let own: unsafe extern "C" fn() -> Thread = unsafe { OWN.function() };
    // SAFETY: takes no arguments.
    unsafe { own() }
}

/// Number of a thread that the C library has not forgotten; `None` once it has ended.
///
/// The clock of a thread's processor time is a number, in which the thread's own is. The kernel erases
/// what the C library makes it of when the thread ends, in whatever way.
pub(crate) fn id_of(thread: Thread) -> Option<u32> {
    const BITS_OF_THE_CLOCK: u32 = 3;
    if thread == 0 {
        return None;
    }
    // SAFETY: of pthread.h, and found as above.
    let clock_of: unsafe extern "C" fn(Thread, *mut c_int) -> c_int = unsafe { CLOCK_OF.function() };
    let mut clock = 0;
    // SAFETY: a thread whose data is there, and room for its clock.
    let is_found = unsafe { clock_of(thread, &raw mut clock) } == 0;
    is_found.then(|| u32::try_from(!(clock >> BITS_OF_THE_CLOCK)).ok()).flatten()
}

/// Number of the calling thread.
pub(crate) fn own_id() -> Option<u32> {
    id_of(own())
}

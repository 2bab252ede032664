//! Thread ids from the C library, read without a system call, which a filter could forbid.

#![expect(unsafe_code, reason = "functions found by name")]

use core::{ffi::c_int, ptr::null_mut};

use crate::{libc::Dlsym, real::Real, system};

static PTHREAD_SELF: Real = Real::unresolved();
static PTHREAD_GETCPUCLOCKID: Real = Real::unresolved();

/// Thread as the C library names it (`pthread_t`).
pub(crate) type Thread = usize;

/// Finds the functions; false if one is missing.
pub(crate) fn find(dlsym: Dlsym) -> bool {
    PTHREAD_SELF.find(dlsym, null_mut(), c"pthread_self");
    PTHREAD_GETCPUCLOCKID.find(dlsym, null_mut(), c"pthread_getcpuclockid");
    !PTHREAD_SELF.address().is_null() && !PTHREAD_GETCPUCLOCKID.address().is_null()
}

/// Whether the C library has the kernel's id of the calling thread. It does not after a fork by a
/// direct system call. Makes a system call.
pub(crate) fn has_kernel_id() -> bool {
    current_id() == Some(system::thread_id())
}

/// The calling thread, once the functions are found.
pub(crate) fn current() -> Thread {
    #[cfg(test)]
    find(crate::libc::dlsym);
    // SAFETY: the type is that of pthread.h. `find` succeeded before the recorder was created, and
    // only the recorder leads here.
    let pthread_self: unsafe extern "C" fn() -> Thread = unsafe { PTHREAD_SELF.function() };
    // SAFETY: takes no arguments.
    unsafe { pthread_self() }
}

/// Id of a thread whose data the C library still has; `None` once the thread has ended.
///
/// The thread's id is encoded in the number of its CPU-time clock, which the C library derives from
/// the id that it stores. The kernel clears that id when the thread ends, even if it is killed.
pub(crate) fn id_of(thread: Thread) -> Option<u32> {
    const CLOCK_TYPE_BITS: u32 = 3;
    if thread == 0 {
        return None;
    }
    // SAFETY: the type is that of pthread.h. `find` succeeded before the recorder was created, and
    // only the recorder leads here.
    let get_clock_id: unsafe extern "C" fn(Thread, *mut c_int) -> c_int = unsafe { PTHREAD_GETCPUCLOCKID.function() };
    let mut clock = 0;
    // SAFETY: the C library still has the thread's data, and `clock` is writable.
    let is_found = unsafe { get_clock_id(thread, &raw mut clock) } == 0;
    is_found.then(|| u32::try_from(!(clock >> CLOCK_TYPE_BITS)).ok()).flatten()
}

/// Id of the calling thread.
pub(crate) fn current_id() -> Option<u32> {
    id_of(current())
}

//! The monotonic clock, which the C library usually reads without a system call.

#![expect(unsafe_code, reason = "a function found by name")]

use core::{ffi::c_int, ptr::null_mut};

use crate::{libc::Dlsym, real::Real};

static CLOCK: Real = Real::unresolved();

/// Finds the function; false if it is missing.
pub(crate) fn find(dlsym: Dlsym) -> bool {
    CLOCK.find(dlsym, null_mut(), c"clock_gettime");
    !CLOCK.address().is_null()
}

/// Time of the monotonic clock, once the function is found.
pub(crate) fn monotonic_ns() -> u64 {
    type Clock = unsafe extern "C" fn(c_int, *mut [u64; 2]) -> c_int;
    const MONOTONIC: c_int = 1;
    #[cfg(test)]
    find(crate::libc::dlsym);
    let mut time = [0; 2];
    // SAFETY: the type is that of time.h, whose timespec has two words. `find` succeeded before the
    // recorder was created, and only the recorder leads here.
    let clock: Clock = unsafe { CLOCK.function() };
    // SAFETY: writes a timespec.
    unsafe { clock(MONOTONIC, &raw mut time) };
    let [seconds, nanoseconds] = time;
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

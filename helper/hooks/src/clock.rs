//! The monotonic clock, read in the process itself: as a rule, the C library makes no system call for it.

#![expect(unsafe_code, reason = "a function found by name")]

use core::{ffi::c_int, ptr::null_mut};

use crate::{libc::Dlsym, real::Real};

static CLOCK: Real = Real::none();

/// Finds the clock; false without one.
pub(crate) fn find(dlsym: Dlsym) -> bool {
    CLOCK.find(dlsym, null_mut(), c"clock_gettime");
    !CLOCK.address().is_null()
}

/// Time of the monotonic clock, once that is found.
pub(crate) fn monotonic_ns() -> u64 {
    type Clock = unsafe extern "C" fn(c_int, *mut [u64; 2]) -> c_int;
    const MONOTONIC: c_int = 1;
    #[cfg(test)]
    find(crate::libc::dlsym);
    let mut time = [0; 2];
    // SAFETY: of time.h, whose timespec has two words. The recorder is made after it is found, and nobody
    // asks before.
    let clock: Clock = unsafe { CLOCK.function() };
    // SAFETY: writes a timespec.
    unsafe { clock(MONOTONIC, &raw mut time) };
    let [seconds, nanoseconds] = time;
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

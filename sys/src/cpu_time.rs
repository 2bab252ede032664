//! How long a thread has been at work.

use std::{mem::MaybeUninit, time::Duration};

/// Time that the current thread has taken of a processor; 0 where the kernel does not tell.
#[must_use]
#[expect(unsafe_code, reason = "a system call without a safe wrapper")]
pub fn of_this_thread() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: writes the one structure it is given.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, time.as_mut_ptr()) };
    // SAFETY: zeroed, and then written or not.
    let libc::timespec { tv_sec, tv_nsec, .. } = unsafe { time.assume_init() };
    match (result, u64::try_from(tv_sec), u32::try_from(tv_nsec)) {
        (0, Ok(seconds), Ok(nanoseconds)) => Duration::new(seconds, nanoseconds),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_has_been_at_work_for_longer() {
        let begun = of_this_thread();
        let mut sum = 0_u64;
        while of_this_thread() == begun {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(of_this_thread() > begun);
    }
}

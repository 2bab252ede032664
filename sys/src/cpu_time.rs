//! Processor time of threads, and their voluntary context switches.

use std::{cell::Cell, mem::MaybeUninit, time::Duration};

use rustix::time::{ClockId, clock_gettime};

thread_local! {
    /// Processor time that other threads have used for this one.
    static OF_OTHERS: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Processor time used by the current thread, and by others [for it](crate::process_reads).
#[must_use]
pub fn of_this_thread() -> Duration {
    let own = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    own.saturating_add(OF_OTHERS.get())
}

/// Adds processor time that another thread has used for the current one.
pub(crate) fn add_to_this_thread(spent: Duration) {
    OF_OTHERS.set(OF_OTHERS.get().saturating_add(spent));
}

/// Voluntary context switches of the current thread: the number of times it has slept. A wait for a processor
/// does not count.
#[must_use]
#[expect(unsafe_code, reason = "a system call without a safe wrapper")]
pub fn sleeps_of_this_thread() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes into a place of this type, which is zeros if it fails.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: numbers, of which zeros are values as well.
    unsafe { usage.assume_init() }.ru_nvcsw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_waits_has_slept_and_one_that_works_has_not() {
        let before = sleeps_of_this_thread();
        let (begun, mut sum) = (of_this_thread(), 0_u64);
        while of_this_thread() == begun {
            sum = std::hint::black_box(sum + 1);
        }
        assert_eq!(sleeps_of_this_thread(), before);
        std::thread::sleep(Duration::from_millis(1));
        assert!(sleeps_of_this_thread() > before);
    }

    #[test]
    fn working_thread_accrues_cpu_time() {
        let begun = of_this_thread();
        let mut sum = 0_u64;
        while of_this_thread() == begun {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(of_this_thread() > begun);
    }
}

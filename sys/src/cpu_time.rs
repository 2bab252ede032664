//! Processor time of threads.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time used by the current thread.
#[must_use]
pub fn of_this_thread() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Clocks that measure readings.

use std::{fmt, time::Duration};

use model::ProcessId;
use sys::{Roots, clock, cpu_time, processes};

/// Clock of readings.
pub(crate) trait Clock: fmt::Debug + Send + Sync {
    /// Monotonic time.
    fn now(&self) -> Duration;

    /// Processor time used by the current thread.
    fn thread_cpu_time(&self) -> Duration;

    /// Processor time used by a process, if it runs.
    fn cpu_time_of(&self, process: ProcessId) -> Option<Duration>;
}

/// Clock of the system.
#[derive(Clone, Debug)]
pub(crate) struct SystemClock(pub(crate) Roots);

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        clock::monotonic()
    }

    fn thread_cpu_time(&self) -> Duration {
        cpu_time::of_this_thread()
    }

    fn cpu_time_of(&self, ProcessId { pid, start_ticks }: ProcessId) -> Option<Duration> {
        processes::cpu_time(&self.0, pid, start_ticks)
    }
}

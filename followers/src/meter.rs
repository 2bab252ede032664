//! Processor time that processes use themselves, a share of which uvmd may spend on their plans.

use std::time::{Duration, Instant};

use model::ProcessId;
use sys::{Roots, processes};

/// Interval of readings of a process's own processor time.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Reader of the processor time that a process uses.
#[derive(Debug)]
pub(crate) struct Meter {
    process: ProcessId,
    /// Time of the last reading, also of one that failed.
    read_at: Option<Instant>,
    used: Option<Duration>,
}

impl Meter {
    pub(crate) const fn new(process: ProcessId) -> Self {
        Self { process, read_at: None, used: None }
    }

    /// Time used since the last reading; `None` before the next one is due, and after the process has exited.
    pub(crate) fn used(&mut self) -> Option<Duration> {
        if self.read_at.is_some_and(|at| at.elapsed() < READ_INTERVAL) {
            return None;
        }
        self.read_at = Some(Instant::now());
        let used = cpu_time_of(self.process)?;
        let before = self.used.replace(used).unwrap_or(used);
        Some(used.saturating_sub(before))
    }
}

/// Processor time that a process has used so far; `None` if it is gone.
pub(crate) fn cpu_time_of(ProcessId { pid, start_ticks }: ProcessId) -> Option<Duration> {
    processes::cpu_time(&Roots::default(), pid, start_ticks)
}

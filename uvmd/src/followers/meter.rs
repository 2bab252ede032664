//! Processor time that processes use themselves, which pays for what uvmd spends on their plans.

use std::time::{Duration, Instant};

use model::ProcessId;
use sys::{
    Roots,
    processes::{self, Usage},
};

/// Interval of readings of a process's own processor time.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Reader of the processor time that a process uses.
#[derive(Debug)]
pub(super) struct Meter {
    process: ProcessId,
    read: Option<(Instant, Duration)>,
}

impl Meter {
    pub(super) const fn new(process: ProcessId) -> Self {
        Self { process, read: None }
    }

    /// Time used since the last reading; `None` before the next one is due.
    pub(super) fn used(&mut self) -> Option<Duration> {
        if self.read.is_some_and(|(at, _)| at.elapsed() < READ_INTERVAL) {
            return None;
        }
        let cpu = cpu_of(self.process)?;
        let (_, before) = self.read.replace((Instant::now(), cpu)).unwrap_or((Instant::now(), cpu));
        Some(cpu.saturating_sub(before))
    }
}

/// Processor time that a process has used so far; `None` if it is gone.
pub(super) fn cpu_of(process: ProcessId) -> Option<Duration> {
    let usage = processes::usage(&Roots::default(), process.pid).ok().flatten();
    usage.filter(|usage| usage.start_ticks == process.start_ticks).map(|Usage { cpu, .. }| cpu)
}

//! Keys of processes.

use api::Process;

/// Key of a process: pids are reused, start times are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProcessKey {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
}

impl ProcessKey {
    pub(crate) const fn of(process: &Process) -> Self {
        Self { pid: process.pid, start_ticks: process.start_ticks }
    }
}

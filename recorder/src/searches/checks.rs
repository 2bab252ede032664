//! Checks of processes in /proc, once per scan, without the lock of the searches.

use std::{collections::BTreeMap, time::Duration};

use model::ProcessId;
use sys::{Roots, cpu_time, processes};

/// Processes to read.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(super) roots: Roots,
    /// Processes that may have exited.
    pub(super) exits: Vec<ProcessId>,
    /// Processes of users whose budget is used up.
    pub(super) users: BTreeMap<u32, Vec<ProcessId>>,
}

/// Results of the checks.
#[derive(Debug)]
pub(crate) struct CheckResults {
    pub(super) exited: Vec<ProcessId>,
    pub(super) users: BTreeMap<u32, UserTime>,
}

/// Processor time of the processes of a user.
#[derive(Debug)]
pub(super) struct UserTime {
    pub(super) cpu_times: Vec<(ProcessId, Duration)>,
    /// Processor time that uvmd has spent on the checks.
    pub(super) spent: Duration,
}

impl Checks {
    /// Reads the processes.
    pub(crate) fn read(self) -> CheckResults {
        let Self { roots, mut exits, users } = self;
        let has_exited = |process: &ProcessId| {
            let start_ticks = processes::start_ticks(&roots, process.pid);
            start_ticks.is_ok_and(|ticks| ticks != Some(process.start_ticks))
        };
        exits.retain(has_exited);
        let user_time = |processes: Vec<ProcessId>| {
            let begun = cpu_time::of_this_thread();
            let used =
                |process: ProcessId| Some((process, processes::cpu_time(&roots, process.pid, process.start_ticks)?));
            let used = processes.into_iter().filter_map(used).collect();
            UserTime { cpu_times: used, spent: cpu_time::of_this_thread().saturating_sub(begun) }
        };
        let users = users.into_iter().map(|(uid, processes)| (uid, user_time(processes))).collect();
        CheckResults { exited: exits, users }
    }
}

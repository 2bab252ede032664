//! Headroom of cgroups, as the acting loop reads it.
//!
//! A user can have many cgroups, and nest them. Each cgroup is therefore read once a second for all of its
//! processes, and a pass of the loop reads for a limited time: the other cgroups have their turn in the next
//! passes. Reads are charged to the user of a process in the cgroup (`sys::process_reads`). The actuator reads
//! again before it moves memory to the host.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    time::Duration,
};

use model::{Process, ProcessId};

/// Interval of reads of a cgroup.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Limit of the reads of a pass.
const PASS_MAX: Duration = Duration::from_millis(50);

/// Headroom of cgroups as last read.
#[derive(Debug, Default)]
pub(super) struct Headrooms(HashMap<PathBuf, LastRead>);

#[derive(Clone, Copy, Debug)]
struct LastRead {
    at: Duration,
    /// `None` if unknown.
    bytes: Option<u64>,
}

impl Headrooms {
    /// Headroom of processes up to the limits of their cgroups. Processes are omitted if theirs is unknown or not
    /// read yet. Forgets the cgroups without any of these processes.
    pub(super) fn of<'a>(
        &mut self,
        processes: impl Iterator<Item = &'a Process>,
        now: impl Fn() -> Duration,
        read: impl Fn(u32) -> Option<u64>,
    ) -> BTreeMap<ProcessId, u64> {
        let begun = now();
        let mut former = std::mem::take(&mut self.0);
        let mut known = BTreeMap::new();
        for process in processes {
            let Some(cgroup) = process.cgroup.as_deref() else { continue };
            if let Some(bytes) = self.of_cgroup(cgroup, &mut former, process.id.pid, begun, &now, &read) {
                known.insert(process.id, bytes);
            }
        }
        known
    }

    fn of_cgroup(
        &mut self,
        cgroup: &Path,
        former: &mut HashMap<PathBuf, LastRead>,
        pid: u32,
        begun: Duration,
        now: impl Fn() -> Duration,
        read: impl Fn(u32) -> Option<u64>,
    ) -> Option<u64> {
        if let Some(last) = self.0.get(cgroup) {
            return last.bytes;
        }
        let last = former.remove(cgroup);
        let is_due = last.is_none_or(|last| begun.saturating_sub(last.at) >= READ_EVERY);
        let last = if is_due && now().saturating_sub(begun) < PASS_MAX {
            Some(LastRead { at: begun, bytes: read(pid) })
        } else {
            last
        }?;
        self.0.insert(cgroup.to_owned(), last);
        last.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn process(pid: u32, cgroup: &str) -> Process {
        let mut process = Process::new(ProcessId { pid, start_ticks: 1 }, "program");
        process.cgroup = Some(cgroup.into());
        process
    }

    #[test]
    fn cgroup_is_read_once_a_second_for_all_of_its_processes() {
        let processes = [process(1, "/a"), process(2, "/a"), process(3, "/b")];
        let (mut headrooms, reads) = (Headrooms::default(), RefCell::new(Vec::new()));
        let read = |pid| {
            reads.borrow_mut().push(pid);
            Some(u64::from(pid))
        };
        for at in [0, 500, 999, 1000, 1001] {
            let known = headrooms.of(processes.iter(), || MS * at, read);
            assert_eq!(known.values().copied().collect::<Vec<_>>(), [1, 1, 3], "at {at} ms");
        }
        assert_eq!(*reads.borrow(), [1, 3, 1, 3]);
    }

    #[test]
    fn pass_reads_for_a_limited_time_and_the_next_goes_on() {
        let processes: Vec<_> = (1..=6).map(|pid| process(pid, &format!("/{pid}"))).collect();
        let (mut headrooms, clock) = (Headrooms::default(), Cell::new(Duration::ZERO));
        let slow = |pid| {
            clock.set(clock.get() + PASS_MAX / 2);
            Some(u64::from(pid))
        };
        let mut known = || headrooms.of(processes.iter(), || clock.get(), slow).len();
        assert_eq!([known(), known(), known(), known()], [2, 4, 6, 6]);
    }

    #[test]
    fn unknown_headroom_and_that_of_ended_processes_are_not_retained() {
        let (mut headrooms, processes) = (Headrooms::default(), [process(1, "/a")]);
        assert!(headrooms.of(processes.iter(), || MS, |_| None).is_empty());
        assert!(headrooms.of(processes.iter(), || MS, |_| Some(1)).is_empty(), "not read again at once");
        headrooms.of([].iter(), || MS, |_| Some(1));
        assert_eq!(headrooms.of(processes.iter(), || MS, |_| Some(1)).len(), 1);
    }
}

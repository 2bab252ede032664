//! Headroom of cgroups, as the acting loop reads it.
//!
//! A user can nest cgroups, and have many. So a cgroup is read once a second, for all processes of a user in it,
//! and a pass of the loop reads for a limited time, the oldest first. Reads are charged to that user
//! (`sys::process_reads`). Whoever moves memory to the host looks again.

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
/// Age at which a headroom is unknown again.
const AGE_MAX: Duration = Duration::from_secs(10);

/// Headroom of the cgroups of each user, as last read.
#[derive(Debug, Default)]
pub(super) struct Headrooms(HashMap<u32, HashMap<PathBuf, LastRead>>);

#[derive(Clone, Copy, Debug)]
struct LastRead {
    at: Duration,
    /// `None` if unknown.
    bytes: Option<u64>,
}

impl Headrooms {
    /// Headroom of processes up to the limits of their cgroups, where it is known. Cgroups without any of them are
    /// forgotten.
    pub(super) fn of<'a>(
        &mut self,
        processes: impl Iterator<Item = &'a Process>,
        now: impl Fn() -> Duration,
        read: impl Fn(u32) -> Option<u64>,
    ) -> BTreeMap<ProcessId, u64> {
        let begun = now();
        let located: Vec<_> =
            processes.filter_map(|process| Some((process.id, process.uid, process.cgroup.as_deref()?))).collect();
        // By any process of the user in it.
        let pids: BTreeMap<(u32, &Path), u32> = located.iter().map(|(id, uid, path)| ((*uid, *path), id.pid)).collect();
        self.forget_others(&pids);
        let mut due: Vec<_> = pids
            .iter()
            .map(|((uid, path), pid)| (self.last(*uid, path).map(|last| last.at), *uid, *path, *pid))
            .filter(|(at, ..)| at.is_none_or(|at| begun.saturating_sub(at) >= READ_EVERY))
            .collect();
        due.sort_unstable();
        for (_, uid, path, pid) in due {
            if now().saturating_sub(begun) >= PASS_MAX {
                break;
            }
            let last = LastRead { at: begun, bytes: read(pid) };
            self.0.entry(uid).or_default().insert(path.to_owned(), last);
        }
        let bytes = |uid, path| {
            let last = self.last(uid, path).filter(|last| begun.saturating_sub(last.at) < AGE_MAX);
            last.and_then(|last| last.bytes)
        };
        located.iter().filter_map(|(id, uid, path)| Some((*id, bytes(*uid, path)?))).collect()
    }

    fn last(&self, uid: u32, path: &Path) -> Option<LastRead> {
        self.0.get(&uid)?.get(path).copied()
    }

    fn forget_others(&mut self, present: &BTreeMap<(u32, &Path), u32>) {
        self.0.retain(|uid, cgroups| {
            cgroups.retain(|path, _| present.contains_key(&(*uid, path.as_path())));
            !cgroups.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn process(pid: u32, uid: u32, cgroup: &str) -> Process {
        let mut process = Process::new(ProcessId { pid, start_ticks: 1 }, "program");
        (process.uid, process.cgroup) = (uid, Some(cgroup.into()));
        process
    }

    #[test]
    fn cgroup_is_read_once_a_second_for_all_of_a_users_processes() {
        let processes = [process(1, 0, "/a"), process(2, 0, "/a"), process(3, 0, "/b")];
        let (mut headrooms, reads) = (Headrooms::default(), Cell::new(0));
        let read = |pid| {
            reads.set(reads.get() + 1);
            Some(u64::from(pid == 3))
        };
        let mut reads_at = |at| {
            let known = headrooms.of(processes.iter(), || MS * at, read);
            assert_eq!(known.into_values().collect::<Vec<_>>(), [0, 0, 1], "at {at} ms");
            reads.take()
        };
        assert_eq!([0, 500, 999, 1000, 1001].map(&mut reads_at), [2, 0, 0, 2, 0]);
    }

    #[test]
    fn pass_reads_for_a_limited_time_the_oldest_first() {
        // One user's 100 cgroups come before another's.
        let mut processes: Vec<_> = (1..=100).map(|pid| process(pid, 1000, &format!("/{pid}"))).collect();
        processes.push(process(101, 1001, "/other"));
        let (mut headrooms, clock, order) = (Headrooms::default(), Cell::new(Duration::ZERO), RefCell::new(Vec::new()));
        let slow = |pid| {
            clock.set(clock.get() + PASS_MAX / 2);
            order.borrow_mut().push(pid);
            Some(u64::from(pid))
        };
        let mut reads_of_pass = || {
            headrooms.of(processes.iter(), || clock.get(), slow);
            clock.set(clock.get() + 50 * MS);
            order.take()
        };
        assert!((0..200).all(|_| reads_of_pass().len() == 2));
        let turn: Vec<u32> = (0..51).flat_map(|_| reads_of_pass()).collect();
        assert!((1..=101).all(|pid| turn.contains(&pid)), "{turn:?}");
    }

    #[test]
    fn unknown_headroom_of_one_user_hides_none_of_another() {
        let processes = [process(1, 1000, "/job"), process(2, 1001, "/job")];
        let known = Headrooms::default().of(processes.iter(), || MS, |pid| (pid == 2).then_some(7));
        assert_eq!(known.into_iter().map(|(id, bytes)| (id.pid, bytes)).collect::<Vec<_>>(), [(2, 7)]);
    }

    #[test]
    fn headroom_that_is_not_read_again_is_unknown_in_the_end() {
        let (mut headrooms, clock) = (Headrooms::default(), Cell::new(Duration::ZERO));
        let processes = [process(1, 0, "/a"), process(2, 0, "/b")];
        let mut known = |processes: &[Process], takes| {
            let read = |_| {
                clock.set(clock.get() + takes);
                Some(1)
            };
            headrooms.of(processes.iter(), || clock.get(), read).len()
        };
        assert_eq!(known(&processes, Duration::ZERO), 2);
        clock.set(AGE_MAX);
        assert_eq!(known(&processes, PASS_MAX), 1, "there was time for one");
    }

    #[test]
    fn unknown_headroom_is_not_read_again_at_once_and_that_of_ended_processes_is_forgotten() {
        let (mut headrooms, processes) = (Headrooms::default(), [process(1, 0, "/a")]);
        assert!(headrooms.of(processes.iter(), || MS, |_| None).is_empty());
        assert!(headrooms.of(processes.iter(), || MS, |_| Some(1)).is_empty());
        headrooms.of([].iter(), || MS, |_| Some(1));
        assert_eq!(headrooms.of(processes.iter(), || MS, |_| Some(1)).len(), 1);
    }
}

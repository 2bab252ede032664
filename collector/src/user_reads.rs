//! Reads of files that belong to users: what they cost is charged, and few are in progress for each.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use model::ProcessId;
use sys::{
    Roots,
    cpu_budget::{Accounts, Allowance},
    cpu_time, processes,
};

use crate::{id_list, lookup_cache::Hung};

/// Time that reads of a user's processes take, and for which these keep them waiting.
const ALLOWANCE: Allowance = Allowance { part: 50, burst: Duration::from_secs(1), credit_part: None };
/// Limit of what is charged for one read: one that hangs for days is not paid for as long.
const READ_MAX: Duration = Duration::from_secs(10);
/// Reads in progress for a user, those that hang included.
const READS_MAX: usize = 2;

/// Reads of all users' processes.
#[derive(Debug)]
pub(crate) struct UserReads {
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    accounts: Accounts,
    /// Users with reads in progress.
    in_progress: BTreeMap<u32, usize>,
}

/// Read in progress on this thread, which is charged when it ends.
struct InProgress<'a> {
    reads: &'a UserReads,
    uid: u32,
    begun: Instant,
    cpu: Duration,
    sleeps: i64,
}

impl Default for UserReads {
    fn default() -> Self {
        let state = State { accounts: Accounts::new(ALLOWANCE), in_progress: BTreeMap::new() };
        Self { begun: Instant::now(), state: Mutex::new(state) }
    }
}

impl UserReads {
    /// Result of a read on this thread. `None` if there is none, if another process has the pid, and while the user
    /// of the process has used up its time, or too many of its reads are in progress.
    pub(crate) fn read<T>(&self, roots: &Roots, id: ProcessId, read: impl FnOnce() -> Option<T>) -> Option<T> {
        let found = self.read_charged(processes::user(roots, id.pid)?, read)?;
        // Afterwards, and not charged: this thread sleeps while another one reads it.
        let start_ticks = processes::start_ticks(roots, id.pid).ok()??;
        (id.start_ticks == 0 || start_ticks == id.start_ticks).then_some(found)
    }

    fn read_charged<T>(&self, uid: u32, read: impl FnOnce() -> Option<T>) -> Option<T> {
        if !self.state().begin(uid, self.begun.elapsed()) {
            return None;
        }
        let _in_progress = InProgress {
            reads: self,
            uid,
            begun: Instant::now(),
            cpu: cpu_time::of_this_thread(),
            sleeps: cpu_time::sleeps_of_this_thread(),
        };
        read()
    }

    /// Users whose processes are not read for a while.
    pub(crate) fn over(&self) -> Vec<u32> {
        self.state().accounts.over(self.begun.elapsed()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin(&mut self, uid: u32, now: Duration) -> bool {
        let in_progress = self.in_progress.get(&uid).copied().unwrap_or_default();
        let may_begin = in_progress < READS_MAX && !self.accounts.is_over(uid, now);
        if may_begin {
            self.in_progress.insert(uid, in_progress + 1);
        }
        may_begin
    }

    fn end(&mut self, uid: u32, spent: Duration, now: Duration) {
        self.accounts.charge(uid, spent.min(READ_MAX), now);
        if let Some(in_progress) = self.in_progress.get_mut(&uid) {
            *in_progress -= 1;
        }
        self.in_progress.retain(|_, in_progress| *in_progress > 0);
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        // Time for which others had the processor is not the user's.
        let has_slept = cpu_time::sleeps_of_this_thread() != self.sleeps;
        let spent = if has_slept { self.begun.elapsed() } else { cpu_time::of_this_thread().saturating_sub(self.cpu) };
        self.reads.state().end(self.uid, spent, self.reads.begun.elapsed());
    }
}

/// Names the processes that hang the reads of a subject, as `cause` has it, with the effect.
pub(crate) fn hung_warning(subject: &str, cause: &str, hung: &Hung<ProcessId>, effect: &str) -> Option<String> {
    let Hung { keys, is_full } = hung;
    let others = if *is_full { "; at this number, no other is read until one of them is released" } else { "" };
    (!keys.is_empty()).then(|| {
        format!(
            "{subject} of {} processes cannot be read, as {cause} (pid {}): {effect}{others}",
            keys.len(),
            id_list::of(keys.iter().map(|process| process.pid))
        )
    })
}

/// Names the users whose processes' files of this path are not read for a while.
pub(crate) fn warning(path: &str, reads: &UserReads) -> Option<String> {
    let users = reads.over();
    (!users.is_empty()).then(|| {
        format!(
            "{path} of processes of {} users is not read for a while, as reads of it took too long (uid {}): what it holds is as of the \
             last reading, or unknown",
            users.len(),
            id_list::of(users.iter().copied())
        )
    })
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use sys::fake::Machine;

    use super::*;

    #[test]
    fn hung_reads_are_reported_with_their_number_and_a_few_pids() {
        let hung = |pids: std::ops::Range<u32>, is_full| {
            let keys = pids.map(|pid| ProcessId { pid, start_ticks: 1 }).collect();
            hung_warning("/proc/PID/maps", "they hang", &Hung { keys, is_full }, "it is unknown")
        };
        assert_eq!(hung(0..0, false), None);
        let few = "/proc/PID/maps of 2 processes cannot be read, as they hang (pid 7, 8): it is unknown";
        assert_eq!(hung(7..9, false).unwrap(), few);
        let many = hung(1..17, true).unwrap();
        assert!(many.contains("of 16 processes") && many.contains("(pid 1, 2, 3, 4, ...)"), "{many}");
        assert!(many.contains("no other is read"), "{many}");
    }

    /// Processes 42 to 45, of which the last is of another user.
    fn machine() -> Machine {
        let stat = |pid| format!("{pid} (app) S {}7 {}\n", "0 ".repeat(18), "0 ".repeat(30));
        let status = |uid| format!("Name:\tapp\nUid:\t{uid}\t0\t0\t0\n");
        (42..46).fold(Machine::new(), |machine, pid| {
            let uid = if pid == 45 { 1001 } else { 1000 };
            machine.with(&format!("proc/{pid}/stat"), stat(pid)).with(&format!("proc/{pid}/status"), status(uid))
        })
    }

    const fn id(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 7 }
    }

    fn pid_of(reads: &UserReads, machine: &Machine, pid: u32) -> Option<u32> {
        reads.read(&machine.roots, id(pid), || Some(pid))
    }

    #[test]
    fn user_whose_reads_take_too_long_is_not_read_for_a_while() {
        let (reads, machine) = (UserReads::default(), machine());
        assert_eq!([42, 45].map(|pid| pid_of(&reads, &machine, pid)), [Some(42), Some(45)]);
        reads.state().begin(1000, reads.begun.elapsed());
        reads.state().end(1000, Duration::from_hours(1), reads.begun.elapsed());
        assert_eq!([42, 45].map(|pid| pid_of(&reads, &machine, pid)), [None, Some(45)]);
        assert_eq!(reads.over(), [1000]);
        assert!(!reads.state().accounts.is_over(1000, Duration::from_mins(9)), "for a while");
    }

    #[test]
    fn read_of_an_ended_process_yields_nothing() {
        let (reads, machine) = (UserReads::default(), machine());
        let earlier = ProcessId { start_ticks: 6, ..id(42) };
        assert_eq!(reads.read(&machine.roots, earlier, || Some(())), None);
        let unknown = ProcessId { start_ticks: 0, ..id(42) };
        assert_eq!(reads.read(&machine.roots, unknown, || Some(())), Some(()));
    }

    #[test]
    fn reads_that_wait_are_charged() {
        let (reads, machine) = (UserReads::default(), machine());
        let pause = Duration::from_millis(20);
        let waits = || {
            thread::sleep(pause);
            Some(())
        };
        reads.read(&machine.roots, id(42), waits);
        assert!(reads.state().accounts.debt(1000, reads.begun.elapsed()) > pause / 2);
    }

    #[test]
    fn read_that_panics_is_over() {
        let (reads, machine) = (UserReads::default(), machine());
        let panics = || reads.read(&machine.roots, id(42), || -> Option<()> { panic!("by the test") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert!(reads.state().in_progress.is_empty());
    }

    #[test]
    fn reads_that_hang_keep_others_of_their_user_alone_from_being_made() {
        let (reads, machine) = (UserReads::default(), machine());
        thread::scope(|scope| {
            let (begins, begun) = mpsc::channel();
            let mut releases = Vec::new();
            for pid in [42, 43] {
                let (release, wait) = mpsc::channel::<()>();
                releases.push(release);
                let (reads, machine, begins) = (&reads, &machine, begins.clone());
                scope.spawn(move || {
                    reads.read(&machine.roots, id(pid), || {
                        begins.send(()).unwrap();
                        wait.recv().ok()
                    })
                });
                begun.recv().unwrap();
            }
            assert_eq!([44, 45].map(|pid| pid_of(&reads, &machine, pid)), [None, Some(45)]);
            drop(releases);
        });
        assert!(reads.state().in_progress.is_empty());
    }
}

//! Reads of files in `/proc/PID` for which the process can keep the reader waiting.
//!
//! The kernel reads `stat`, `exe` and others once the process has completed its `execve`, which may wait
//! for a file system that the same user serves, for ever. So a thread of a few makes the read, and the
//! caller waits for [`PATIENCE`] at most while that thread sleeps. A read that takes longer is left to
//! its thread: it counts against the user of the process until it returns.
//!
//! ```text
//!   caller ── read ──▶ idle thread, or a new one
//!     │                  ├─ returns: the result
//!     │                  ├─ waits for a processor: the caller waits, too
//!     └─ PATIENCE ───────└─ sleeps: the caller gets an error, and so does who asks again
//! ```
//!
//! **Limits**: reads that are left to their threads, of a user ([`OF_USER_MAX`]) and in all ([`MAX`]); the
//! time for which callers wait for processes of a user ([`WAITS`]). Beyond them, the files of the user's
//! processes are not read.

use std::{
    fmt,
    io::{self, ErrorKind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use thiserror::Error;

use crate::{
    Roots, clock,
    cpu_budget::{Accounts, Allowance},
    cpu_time, process_status,
};

/// Time for which a caller waits for a read that sleeps.
const PATIENCE: Duration = Duration::from_millis(50);
/// The same for one that computes, or waits for a processor.
const PATIENCE_RUNNING: Duration = Duration::from_secs(5);
/// Reads that are left to their threads: of the processes of all users, and of one user.
const MAX: usize = 256;
const OF_USER_MAX: usize = 8;
/// Time for which callers wait for reads that sleep, of the processes of one user.
const WAITS: Allowance = Allowance { part: 50, burst: Duration::from_millis(500), credit_part: None };
/// Account of users whose id is unknown: no user has this one.
const UNKNOWN_USER: u32 = u32::MAX;
/// Threads that are kept for further reads.
const IDLE_MAX: usize = 4;
const STACK_BYTES: usize = 256 << 10;

/// Reason why a file was not read. As an [`io::Error`], it is of the kind [`ErrorKind::TimedOut`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// A read of this process's files has not returned.
    #[error("the process keeps readers of its files in /proc waiting")]
    Waiting,
    /// The user's processes keep too many waiting, or for too long.
    #[error("other processes of its user keep readers of their files in /proc waiting")]
    OfUser,
    /// All users' processes keep too many waiting.
    #[error("too many processes keep readers of their files in /proc waiting")]
    OfAll,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(ErrorKind::TimedOut, refusal)
    }
}

static READERS: Readers =
    Readers(Mutex::new(State { last: 0, reads: Vec::new(), idle: Vec::new(), waits: Accounts::new(WAITS) }));

/// Result of a read of files of a process, unless that keeps its readers waiting.
///
/// # Errors
/// Those of the read, and a [`Refusal`].
pub fn read<T: Send + 'static>(
    roots: &Roots,
    pid: u32,
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    READERS.read(pid, || process_status::user(roots, pid), read)
}

/// Processes that keep readers waiting.
#[must_use]
pub fn waiting() -> Vec<u32> {
    let mut pids: Vec<u32> = READERS.state().left().map(|read| read.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that read.
#[derive(Debug)]
struct Readers(Mutex<State>);

struct State {
    /// Number of the last read.
    last: u64,
    /// Reads that have not returned.
    reads: Vec<Read>,
    /// Threads that wait for a job.
    idle: Vec<Sender<Job>>,
    waits: Accounts,
}

#[derive(Debug)]
struct Read {
    number: u64,
    pid: u32,
    /// Real user id, once it is [left](Self::is_left).
    uid: u32,
    /// Whether it is left to its thread.
    is_left: bool,
}

/// Read that is removed from those of the readers once it has returned.
struct Returns {
    readers: &'static Readers,
    number: u64,
}

/// Result of a read, and whether its thread has slept meanwhile.
type Answer<T> = (io::Result<T>, bool);

// === impl Readers ===

impl Readers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T: Send + 'static>(
        &'static self,
        pid: u32,
        user: impl Fn() -> Option<u32>,
        read: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let user = || user().unwrap_or(UNKNOWN_USER);
        // Its user does not matter as long as all reads return.
        if self.state().is_limited(clock::monotonic()) {
            let uid = user();
            self.state().admit(pid, uid, clock::monotonic())?;
        }
        let begun = Instant::now();
        let thread = Arc::new(AtomicU32::new(0));
        let (number, answers) = self.start(pid, &thread, read)?;
        let (answer, has_slept) = match wait(&answers, begun, &thread) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("its reader has ended")),
            Err(RecvTimeoutError::Timeout) => {
                let uid = user();
                let is_left = self.state().leave(number, uid);
                // If it has returned just now, its answer comes.
                let late = if is_left { None } else { answers.recv().ok() };
                let (answer, _) = late.unwrap_or_else(|| (Err(Refusal::Waiting.into()), true));
                (answer, true)
            }
        };
        if has_slept {
            let uid = user();
            self.state().waits.charge(uid, begun.elapsed(), clock::monotonic());
        }
        answer
    }

    /// Has a thread make a read, whose id is known once it begins.
    fn start<T: Send + 'static>(
        &'static self,
        pid: u32,
        thread: &Arc<AtomicU32>,
        read: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<(u64, Receiver<Answer<T>>)> {
        let (sender, answers) = mpsc::channel();
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        state.reads.push(Read { number, pid, uid: UNKNOWN_USER, is_left: false });
        let idle = state.idle.pop();
        drop(state);
        let returns = Returns { readers: self, number };
        let thread = Arc::clone(thread);
        let job: Job = Box::new(move || {
            thread.store(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(), Ordering::Relaxed);
            let before = cpu_time::sleeps_of_this_thread();
            let result = read();
            let has_slept = cpu_time::sleeps_of_this_thread() != before;
            drop(returns);
            // Nobody takes it if the caller has left.
            let _ = sender.send((result, has_slept));
        });
        let job = match idle {
            // A thread that is idle takes it.
            Some(idle) => idle.send(job).map_or_else(|mpsc::SendError(job)| Some(job), |()| None),
            None => Some(job),
        };
        if let Some(job) = job {
            let thread = thread::Builder::new().name("process-reads".to_owned()).stack_size(STACK_BYTES);
            thread.spawn(move || self.work(job))?;
        }
        Ok((number, answers))
    }

    /// Carries out a job, and further ones.
    fn work(&self, job: Job) {
        let (sender, jobs) = mpsc::channel();
        job();
        loop {
            {
                let mut state = self.state();
                if state.idle.len() >= IDLE_MAX {
                    return;
                }
                state.idle.push(sender.clone());
            }
            let Ok(job) = jobs.recv() else { return };
            job();
        }
    }
}

/// Waits for an answer: [`PATIENCE`] at most if the thread sleeps then.
fn wait<T>(answers: &Receiver<Answer<T>>, begun: Instant, thread: &AtomicU32) -> Result<Answer<T>, RecvTimeoutError> {
    loop {
        match answers.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) => {
                let id = thread.load(Ordering::Relaxed);
                if begun.elapsed() >= PATIENCE_RUNNING || id != 0 && is_asleep(id) {
                    return Err(RecvTimeoutError::Timeout);
                }
            }
            answered => return answered,
        }
    }
}

/// Whether a thread of this process sleeps, as opposed to one that runs or waits for a processor.
fn is_asleep(thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    !state.is_some_and(|state| state.trim_start().starts_with('R'))
}

// === impl State ===

impl State {
    fn left(&self) -> impl Iterator<Item = &Read> {
        self.reads.iter().filter(|read| read.is_left)
    }

    /// Whether some read may be refused.
    fn is_limited(&self, now: Duration) -> bool {
        self.left().next().is_some() || self.waits.over(now).next().is_some()
    }

    fn admit(&self, pid: u32, uid: u32, now: Duration) -> Result<(), Refusal> {
        if self.left().any(|read| read.pid == pid) {
            return Err(Refusal::Waiting);
        }
        if self.waits.is_over(uid, now) || self.left().filter(|read| read.uid == uid).count() >= OF_USER_MAX {
            return Err(Refusal::OfUser);
        }
        if self.left().count() >= MAX { Err(Refusal::OfAll) } else { Ok(()) }
    }

    /// Leaves a read to its thread. Returns false if it has returned.
    fn leave(&mut self, number: u64, uid: u32) -> bool {
        let Some(read) = self.reads.iter_mut().find(|read| read.number == number) else { return false };
        read.uid = uid;
        read.is_left = true;
        true
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reads, waits, .. } = self;
        f.debug_struct("State").field("reads", reads).field("waits", waits).finish_non_exhaustive()
    }
}

impl Drop for Returns {
    fn drop(&mut self) {
        self.readers.state().reads.retain(|read| read.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readers of a test's own.
    fn readers() -> &'static Readers {
        Box::leak(Box::new(Readers(Mutex::new(State {
            last: 0,
            reads: Vec::new(),
            idle: Vec::new(),
            waits: Accounts::new(WAITS),
        }))))
    }

    /// Processes whose reads return once this is dropped.
    struct Held(Vec<Sender<()>>);

    /// Has a process keep a reader waiting.
    fn hold(readers: &'static Readers, pid: u32, uid: u32, held: &mut Held) -> io::Error {
        let (release, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        held.0.push(release);
        readers
            .read(
                pid,
                || Some(uid),
                move || {
                    let _ = wait.lock().unwrap().recv();
                    Ok(())
                },
            )
            .unwrap_err()
    }

    fn refusal(error: &io::Error) -> Refusal {
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        *error.get_ref().unwrap().downcast_ref().unwrap()
    }

    fn read(readers: &'static Readers, pid: u32, uid: u32) -> Result<u32, Refusal> {
        readers.read(pid, || Some(uid), move || Ok(pid)).map_err(|error| refusal(&error))
    }

    fn none() -> Held {
        Held(Vec::new())
    }

    /// What the waits cost is forgiven, as by time that passes.
    fn forgive(readers: &Readers) {
        readers.state().waits = Accounts::new(WAITS);
    }

    fn wait_until_returned(readers: &Readers) {
        while !readers.state().reads.is_empty() {
            thread::yield_now();
        }
    }

    #[test]
    fn result_and_error_are_those_of_the_read() {
        let readers = readers();
        assert_eq!(read(readers, 7, 1000), Ok(7));
        let missing: io::Result<()> = readers.read(7, || None, || Err(ErrorKind::NotFound.into()));
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
        wait_until_returned(readers);
    }

    #[test]
    fn read_that_never_returns_is_left_and_others_go_on() {
        let (readers, mut held) = (readers(), none());
        assert_eq!(refusal(&hold(readers, 7, 1000, &mut held)), Refusal::Waiting);
        assert_eq!(read(readers, 7, 1000), Err(Refusal::Waiting));
        assert_eq!(read(readers, 8, 1000), Ok(8));
        assert_eq!(read(readers, 9, 1001), Ok(9));
        drop(held);
        wait_until_returned(readers);
        assert_eq!(read(readers, 7, 1000), Ok(7));
    }

    #[test]
    fn waiting_reads_of_a_user_are_bounded_and_harm_no_other() {
        let (readers, mut held) = (readers(), none());
        for pid in 0..u32::try_from(OF_USER_MAX).unwrap() {
            hold(readers, pid, 1000, &mut held);
            forgive(readers);
        }
        assert_eq!(read(readers, 100, 1000), Err(Refusal::OfUser));
        assert_eq!(read(readers, 100, 1001), Ok(100));
    }

    #[test]
    fn waiting_reads_of_all_users_are_bounded() {
        let readers = readers();
        let left = |number| Read { number, pid: 0, uid: u32::try_from(number).unwrap(), is_left: true };
        readers.state().reads.extend((0..u64::try_from(MAX).unwrap()).map(left));
        assert_eq!(read(readers, 100, 2000), Err(Refusal::OfAll));
    }

    #[test]
    fn time_for_which_a_user_keeps_readers_waiting_is_bounded() {
        let readers = readers();
        // Each of them returns, but slowly.
        let slow = |pid| {
            readers
                .read(
                    pid,
                    || Some(1000),
                    || {
                        thread::sleep(PATIENCE / 2);
                        Ok(())
                    },
                )
                .map_err(|error| refusal(&error))
        };
        let mut reads = 0;
        while slow(reads) != Err(Refusal::OfUser) {
            wait_until_returned(readers);
            reads += 1;
            assert!(reads <= 30, "these take more than the burst");
        }
        assert_eq!(read(readers, 100, 1001), Ok(100));
    }

    #[test]
    fn read_that_computes_is_waited_for_and_costs_its_user_nothing() {
        let readers = readers();
        let computes = || {
            let (begun, mut sum) = (Instant::now(), 0_u64);
            while begun.elapsed() < PATIENCE * 3 {
                sum = std::hint::black_box(sum + 1);
            }
            Ok(())
        };
        readers.read(7, || Some(1000), computes).unwrap();
        assert!(readers.state().waits.debt(1000, clock::monotonic()).is_zero());
    }

    #[test]
    fn few_threads_are_kept() {
        let (readers, mut held) = (readers(), none());
        for pid in 0..u32::try_from(OF_USER_MAX).unwrap() {
            hold(readers, pid, 1000, &mut held);
            forgive(readers);
        }
        drop(held);
        wait_until_returned(readers);
        for pid in 0..100 {
            assert_eq!(read(readers, pid, 1000), Ok(pid));
        }
        assert!(readers.state().idle.len() <= IDLE_MAX);
    }

    #[test]
    fn panic_of_a_read_is_an_error() {
        let readers = readers();
        let error = readers.read(7, || None, || -> io::Result<()> { panic!("by the test") }).unwrap_err();
        assert_eq!(error.to_string(), "its reader has ended");
        wait_until_returned(readers);
    }
}

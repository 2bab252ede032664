//! Threads for reads that a user can make hang, so that their callers do not.
//!
//! Each read is made by a thread of a small pool, and the caller gives up after [`SLEEPING_TIMEOUT`] if that thread
//! sleeps. The read is hung then: later callers get an error until it returns.
//!
//! ```text
//!   caller ── read ──▶ idle thread, or a new one
//!     │                  ├─ returns: the result
//!     │                  ├─ waits for a processor: the caller waits, too
//!     └─ SLEEPING_TIMEOUT ─└─ sleeps: it is hung, and the caller gets an error; so do later callers
//! ```
//!
//! **Limits**: hung reads for a user ([`HUNG_PER_USER_MAX`]) and in all ([`HUNG_MAX`]); the time for which
//! callers wait for a user ([`Charges::allowance`]). Beyond them, nothing is read for that user. The time for
//! which a caller waits for all users ([`WAITS_OF_CALLER`]): beyond it, the caller's timeout is short.

use std::{
    cell::Cell,
    fmt,
    io::{self, ErrorKind},
    path::PathBuf,
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
    clock,
    cpu_budget::{Account, Accounts, Allowance},
    cpu_time,
    process_users::FolderId,
};

/// Time for which a caller waits for a read that sleeps.
const SLEEPING_TIMEOUT: Duration = Duration::from_millis(50);
/// The same for a caller whose own time for waits is used up.
const SLEEPING_TIMEOUT_SHORT: Duration = Duration::from_millis(1);
/// The same two for a read that computes, or waits for a processor.
const RUNNING_TIMEOUT: Duration = Duration::from_secs(1);
const RUNNING_TIMEOUT_SHORT: Duration = SLEEPING_TIMEOUT;
/// Maximum charge for the sleep of a read that has returned: beyond it, the read has waited for a processor.
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// Limit on hung reads, of the processes of all users.
const HUNG_MAX: usize = 256;
/// Limit on hung reads of the processes of one user. Threads that read at the same time may exceed it by
/// one each.
pub const HUNG_PER_USER_MAX: usize = 8;
/// Time for which one caller waits for reads that sleep or compute, of the processes of all users: beyond it, the
/// caller's timeout is short.
const WAITS_OF_CALLER: Allowance = Allowance { part: 10, burst: Duration::from_secs(1), credit_part: None };
/// Limit on idle threads.
const IDLE_MAX: usize = 4;
const STACK_BYTES: usize = 256 << 10;

/// Reason why a file was not read. As an [`io::Error`], it is of the kind [`ErrorKind::TimedOut`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// A read of this process's files hangs.
    #[error("reads of its files hang")]
    Hung,
    /// Too many reads of the user's processes hang, or they have taken too long.
    #[error("reads of files of other processes of its user hang, or take too long")]
    UserLimit,
    /// Too many reads hang, of all users' processes.
    #[error("reads of files of too many processes hang")]
    TotalLimit,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(ErrorKind::TimedOut, refusal)
    }
}

thread_local! {
    /// Waits of this thread.
    static OWN_WAITS: Cell<Account> = const { Cell::new(Account::new()) };
}

/// Charges for reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charges {
    pub(crate) sleeps: Sleeps,
    /// Processor time of a read that is not charged.
    pub(crate) cpu_free: Duration,
    /// Time that reads may take for one user.
    pub(crate) allowance: Allowance,
}

/// Account to which the sleep of a read is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeps {
    /// That of the user for whom it is made, and the caller's.
    OfUser,
    /// The caller's alone: other users may have caused the sleep.
    OfCaller,
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that read.
#[derive(Debug)]
pub(crate) struct Readers {
    state: Mutex<State>,
    charges: Charges,
}

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
    target: Target,
    is_hung: bool,
}

/// Process whose files are read.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) pid: u32,
    /// Its folder, which distinguishes it from a later process with its pid: a read may outlive it.
    pub(crate) folder: FolderId,
    pub(crate) path: PathBuf,
    /// User who is charged.
    pub(crate) uid: u32,
}

/// Read that is removed from those of the readers once it has returned.
struct Returns {
    readers: &'static Readers,
    number: u64,
}

/// End of a read.
struct Answer<T> {
    result: io::Result<T>,
    has_slept: bool,
    /// Processor time that it took.
    cpu: Duration,
}

// === impl Readers ===

impl Readers {
    pub(crate) const fn new(charges: Charges) -> Self {
        let state = State { last: 0, reads: Vec::new(), idle: Vec::new(), waits: Accounts::new(charges.allowance) };
        Self { state: Mutex::new(state), charges }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Targets of the hung reads.
    pub(crate) fn hung(&self) -> Vec<Target> {
        self.state().hung().map(|read| read.target.clone()).collect()
    }

    /// Result of a read.
    ///
    /// # Errors
    /// Those of the read, and a [`Refusal`] if it hangs or is not made.
    pub(crate) fn read<T: Send + 'static>(
        &'static self,
        target: &Target,
        read: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let begun = Instant::now();
        let thread = Arc::new(AtomicU32::new(0));
        let (number, answers) = self.start(target, &thread, read)?;
        let answer = match wait(&answers, begun, &thread) {
            Ok(answer) => Some(answer),
            Err(NoAnswer::Ended) => return Err(panicked(target)),
            Err(NoAnswer::GivenUp { is_asleep }) => {
                let waited = begun.elapsed();
                if self.state().mark_hung(number) {
                    // A read that runs is charged when it returns, with its processor time.
                    let of_user =
                        if is_asleep && self.charges.sleeps == Sleeps::OfUser { waited } else { Duration::ZERO };
                    self.charge(target.uid, of_user, waited);
                    return Err(Refusal::Hung.into());
                }
                // The read has returned just now, and its answer comes.
                answers.recv().ok()
            }
        };
        let Some(answer) = answer else { return Err(panicked(target)) };
        let (slept, computed) = (answer.slept(begun.elapsed()), answer.computed(self.charges.cpu_free));
        let of_user = if self.charges.sleeps == Sleeps::OfUser { slept.max(computed) } else { computed };
        self.charge(target.uid, of_user, slept.max(computed));
        cpu_time::add_to_this_thread(answer.cpu);
        answer.result
    }

    /// Charges a read to a user and to the current thread.
    fn charge(&self, uid: u32, of_user: Duration, of_caller: Duration) {
        let now = clock::monotonic();
        if !of_user.is_zero() {
            self.state().waits.charge(uid, of_user, now);
        }
        charge_caller(of_caller, now);
    }

    /// Starts a read on a thread, unless it is refused. The thread's id is set once the read begins.
    fn start<T: Send + 'static>(
        &'static self,
        target: &Target,
        thread: &Arc<AtomicU32>,
        read: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<(u64, Receiver<Answer<T>>)> {
        let (sender, answers) = mpsc::channel();
        let mut state = self.state();
        state.admit(target, clock::monotonic())?;
        state.last += 1;
        let number = state.last;
        state.reads.push(Read { number, target: target.clone(), is_hung: false });
        let idle = state.idle.pop();
        drop(state);
        let returns = Returns { readers: self, number };
        let thread = Arc::clone(thread);
        let job: Job = Box::new(move || {
            thread.store(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(), Ordering::Relaxed);
            let (sleeps, begun) = (cpu_time::sleeps_of_this_thread(), cpu_time::of_this_thread());
            let result = read();
            let has_slept = cpu_time::sleeps_of_this_thread() != sleeps;
            let cpu = cpu_time::of_this_thread().saturating_sub(begun);
            returns.end(cpu);
            // Nobody takes it if the caller has given up.
            let _ = sender.send(Answer { result, has_slept, cpu });
        });
        let job = match idle {
            // None, if that thread has the job now.
            Some(idle) => idle.send(job).map_or_else(|mpsc::SendError(job)| Some(job), |()| None),
            None => Some(job),
        };
        if let Some(job) = job {
            let thread = thread::Builder::new().name("reads".to_owned()).stack_size(STACK_BYTES);
            thread.spawn(move || self.work(job))?;
        }
        Ok((number, answers))
    }

    /// Carries out a job, and the following ones.
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

/// Time for which the current thread waits for a read that sleeps, and for one that runs.
fn timeouts(now: Duration) -> [Duration; 2] {
    if OWN_WAITS.get().is_over(WAITS_OF_CALLER, now) {
        [SLEEPING_TIMEOUT_SHORT, RUNNING_TIMEOUT_SHORT]
    } else {
        [SLEEPING_TIMEOUT, RUNNING_TIMEOUT]
    }
}

/// Charges the current thread for a wait.
fn charge_caller(waited: Duration, now: Duration) {
    let mut account = OWN_WAITS.get();
    account.charge(waited, WAITS_OF_CALLER, now);
    OWN_WAITS.set(account);
}

/// Reason why there is no answer.
enum NoAnswer {
    /// The thread has ended.
    Ended,
    /// The caller's timeout is over.
    GivenUp { is_asleep: bool },
}

/// Waits for an answer, for the current thread's timeout.
fn wait<T>(answers: &Receiver<Answer<T>>, begun: Instant, thread: &AtomicU32) -> Result<Answer<T>, NoAnswer> {
    let [sleeping, running] = timeouts(clock::monotonic());
    loop {
        match answers.recv_timeout(sleeping) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Disconnected) => return Err(NoAnswer::Ended),
            Err(RecvTimeoutError::Timeout) => {
                let id = thread.load(Ordering::Relaxed);
                let is_asleep = id != 0 && is_asleep(id);
                if is_asleep || begun.elapsed() >= running {
                    return Err(NoAnswer::GivenUp { is_asleep });
                }
            }
        }
    }
}

/// Error of a read whose thread has ended without an answer.
fn panicked(Target { path, .. }: &Target) -> io::Error {
    io::Error::other(format!(
        "the thread that reads files in {} has panicked, and this read has failed",
        path.display()
    ))
}

/// Whether a thread of this process sleeps, as opposed to one that runs or waits for a processor.
fn is_asleep(thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    // Unknown where it is not readable, as with too many open files.
    state.is_some_and(|state| !state.trim_start().starts_with('R'))
}

// === impl Answer ===

impl<T> Answer<T> {
    /// Time that is charged for its sleep, when it has taken this time.
    fn slept(&self, elapsed: Duration) -> Duration {
        if self.has_slept { elapsed.min(SLEEP_MAX) } else { Duration::ZERO }
    }

    /// Time that is charged for its computation.
    const fn computed(&self, cpu_free: Duration) -> Duration {
        self.cpu.saturating_sub(cpu_free)
    }
}

// === impl State ===

impl State {
    fn hung(&self) -> impl Iterator<Item = &Read> {
        self.reads.iter().filter(|read| read.is_hung)
    }

    fn admit(&self, target: &Target, now: Duration) -> Result<(), Refusal> {
        if self.hung().any(|read| read.target.folder == target.folder) {
            return Err(Refusal::Hung);
        }
        let of_user = self.hung().filter(|read| read.target.uid == target.uid).count();
        if self.waits.is_over(target.uid, now) || of_user >= HUNG_PER_USER_MAX {
            return Err(Refusal::UserLimit);
        }
        if self.hung().count() >= HUNG_MAX { Err(Refusal::TotalLimit) } else { Ok(()) }
    }

    /// Returns false if the read has returned.
    fn mark_hung(&mut self, number: u64) -> bool {
        let Some(read) = self.reads.iter_mut().find(|read| read.number == number) else { return false };
        read.is_hung = true;
        true
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reads, waits, .. } = self;
        f.debug_struct("State").field("reads", reads).field("waits", waits).finish_non_exhaustive()
    }
}

impl Returns {
    /// Charges the processor time of a read whose caller has given up.
    fn end(self, cpu: Duration) {
        let mut state = self.readers.state();
        let hung = state.hung().find(|read| read.number == self.number).map(|read| read.target.uid);
        if let Some(uid) = hung {
            state.waits.charge(uid, cpu.saturating_sub(self.readers.charges.cpu_free), clock::monotonic());
        }
    }
}

impl Drop for Returns {
    fn drop(&mut self) {
        self.readers.state().reads.retain(|read| read.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const CPU_FREE: Duration = Duration::from_millis(10);
    const WAITS: Allowance = Allowance { part: 50, burst: Duration::from_millis(500), credit_part: None };
    const CHARGES: Charges = Charges { sleeps: Sleeps::OfUser, cpu_free: CPU_FREE, allowance: WAITS };

    /// Readers of a test's own.
    fn readers() -> &'static Readers {
        Box::leak(Box::new(Readers::new(CHARGES)))
    }

    /// Processes whose reads return once this is dropped.
    struct Held(Vec<Sender<()>>);

    /// Has a process keep a reader waiting.
    fn hold(readers: &'static Readers, pid: u32, uid: u32, held: &mut Held) -> io::Error {
        let (release, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        held.0.push(release);
        readers
            .read(&target(pid, uid), move || {
                let _ = wait.lock().unwrap().recv();
                Ok(())
            })
            .unwrap_err()
    }

    fn target(pid: u32, uid: u32) -> Target {
        Target { pid, folder: (0, pid.into(), 0, 0), path: PathBuf::new(), uid }
    }

    fn refusal(error: &io::Error) -> Refusal {
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        *error.get_ref().unwrap().downcast_ref().unwrap()
    }

    fn read(readers: &'static Readers, pid: u32, uid: u32) -> Result<u32, Refusal> {
        readers.read(&target(pid, uid), move || Ok(pid)).map_err(|error| refusal(&error))
    }

    fn none() -> Held {
        Held(Vec::new())
    }

    /// Forgives the cost of the waits, as time that passes does.
    fn forgive(readers: &Readers) {
        readers.state().waits = Accounts::new(WAITS);
    }

    fn wait_until_returned(readers: &Readers) {
        wait_until(|| readers.state().reads.is_empty());
    }

    fn wait_until(condition: impl Fn() -> bool) {
        while !condition() {
            thread::yield_now();
        }
    }

    #[test]
    fn result_and_error_are_those_of_the_read() {
        let readers = readers();
        assert_eq!(read(readers, 7, 1000), Ok(7));
        let missing: io::Result<()> = readers.read(&target(7, 0), || Err(ErrorKind::NotFound.into()));
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
        wait_until_returned(readers);
    }

    #[test]
    fn read_that_hangs_is_given_up_and_others_go_on() {
        let (readers, mut held) = (readers(), none());
        assert_eq!(refusal(&hold(readers, 7, 1000, &mut held)), Refusal::Hung);
        assert_eq!(read(readers, 7, 1000), Err(Refusal::Hung));
        assert_eq!(read(readers, 8, 1000), Ok(8));
        assert_eq!(read(readers, 9, 1001), Ok(9));
        drop(held);
        wait_until_returned(readers);
        assert_eq!(read(readers, 7, 1000), Ok(7));
    }

    #[test]
    fn hung_reads_of_a_user_are_bounded_and_harm_no_other() {
        let (readers, mut held) = (readers(), none());
        for pid in 0..u32::try_from(HUNG_PER_USER_MAX).unwrap() {
            hold(readers, pid, 1000, &mut held);
            forgive(readers);
        }
        assert_eq!(read(readers, 100, 1000), Err(Refusal::UserLimit));
        assert_eq!(read(readers, 100, 1001), Ok(100));
    }

    #[test]
    fn hung_reads_of_all_users_are_bounded() {
        let readers = readers();
        let hung = |number| Read { number, target: target(0, u32::try_from(number).unwrap()), is_hung: true };
        readers.state().reads.extend((0..u64::try_from(HUNG_MAX).unwrap()).map(hung));
        assert_eq!(read(readers, 100, 2000), Err(Refusal::TotalLimit));
    }

    #[test]
    fn time_for_which_callers_wait_for_a_user_is_bounded() {
        let readers = readers();
        let slow = || {
            thread::sleep(Duration::from_millis(1));
            Ok(())
        };
        readers.read(&target(7, 1000), slow).unwrap();
        assert!(!readers.state().waits.debt(1000, clock::monotonic()).is_zero(), "a read that sleeps is charged");
        readers.state().waits.charge(1000, WAITS.burst, clock::monotonic());
        assert_eq!(read(readers, 7, 1000), Err(Refusal::UserLimit));
        assert_eq!(read(readers, 100, 1001), Ok(100));
    }

    #[test]
    fn caller_is_impatient_once_processes_of_many_users_have_kept_it_waiting() {
        let now = clock::monotonic();
        assert_eq!(timeouts(now), [SLEEPING_TIMEOUT, RUNNING_TIMEOUT]);
        // No user has used up its own.
        for _ in 0..21 {
            charge_caller(SLEEPING_TIMEOUT, now);
        }
        assert_eq!(timeouts(now), [SLEEPING_TIMEOUT_SHORT, RUNNING_TIMEOUT_SHORT]);
        assert_eq!(thread::spawn(move || timeouts(now)).join().unwrap()[0], SLEEPING_TIMEOUT, "of another thread");
        assert_eq!(timeouts(now + SLEEPING_TIMEOUT * WAITS_OF_CALLER.part)[0], SLEEPING_TIMEOUT, "in time");
    }

    #[test]
    fn read_that_hangs_is_charged_to_its_caller() {
        let (readers, mut held) = (readers(), none());
        hold(readers, 7, 1000, &mut held);
        assert!(!OWN_WAITS.get().debt(WAITS_OF_CALLER, clock::monotonic()).is_zero());
    }

    #[test]
    fn read_is_charged_with_its_sleep_and_with_more_than_a_little_processor_time() {
        let charge = |has_slept, cpu, elapsed| {
            let answer = Answer { result: Ok(()), has_slept, cpu };
            answer.slept(elapsed).max(answer.computed(CPU_FREE))
        };
        assert_eq!(charge(false, CPU_FREE, SLEEPING_TIMEOUT), Duration::ZERO, "others had the processor");
        assert_eq!(charge(false, SLEEPING_TIMEOUT, SLEEPING_TIMEOUT), SLEEPING_TIMEOUT.saturating_sub(CPU_FREE));
        assert_eq!(charge(true, CPU_FREE, SLEEPING_TIMEOUT), SLEEPING_TIMEOUT);
        assert_eq!(charge(true, CPU_FREE, Duration::from_secs(4)), SLEEP_MAX, "others had the processor");
    }

    #[test]
    fn sleep_that_others_may_have_caused_is_charged_to_the_caller_alone() {
        let readers: &'static Readers =
            Box::leak(Box::new(Readers::new(Charges { sleeps: Sleeps::OfCaller, ..CHARGES })));
        readers.state().waits.charge(1000, WAITS.burst / 2, clock::monotonic());
        let debt = || readers.state().waits.debt(1000, clock::monotonic());
        let before = debt();
        let slow = || {
            thread::sleep(SLEEPING_TIMEOUT / 10);
            Ok(())
        };
        readers.read(&target(7, 1000), slow).unwrap();
        let mut held = none();
        hold(readers, 8, 1000, &mut held);
        assert!(debt() <= before, "the user is not charged");
        assert!(OWN_WAITS.get().debt(WAITS_OF_CALLER, clock::monotonic()) >= SLEEPING_TIMEOUT);
    }

    #[test]
    fn read_that_is_given_up_while_it_computes_is_charged_with_its_processor_time() {
        let readers = readers();
        let (release, wait) = mpsc::channel::<()>();
        let computes = move || {
            let begun = cpu_time::of_this_thread();
            while wait.try_recv() == Err(mpsc::TryRecvError::Empty) {}
            while cpu_time::of_this_thread().saturating_sub(begun) < CPU_FREE * 2 {}
            Ok(())
        };
        // An impatient caller.
        charge_caller(WAITS_OF_CALLER.burst * 2, clock::monotonic());
        assert_eq!(refusal(&readers.read(&target(7, 1000), computes).unwrap_err()), Refusal::Hung);
        let debt = || readers.state().waits.debt(1000, clock::monotonic());
        assert!(debt().is_zero(), "nothing is known of it yet");
        drop(release);
        wait_until_returned(readers);
        assert!(!debt().is_zero());
    }

    #[test]
    fn hung_read_of_an_ended_process_refuses_no_later_one_with_its_pid() {
        let (readers, mut held) = (readers(), none());
        hold(readers, 7, 1000, &mut held);
        let later = Target { folder: (0, 8, 0, 0), ..target(7, 1001) };
        assert!(readers.read(&later, || Ok(())).is_ok());
    }

    #[test]
    fn processor_time_of_a_read_is_that_of_its_caller() {
        let computes = || {
            let begun = cpu_time::of_this_thread();
            while cpu_time::of_this_thread().saturating_sub(begun) < SLEEPING_TIMEOUT {}
            Ok(())
        };
        let begun = cpu_time::of_this_thread();
        readers().read(&target(7, 1000), computes).unwrap();
        assert!(cpu_time::of_this_thread().saturating_sub(begun) >= SLEEPING_TIMEOUT);
    }

    #[test]
    fn few_threads_are_kept() {
        let (readers, mut held) = (readers(), none());
        for pid in 0..u32::try_from(HUNG_PER_USER_MAX).unwrap() {
            hold(readers, pid, 1000, &mut held);
            forgive(readers);
        }
        drop(held);
        wait_until_returned(readers);
        let mut threads = HashSet::new();
        for pid in 0..100 {
            // Each thread has become idle or ended.
            wait_until(|| readers.state().idle.len() == IDLE_MAX);
            threads.insert(readers.read(&target(pid, 1000), || Ok(thread::current().id())).unwrap());
        }
        assert!(threads.len() <= IDLE_MAX, "{threads:?}");
    }

    #[test]
    fn panic_of_a_read_is_an_error() {
        let readers = readers();
        let target = Target { path: PathBuf::from("/proc/7"), ..target(7, 0) };
        // Without the hook, whose backtrace may take longer than the timeout.
        let panics = || -> io::Result<()> { std::panic::resume_unwind(Box::new("by the test")) };
        let error = readers.read(&target, panics).unwrap_err();
        let message = "the thread that reads files in /proc/7 has panicked, and this read has failed";
        assert_eq!(error.to_string(), message);
        wait_until_returned(readers);
    }
}

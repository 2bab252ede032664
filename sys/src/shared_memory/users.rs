//! Users with shared memories, and their accessors.
//!
//! A user has one accessor, with one request at a time. A caller waits [`REPLY_WAIT`] for the reply. After that
//! the request stays outstanding, and further ones fail at once until its reply has come, which is dropped. An
//! accessor that is late with one is killed, and the memory of that request is refused from
//! then on. A thread, the manager, starts and ends accessors. It counts its own ticks, so that an accessor which was
//! as long without a processor as the manager, as in a frozen cgroup, is not late.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    SharedMemoryError,
    handle::{Accessor, Subject},
    hung::Hung,
};
use crate::{
    accessor::wire::{Outcome, Request},
    actor::{ActorError, Spawner},
    clock, cpu_time,
    executable::Program,
    pidfd::PidFd,
};

/// Longest wait of a caller for a reply.
const REPLY_WAIT: Duration = Duration::from_millis(20);
/// Longest wait of a caller for the start of an accessor, which no program can delay.
const START_WAIT: Duration = Duration::from_millis(200);
/// Time in which an accessor without memories exits.
const EXIT_MAX: Duration = Duration::from_secs(1);
/// Interval of checks for late replies and exited accessors.
const TICK: Duration = Duration::from_millis(100);
/// Minimum pause between the end of a spawner and the start of the next.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Refused memories that are remembered.
const REFUSED_MAX: usize = 1024;

static PROGRAM: OnceLock<Program> = OnceLock::new();
static ALL: Mutex<All> =
    Mutex::new(All { users: BTreeMap::new(), manager: None, hung: Hung::new(), refused: VecDeque::new() });
/// Number of the last memory.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Sets the program by which accessors are started: its main function calls
/// [`run_if_spawner`](crate::actor::run_if_spawner). Further calls have no effect.
pub fn set_accessor_program(program: Program) {
    let _ = PROGRAM.set(program);
}

/// Process id of the accessor of a user.
#[cfg(any(test, feature = "fake"))]
#[must_use]
pub fn accessor_of(uid: u32) -> Option<u32> {
    let user = Arc::clone(&all().users.get(&uid)?.0);
    let state = user.state();
    state.accessor.as_ref()?.process.as_ref().map(PidFd::pid)
}

struct All {
    /// Each with the count of its memories.
    users: BTreeMap<u32, (Arc<User>, usize)>,
    manager: Option<Sender<Order>>,
    hung: Hung<PidFd>,
    /// Device and inode of each memory that was refused last.
    refused: VecDeque<(u64, u64)>,
}

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Order to the manager.
enum Order {
    Start(Sender<Started>),
    /// Has no effect: accessors shall exit.
    Wake,
}

type Started = Result<Accessor, SharedMemoryError>;

/// Memory of a user's program.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) user: Arc<User>,
    subject: Subject,
    file: File,
    writable_bytes: usize,
}

/// User with shared memories.
#[derive(Debug)]
pub(super) struct User {
    uid: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    accessor: Option<Accessor>,
    starting: Option<Receiver<Started>>,
    /// Memories that the accessor has and that are dropped here.
    removed: Vec<Subject>,
}

impl Memory {
    /// Memory of a program of a user, of which these first bytes may be written.
    pub(super) fn new(
        uid: u32,
        file: File,
        writable_bytes: usize,
        identity: (u64, u64),
    ) -> Result<Self, SharedMemoryError> {
        let mut all = all();
        if all.refused.contains(&identity) {
            return Err(SharedMemoryError::Late);
        }
        let (user, count) =
            all.users.entry(uid).or_insert_with(|| (Arc::new(User { uid, state: Mutex::default() }), 0));
        *count += 1;
        let id = LAST.fetch_add(1, Ordering::Relaxed);
        let subject = Subject { id, identity, refusal: Arc::default() };
        Ok(Self { user: Arc::clone(user), subject, file, writable_bytes })
    }

    pub(super) const fn id(&self) -> u64 {
        self.subject.id
    }

    #[cfg(any(test, feature = "fake"))]
    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// Makes a request, and waits for its reply: the number of bytes read or operations done.
    pub(super) fn request(&self, request: &Request, body: &mut [u8]) -> Result<usize, SharedMemoryError> {
        self.user.request(self, request, body, true)
    }

    /// Makes a request without a wait for its reply.
    pub(super) fn post(&self, request: &Request) -> Result<(), SharedMemoryError> {
        self.user.request(self, request, &mut [], false).map(drop)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut all = all();
        let Some((user, count)) = all.users.get_mut(&self.user.uid).filter(|(user, _)| Arc::ptr_eq(user, &self.user))
        else {
            return;
        };
        *count = count.saturating_sub(1);
        let user = Arc::clone(user);
        let is_last = *count == 0;
        if is_last {
            all.users.remove(&self.user.uid);
        }
        drop(all);
        let mut state = user.state();
        if is_last {
            let ended = state.accessor.take();
            state.starting = None;
            drop(state);
            if let Some(accessor) = ended {
                end(accessor, user.uid, EXIT_MAX);
            }
        } else if state.accessor.as_mut().is_some_and(|accessor| accessor.memories.remove(&self.subject.id)) {
            state.removed.push(self.subject.clone());
        }
    }
}

impl User {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(
        &self,
        memory: &Memory,
        request: &Request,
        body: &mut [u8],
        waits: bool,
    ) -> Result<usize, SharedMemoryError> {
        // A wait for another caller of the user counts, too.
        let begun = Instant::now();
        let mut state = self.state();
        let result = self.request_uncharged(&mut state, memory, request, body, waits);
        // A wait that timed out is at the user's cost, as processor time is, unless the accessor waits for a processor.
        match result {
            Err(SharedMemoryError::Pending) if state.accessor.as_mut().is_some_and(Accessor::is_taken) => {
                cpu_time::add_to_this_thread(begun.elapsed());
            }
            Err(SharedMemoryError::Late) => {
                let late_ns = memory.subject.refusal.uncharged_ns.swap(0, Ordering::Relaxed);
                cpu_time::add_to_this_thread(Duration::from_nanos(late_ns));
            }
            _ => {}
        }
        result
    }

    fn request_uncharged(
        &self,
        state: &mut State,
        memory: &Memory,
        request: &Request,
        body: &mut [u8],
        waits: bool,
    ) -> Result<usize, SharedMemoryError> {
        // Settles the last request also for a memory that is refused: others of the user wait for it.
        let settled = state.settle(self.uid, REPLY_WAIT);
        if memory.subject.refusal.is_refused.load(Ordering::Relaxed) {
            return Err(SharedMemoryError::Late);
        }
        settled?;
        state.start(self.uid)?;
        while let Some(removed) = state.removed.pop() {
            // An accessor that hangs at this costs no other memory.
            state.exchange(self.uid, &removed, &Request::Remove { memory: removed.id }, None, &mut [])?;
        }
        let Some(accessor) = &mut state.accessor else { return Err(SharedMemoryError::Pending) };
        if accessor.memories.insert(memory.id()) {
            let add = Request::Add { memory: memory.id(), writable_bytes: memory.writable_bytes as u64 };
            state.exchange(self.uid, &memory.subject, &add, Some(&memory.file), &mut [])?;
        }
        if waits {
            return state.exchange(self.uid, &memory.subject, request, None, body);
        }
        state.send(self.uid, &memory.subject, request, None)?;
        Ok(0)
    }
}

impl State {
    /// Receives the reply to the outstanding request, if any. Waits for it at most this long, unless another caller
    /// has waited for it.
    fn settle(&mut self, uid: u32, at_most: Duration) -> Result<(), SharedMemoryError> {
        let Some(accessor) = &mut self.accessor else { return Ok(()) };
        let Some(outstanding) = &mut accessor.outstanding else { return Ok(()) };
        let at_most = if outstanding.is_pending { Duration::ZERO } else { at_most };
        let body_bytes = outstanding.body_bytes;
        // The reply that came in time counts, however late this thread looks.
        match accessor.receive(at_most, &mut vec![0; body_bytes]) {
            Ok(Some(_)) => Ok(()),
            Ok(None) if accessor.is_late() => {
                self.refuse(uid);
                Ok(())
            }
            Ok(None) => Err(SharedMemoryError::Pending),
            Err(_) => {
                // The accessor has ended, or its reply is malformed.
                self.refuse(uid);
                Ok(())
            }
        }
    }

    /// Kills the accessor, and refuses the memory of its outstanding request from now on.
    fn refuse(&mut self, uid: u32) {
        let Some(mut accessor) = self.accessor.take() else { return };
        self.removed.clear();
        if let Some(outstanding) = accessor.outstanding.take() {
            if outstanding.is_taken {
                let ns = u64::try_from(outstanding.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                outstanding.subject.refusal.uncharged_ns.store(ns, Ordering::Relaxed);
            }
            outstanding.subject.refusal.is_refused.store(true, Ordering::Relaxed);
            // A removed memory may be in use under another number.
            if !outstanding.is_removal {
                let mut all = all();
                all.refused.push_back(outstanding.subject.identity);
                if all.refused.len() > REFUSED_MAX {
                    all.refused.pop_front();
                }
            }
        }
        kill(accessor, uid);
    }

    /// Starts an accessor, unless there is one.
    fn start(&mut self, uid: u32) -> Result<(), SharedMemoryError> {
        if self.accessor.is_some() {
            return Ok(());
        }
        let (starting, at_most) = match self.starting.take() {
            Some(starting) => (starting, Duration::ZERO),
            None => (start(uid)?, START_WAIT),
        };
        match starting.recv_timeout(at_most) {
            Ok(started) => {
                self.accessor = Some(started?);
                self.removed.clear();
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => {
                self.starting = Some(starting);
                Err(SharedMemoryError::Pending)
            }
            Err(RecvTimeoutError::Disconnected) => Err(SharedMemoryError::Pending),
        }
    }

    fn send(
        &mut self,
        uid: u32,
        subject: &Subject,
        request: &Request,
        file: Option<&File>,
    ) -> Result<(), SharedMemoryError> {
        let Some(accessor) = &mut self.accessor else { return Err(SharedMemoryError::Pending) };
        if accessor.send(subject, request, file).is_err() {
            // It has exited without a request: the next one has another.
            if let Some(accessor) = self.accessor.take() {
                kill(accessor, uid);
            }
            return Err(SharedMemoryError::Pending);
        }
        Ok(())
    }

    /// Makes a request, and waits for its reply.
    fn exchange(
        &mut self,
        uid: u32,
        subject: &Subject,
        request: &Request,
        file: Option<&File>,
        body: &mut [u8],
    ) -> Result<usize, SharedMemoryError> {
        self.send(uid, subject, request, file)?;
        let Some(accessor) = &mut self.accessor else { return Err(SharedMemoryError::Pending) };
        match accessor.receive(REPLY_WAIT, body) {
            Ok(None) => Err(SharedMemoryError::Pending),
            Ok(Some((Outcome::Done(count), bytes))) if bytes == body.len() => Ok(count),
            Ok(Some((Outcome::Sparse, _))) => Err(SharedMemoryError::Sparse),
            Ok(Some((Outcome::Failed { errno }, _))) => {
                Err(SharedMemoryError::Access(io::Error::from_raw_os_error(errno)))
            }
            Ok(Some(_)) => {
                self.refuse(uid);
                Err(SharedMemoryError::Access(io::ErrorKind::InvalidData.into()))
            }
            Err(error) => {
                self.refuse(uid);
                Err(SharedMemoryError::Access(error))
            }
        }
    }
}

/// Kills an accessor of a user.
fn kill(accessor: Accessor, uid: u32) {
    if let Some(process) = &accessor.process {
        process.kill();
    }
    end(accessor, uid, Duration::ZERO);
}

/// Lets an accessor exit by itself, for which it has this time.
fn end(accessor: Accessor, uid: u32, at_most: Duration) {
    let Accessor { channel, process, .. } = accessor;
    drop(channel);
    if let Some(process) = process {
        let mut all = all();
        all.hung.add(uid, clock::monotonic() + at_most, process);
        if let Some(manager) = &all.manager {
            let _ = manager.send(Order::Wake);
        }
    }
}

/// Orders an accessor for a user.
fn start(uid: u32) -> Result<Receiver<Started>, SharedMemoryError> {
    let mut all = all();
    if !all.hung.admits(uid, clock::monotonic()) {
        return Err(SharedMemoryError::Hung);
    }
    if all.manager.is_none() {
        let (orders, receiver) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("accessors".to_owned())
            .spawn(move || Manager { spawner: None, restart: None, ticked: Instant::now() }.run(&receiver));
        thread.map_err(|error| SharedMemoryError::NoAccessor(ActorError::NotStarted(error)))?;
        all.manager = Some(orders);
    }
    let (reply, started) = mpsc::channel();
    if let Some(manager) = &all.manager {
        // Without a receiver, the sender is dropped, which the caller sees.
        let _ = manager.send(Order::Start(reply));
    }
    Ok(started)
}

/// Thread that starts accessors, kills late ones, and reaps them. The spawner belongs to it.
struct Manager {
    spawner: Option<Spawner>,
    ticked: Instant,
    /// Earliest time of the next start of a spawner.
    restart: Option<Instant>,
}

impl Manager {
    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let is_idle = {
                let all = all();
                all.users.is_empty() && all.hung.is_empty()
            };
            let order = if is_idle { orders.recv().ok() } else { orders.recv_timeout(TICK).ok() };
            if let Some(Order::Start(reply)) = order {
                // Without a receiver, the accessor exits with its channel.
                let _ = reply.send(self.start().map_err(SharedMemoryError::NoAccessor));
            }
            if self.ticked.elapsed() >= TICK {
                self.ticked = Instant::now();
                tick();
            }
            self.reap();
        }
    }

    fn start(&mut self) -> Result<Accessor, ActorError> {
        let Some(program) = PROGRAM.get() else { return start_without_program() };
        if self.spawner.is_none() {
            if self.restart.is_some_and(|restart| Instant::now() < restart) {
                return Err(ActorError::SpawnerGone(io::ErrorKind::NotConnected.into()));
            }
            self.restart = Some(Instant::now() + RESTART_DELAY);
            self.spawner = Some(Spawner::start(program)?);
        }
        let Some(spawner) = &mut self.spawner else { return start_without_program() };
        let started = spawner.start_accessor();
        if matches!(started, Err(ActorError::SpawnerGone(_))) {
            self.spawner = None;
        }
        let started = started?;
        Accessor::confined(started.channel, Some(started.process))
    }

    fn reap(&mut self) {
        let exited = {
            let mut all = all();
            // Those that have not exited by themselves.
            for process in all.hung.hung(clock::monotonic()) {
                process.kill();
            }
            all.hung.take_exited(|process| process.has_exited().unwrap_or(false))
        };
        if let Some(spawner) = &mut self.spawner {
            for process in exited {
                spawner.reap(process.pid());
            }
        }
    }
}

/// Counts a tick for all outstanding requests, and kills accessors whose reply is late.
fn tick() {
    let users: Vec<Arc<User>> = all().users.values().map(|(user, _)| Arc::clone(user)).collect();
    for user in users {
        // A user with a request in progress is looked at by its caller.
        if let Ok(mut state) = user.state.try_lock()
            && let Some(accessor) = &mut state.accessor
        {
            accessor.tick();
            if accessor.is_late() {
                let _ = state.settle(user.uid, Duration::ZERO);
            }
        }
    }
}

#[cfg(not(any(test, feature = "fake")))]
fn start_without_program() -> Result<Accessor, ActorError> {
    Err(ActorError::NoSpawner(io::ErrorKind::NotFound.into()))
}

/// Accessor on a thread of this process, for tests whose programs are of this process.
#[cfg(any(test, feature = "fake"))]
fn start_without_program() -> Result<Accessor, ActorError> {
    let (channel, other_end) = crate::packets::pair().map_err(ActorError::NotStarted)?;
    thread::spawn(move || crate::accessor::server::serve(std::os::fd::AsFd::as_fd(&other_end)));
    Accessor::confined(channel, None)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::accessor::wire::receive_request;

    /// State with an accessor of which the test is the other end.
    fn with_accessor() -> (State, OwnedFd) {
        let (accessor, other_end) = Accessor::of_test();
        (State { accessor: Some(accessor), ..State::default() }, other_end)
    }

    #[test]
    fn late_removal_of_a_memory_costs_no_other_one_nor_its_other_users() {
        let new = |inode| Memory::new(u32::MAX - 2, File::open("/dev/null").unwrap(), 8, (7, inode)).unwrap();
        let [removed, other] = [8, 9].map(new);
        let user = Arc::clone(&other.user);
        let (state, other_end) = with_accessor();
        *user.state() = state;
        {
            let mut state = user.state();
            let accessor = state.accessor.as_mut().unwrap();
            accessor.outstanding = None;
            accessor.memories.insert(removed.id());
        }
        receive_request(&other_end, &mut Vec::new()).unwrap().unwrap();
        drop(removed);
        let write = Request::Write { memory: other.id(), wake: None, operations: Vec::new() };
        assert!(matches!(other.request(&write, &mut []), Err(SharedMemoryError::Pending)));
        let sent = receive_request(&other_end, &mut Vec::new()).unwrap().unwrap().0;
        assert!(matches!(sent, Request::Remove { .. }));
        user.state().refuse(u32::MAX - 2);
        assert!(!other.subject.refusal.is_refused.load(Ordering::Relaxed));
        new(8);
        new(9);
    }

    #[test]
    fn late_request_is_charged_to_the_next_caller() {
        const LATE: Duration = Duration::from_millis(300);
        let memory = Memory::new(u32::MAX - 1, File::open("/dev/null").unwrap(), 8, (7, 7)).unwrap();
        let (mut state, other_end) = with_accessor();
        receive_request(&other_end, &mut Vec::new()).unwrap().unwrap();
        state.accessor.as_mut().unwrap().tick();
        let outstanding = state.accessor.as_mut().and_then(|accessor| accessor.outstanding.as_mut()).unwrap();
        (outstanding.begun, outstanding.subject) = (Instant::now().checked_sub(LATE).unwrap(), memory.subject.clone());
        state.refuse(u32::MAX - 1);
        let before = cpu_time::of_this_thread();
        let refused = memory.request(&Request::Remove { memory: 1 }, &mut []);
        assert!(matches!(refused, Err(SharedMemoryError::Late)));
        assert!(cpu_time::of_this_thread() >= before + LATE);
    }
}

//! Recordings of the processes of a node. Each process has a window of a fixed size, and each user a
//! number of them.
//!
//! A ring is looked for on a thread of its own: a process can hold its memory map, and so delay
//! whoever reads it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use model::ProcessId;
use sys::{Roots, cpu_time, processes};

use crate::{
    merge::Losses,
    process::{Process, ProcessError},
    window::Window,
};

/// Limits of what is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Quotas {
    /// Bytes of the calls of a process.
    pub window_bytes: usize,
    /// Recordings of a user's processes.
    pub user_max: usize,
    /// Recordings of the node.
    pub node_max: usize,
}

/// Searches at a time, of all processes and of those of a user.
const SEARCHES_MAX: usize = 8;
const SEARCHES_OF_USER_MAX: usize = 2;
/// Searches for the ring of a process, a look apart. A program makes its ring before it opens the
/// driver, so that it is there when uvmd first sees the process.
const TRIES: u32 = 3;
/// Processor time of a poll of one process: many times what the calls of a full ring take. Graphs can be
/// such that each call takes long.
const POLL_MAX: Duration = Duration::from_millis(250);
/// Calls between two looks at that.
const CALLS_PER_LOOK: usize = 64;

/// State of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Calls are read.
    Recording,
    /// The process has exited; what it recorded is still there.
    Ended,
    /// The ring cannot be read, for this reason.
    Unreadable(String),
    /// Its user, or the node, has as many recordings as it may have.
    QuotaReached,
}

/// Recording of a process.
#[derive(Debug)]
pub struct Recording {
    state: State,
    uid: u32,
    process: Option<Process>,
    window: Window,
    losses: Losses,
    /// Number of the end among all ends.
    ended: u64,
}

#[derive(Debug)]
enum Entry {
    /// Its ring is being looked for, or will be.
    Sought {
        uid: u32,
        tries: u32,
        is_running: bool,
    },
    /// It has none.
    Absent,
    Recorded(Box<Recording>),
}

type Found = (ProcessId, Result<Option<Process>, ProcessError>);

/// Recordings of all processes.
#[derive(Debug)]
pub struct Recordings {
    roots: Roots,
    quotas: Quotas,
    entries: BTreeMap<ProcessId, Entry>,
    /// Searches that run, by user: a clone for each, which its thread holds. Also those of processes
    /// that are no more.
    searches: BTreeMap<u32, Arc<()>>,
    found: Receiver<Found>,
    finds: Sender<Found>,
    ended: u64,
}

impl Recording {
    /// State.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Calls.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// What is not among the calls.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        self.losses
    }

    fn of(uid: u32, state: State, process: Option<Process>, quotas: Quotas) -> Self {
        let window = Window::new(quotas.window_bytes);
        Self { state, uid, process, window, losses: Losses::default(), ended: 0 }
    }

    fn poll(&mut self, is_last: bool) {
        let Some(process) = &mut self.process else { return };
        let begun = cpu_time::of_this_thread();
        match if is_last { process.finish() } else { process.poll() } {
            Ok(calls) => {
                for (at, call) in calls.into_iter().enumerate() {
                    self.window.add(call);
                    if at % CALLS_PER_LOOK == 0 && cpu_time::of_this_thread().saturating_sub(begun) > POLL_MAX {
                        self.state = State::Unreadable("reading its calls takes too long".to_owned());
                        break;
                    }
                }
            }
            Err(error) => self.state = State::Unreadable(error.to_string()),
        }
        self.losses = process.losses();
        if is_last || self.state != State::Recording {
            self.process = None;
        }
        // Outside of the quotas, it takes no memory.
        if matches!(self.state, State::Unreadable(_)) {
            self.window = Window::new(0);
        }
    }

    /// Whether it takes memory.
    fn is_held(&self) -> bool {
        matches!(self.state, State::Recording | State::Ended)
    }
}

impl Recordings {
    /// No recordings yet.
    #[must_use]
    pub fn new(roots: Roots, quotas: Quotas) -> Self {
        let (finds, found) = mpsc::channel();
        Self { roots, quotas, entries: BTreeMap::new(), searches: BTreeMap::new(), found, finds, ended: 0 }
    }

    /// Copy of a recording, to read without holding up the others; `None` if the process has no
    /// helper.
    #[must_use]
    pub fn copy_of(&self, process: ProcessId) -> Option<Recording> {
        let Recording { state, uid, window, losses, ended, .. } = self.of(process)?;
        let (state, window) = (state.clone(), window.clone());
        Some(Recording { state, uid: *uid, process: None, window, losses: *losses, ended: *ended })
    }

    /// Recording of a process; `None` if it has no helper.
    #[must_use]
    pub fn of(&self, process: ProcessId) -> Option<&Recording> {
        match self.entries.get(&process)? {
            Entry::Recorded(recording) => Some(recording),
            Entry::Sought { .. } | Entry::Absent => None,
        }
    }

    /// Takes the processes that run now, with their users, and looks for the rings of new ones.
    pub fn look(&mut self, running: &BTreeMap<ProcessId, u32>) {
        for (process, uid) in running {
            let sought = || Entry::Sought { uid: *uid, tries: 0, is_running: false };
            let entry = self.entries.entry(*process).or_insert_with(sought);
            // It closed the driver and opened it again, perhaps as another program.
            if matches!(entry, Entry::Recorded(recording) if recording.state == State::Ended) {
                *entry = sought();
            }
        }
        let mut ended = self.ended;
        self.entries.retain(|process, entry| match entry {
            _ if running.contains_key(process) => true,
            Entry::Recorded(recording) => {
                recording.poll(true);
                if recording.state == State::Recording {
                    ended += 1;
                    (recording.state, recording.ended) = (State::Ended, ended);
                }
                recording.is_held()
            }
            // Its result comes still, and is for nobody.
            Entry::Sought { .. } | Entry::Absent => false,
        });
        self.ended = ended;
        self.retry();
        self.search();
    }

    /// Looks again for the rings that a quota kept out, if there is room now.
    fn retry(&mut self) {
        let waiting: Vec<(ProcessId, u32)> = self
            .recordings()
            .filter(|(_, recording)| recording.state == State::QuotaReached)
            .map(|(process, recording)| (process, recording.uid))
            .collect();
        for (process, uid) in waiting {
            if self.has_room(uid) || self.first_to_go(uid).is_some() {
                self.entries.insert(process, Entry::Sought { uid, tries: 0, is_running: false });
            }
        }
    }

    fn search(&mut self) {
        let Self { roots, entries, finds, searches, .. } = self;
        searches.retain(|_, running| Arc::strong_count(running) > 1);
        let mut all: usize = searches.values().map(|running| Arc::strong_count(running) - 1).sum();
        for (process, entry) in entries {
            let Entry::Sought { uid, tries, is_running: is_running @ false } = entry else { continue };
            let of_user = searches.entry(*uid).or_default();
            if all >= SEARCHES_MAX || Arc::strong_count(of_user) > SEARCHES_OF_USER_MAX {
                continue;
            }
            let (roots, process, finds, running) = (roots.clone(), *process, finds.clone(), Arc::clone(of_user));
            let search = move || {
                // Nobody takes it after the end.
                let _ = finds.send((process, find(&roots, process)));
                drop(running);
            };
            if thread::Builder::new().name("recorder-find".to_owned()).spawn(search).is_ok() {
                (*is_running, *tries) = (true, *tries + 1);
                all += 1;
            }
        }
    }

    /// Reads all rings.
    pub fn poll(&mut self) {
        while let Ok((process, found)) = self.found.try_recv() {
            self.take(process, found);
        }
        for entry in self.entries.values_mut() {
            if let Entry::Recorded(recording) = entry {
                recording.poll(false);
            }
        }
    }

    fn take(&mut self, process: ProcessId, found: Result<Option<Process>, ProcessError>) {
        let Some(Entry::Sought { uid, tries, is_running: true }) = self.entries.get(&process) else { return };
        let (uid, tries) = (*uid, *tries);
        let entry = match found {
            // A helper that is just making its ring has no header yet.
            Ok(None) | Err(_) if tries < TRIES => Entry::Sought { uid, tries, is_running: false },
            Ok(None) => Entry::Absent,
            Ok(Some(found)) => {
                let is_admitted = self.make_room(uid);
                let (state, process) =
                    if is_admitted { (State::Recording, Some(found)) } else { (State::QuotaReached, None) };
                Entry::Recorded(Box::new(Recording::of(uid, state, process, self.quotas)))
            }
            Err(error) => {
                let state = State::Unreadable(error.to_string());
                Entry::Recorded(Box::new(Recording::of(uid, state, None, self.quotas)))
            }
        };
        self.entries.insert(process, entry);
    }

    fn recordings(&self) -> impl Iterator<Item = (ProcessId, &Recording)> {
        self.entries.iter().filter_map(|(process, entry)| match entry {
            Entry::Recorded(recording) => Some((*process, &**recording)),
            Entry::Sought { .. } | Entry::Absent => None,
        })
    }

    /// Recordings that take memory: of a user, and of the node.
    fn held(&self, uid: u32) -> (usize, usize) {
        let held = self.recordings().filter(|(_, recording)| recording.is_held());
        held.fold((0, 0), |(of_user, all), (_, recording)| (of_user + usize::from(recording.uid == uid), all + 1))
    }

    fn has_room(&self, uid: u32) -> bool {
        let (of_user, all) = self.held(uid);
        of_user < self.quotas.user_max && all < self.quotas.node_max
    }

    /// Recording that gives way to one of a user: of those that have ended, the first, the user's own
    /// before those of others.
    fn first_to_go(&self, uid: u32) -> Option<ProcessId> {
        let is_user_full = self.held(uid).0 >= self.quotas.user_max;
        let ended = self.recordings().filter(|(_, recording)| recording.state == State::Ended);
        let may_go = ended.filter(|(_, recording)| !is_user_full || recording.uid == uid);
        may_go.min_by_key(|(_, recording)| (recording.uid != uid, recording.ended)).map(|(process, _)| process)
    }

    /// Makes room for a recording of a user, if it may have one.
    fn make_room(&mut self, uid: u32) -> bool {
        while !self.has_room(uid) {
            let Some(process) = self.first_to_go(uid) else { return false };
            self.entries.remove(&process);
        }
        true
    }
}

/// Ring of this process, and not of a later one with its pid.
fn find(roots: &Roots, process: ProcessId) -> Result<Option<Process>, ProcessError> {
    // Of a process whose first thread has ended, only the others have a memory map.
    let thread = processes::live_thread(roots, process.pid).ok().flatten().unwrap_or(process.pid);
    let found = Process::find(roots, thread)?;
    let is_same = processes::start_ticks(roots, process.pid).is_ok_and(|ticks| ticks == Some(process.start_ticks));
    Ok(found.filter(|_| is_same))
}

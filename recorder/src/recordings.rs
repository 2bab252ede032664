//! Recordings of the processes of a node. Each process has a window of a fixed size, and each user a
//! number of them.

use std::{collections::BTreeMap, time::Duration};

use call_ring::call::Call;
use model::ProcessId;
use sys::{Roots, cpu_time};

use crate::{
    merge::Losses,
    process::{Memories, Process, ProcessError},
    searches::{Delay, Found, Searches},
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
#[derive(Clone, Debug)]
pub struct Recording {
    state: State,
    window: Window,
    losses: Losses,
}

/// Recording with the ring that it is read from, and its owner.
#[derive(Debug)]
struct Recorded {
    recording: Recording,
    uid: u32,
    /// While it is read.
    ring: Option<Process>,
    /// Number of its end among all ends; 0 before it.
    end: u64,
}

#[derive(Debug)]
enum Entry {
    /// Its ring is searched for.
    Sought,
    /// It has no ring.
    Absent,
    Recorded(Box<Recorded>),
}

/// Recordings of all processes.
#[derive(Debug)]
pub struct Recordings {
    quotas: Quotas,
    entries: BTreeMap<ProcessId, Entry>,
    searches: Searches,
    /// Recordings that have ended so far.
    ends: u64,
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

    /// Adds calls; fails if that takes too long.
    fn add(&mut self, calls: Vec<Call>, begun: Duration) -> Result<(), String> {
        for (at, call) in calls.into_iter().enumerate() {
            self.window.add(call);
            if at % CALLS_PER_LOOK == 0 && cpu_time::of_this_thread().saturating_sub(begun) > POLL_MAX {
                return Err("reading its calls takes too long".to_owned());
            }
        }
        Ok(())
    }
}

impl Recorded {
    fn new(uid: u32, state: State, ring: Option<Process>, quotas: Quotas) -> Self {
        let recording = Recording { state, window: Window::new(quotas.window_bytes), losses: Losses::default() };
        Self { recording, uid, ring, end: 0 }
    }

    fn poll(&mut self) {
        self.read(Process::poll);
    }

    /// Reads the last calls of a process that has exited; this is the end of this number.
    fn finish(&mut self, end: u64) {
        self.read(Process::finish);
        if self.ring.take().is_some() {
            (self.recording.state, self.end) = (State::Ended, end);
        }
    }

    fn read(&mut self, read: impl FnOnce(&mut Process) -> Result<Vec<Call>, ProcessError>) {
        let Some(ring) = &mut self.ring else { return };
        let begun = cpu_time::of_this_thread();
        let calls = read(ring).map_err(|error| error.to_string());
        self.recording.losses = ring.losses();
        if let Err(reason) = calls.and_then(|calls| self.recording.add(calls, begun)) {
            self.recording.state = State::Unreadable(reason);
            self.ring = None;
            // Outside of the quotas, it takes no memory.
            self.recording.window = Window::new(0);
        }
    }

    /// Whether it takes memory.
    fn is_held(&self) -> bool {
        matches!(self.recording.state, State::Recording | State::Ended)
    }
}

impl Recordings {
    /// No recordings yet.
    #[must_use]
    pub fn new(roots: Roots, quotas: Quotas) -> Self {
        let searches = Searches::new(roots, (quotas.user_max, quotas.node_max));
        Self { quotas, entries: BTreeMap::new(), searches, ends: 0 }
    }

    /// Recording of a process; `None` if it has no helper.
    #[must_use]
    pub fn of(&self, process: ProcessId) -> Option<&Recording> {
        match self.entries.get(&process)? {
            Entry::Recorded(recorded) => Some(&recorded.recording),
            Entry::Sought | Entry::Absent => None,
        }
    }

    /// Why the search for the ring of a process is not complete, if it is not.
    #[must_use]
    pub fn delay_of(&self, process: ProcessId) -> Option<Delay> {
        self.searches.delay_of(process)
    }

    /// Memories of the helper in a process that is recorded.
    #[must_use]
    pub fn memories(&self, process: ProcessId) -> Option<&Memories> {
        match self.entries.get(&process)? {
            Entry::Recorded(recorded) => recorded.ring.as_ref().map(Process::memories),
            Entry::Sought | Entry::Absent => None,
        }
    }

    /// Takes the processes that run now, with their users, and looks for the rings of new ones.
    pub fn look(&mut self, running: &BTreeMap<ProcessId, u32>) {
        for (process, uid) in running {
            let is_sought = match self.entries.get(process) {
                None => true,
                // It closed the driver and opened it again, perhaps as another program.
                Some(Entry::Recorded(recorded)) => recorded.recording.state == State::Ended,
                Some(Entry::Sought | Entry::Absent) => false,
            };
            if is_sought {
                self.seek(*process, *uid);
            }
        }
        let ends = &mut self.ends;
        self.entries.retain(|process, entry| match entry {
            _ if running.contains_key(process) => true,
            Entry::Recorded(recorded) => {
                if recorded.recording.state == State::Recording {
                    *ends += 1;
                    recorded.finish(*ends);
                }
                recorded.is_held()
            }
            Entry::Sought | Entry::Absent => false,
        });
        self.readmit();
        let Self { entries, searches, .. } = self;
        searches.retain(|process| matches!(entries.get(process), Some(Entry::Sought)));
        searches.look(running);
        searches.start();
    }

    fn seek(&mut self, process: ProcessId, uid: u32) {
        self.entries.insert(process, Entry::Sought);
        self.searches.seek(process, uid);
    }

    /// Looks again for the rings that a quota kept out, if there is room now.
    fn readmit(&mut self) {
        let waiting: Vec<(ProcessId, u32)> = self
            .recorded()
            .filter(|(_, recorded)| recorded.recording.state == State::QuotaReached)
            .map(|(process, recorded)| (process, recorded.uid))
            .collect();
        for (process, uid) in waiting {
            if self.has_room(uid) || self.first_to_go(uid).is_some() {
                self.seek(process, uid);
            }
        }
    }

    /// Reads all rings.
    pub fn poll(&mut self) {
        while let Some((process, uid, found)) = self.searches.take() {
            self.admit(process, uid, found);
        }
        self.searches.start();
        for entry in self.entries.values_mut() {
            if let Entry::Recorded(recorded) = entry {
                recorded.poll();
            }
        }
    }

    /// Reads the ring of one process, between two polls of all.
    pub fn poll_early(&mut self, process: ProcessId) {
        if let Some(Entry::Recorded(recorded)) = self.entries.get_mut(&process) {
            recorded.read(Process::poll_early);
        }
    }

    fn admit(&mut self, process: ProcessId, uid: u32, found: Found) {
        let (state, ring) = match found {
            Ok(None) => {
                self.entries.insert(process, Entry::Absent);
                return;
            }
            Ok(Some(ring)) if self.make_room(uid) => (State::Recording, Some(ring)),
            Ok(Some(_)) => (State::QuotaReached, None),
            Err(error) => (State::Unreadable(error.to_string()), None),
        };
        let recorded = Recorded::new(uid, state, ring, self.quotas);
        self.entries.insert(process, Entry::Recorded(Box::new(recorded)));
    }

    fn recorded(&self) -> impl Iterator<Item = (ProcessId, &Recorded)> {
        self.entries.iter().filter_map(|(process, entry)| match entry {
            Entry::Recorded(recorded) => Some((*process, &**recorded)),
            Entry::Sought | Entry::Absent => None,
        })
    }

    /// Recordings that take memory: of a user, and of the node.
    fn held(&self, uid: u32) -> (usize, usize) {
        let held = self.recorded().filter(|(_, recorded)| recorded.is_held());
        held.fold((0, 0), |(of_user, all), (_, recorded)| (of_user + usize::from(recorded.uid == uid), all + 1))
    }

    fn has_room(&self, uid: u32) -> bool {
        let (of_user, all) = self.held(uid);
        of_user < self.quotas.user_max && all < self.quotas.node_max
    }

    /// Recording that gives way to one of a user: of those that have ended, the first, the user's own
    /// before those of others.
    fn first_to_go(&self, uid: u32) -> Option<ProcessId> {
        let is_user_full = self.held(uid).0 >= self.quotas.user_max;
        let ended = self.recorded().filter(|(_, recorded)| recorded.recording.state == State::Ended);
        let may_go = ended.filter(|(_, recorded)| !is_user_full || recorded.uid == uid);
        may_go.min_by_key(|(_, recorded)| (recorded.uid != uid, recorded.end)).map(|(process, _)| process)
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

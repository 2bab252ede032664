//! Recordings of the processes of a node. A recording has a window of fixed size; a user has quotas
//! of recordings and of reader time.
//!
//! The registry is locked for look-ups only. Rings and files in /proc are read, and threads
//! started, without that lock. Rings of the users are read in turn.

mod calls;
mod clock;
mod reader_time;
pub mod recording;
mod slots;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

pub use calls::{NewCalls, NotFound, Unread};
use clock::{Clock, SystemClock};
use model::ProcessId;
use reader_time::Budgets;
pub use reader_time::CREDIT_PART;
use recording::{Holder, Reader, Reading, Recording, Ring, State, lock};
pub use slots::Quotas;
use slots::{Slot, Slots};
use sys::{Roots, processes::Image};

use crate::{
    process::ProcessError,
    searches::{CheckResults, Delay, PendingSlice, SearchResult, Searches, image_of},
};

/// Time limit of a reading of all rings. The next reading continues with the rest.
const READING_MAX: Duration = Duration::from_millis(50);
/// Time from which on a part of a reading is slow: its accesses wait.
const SLOW_PART: Duration = Duration::from_millis(10);
/// Pause after which a ring that was not accessible is read again.
const INACCESSIBLE_PAUSE: Duration = Duration::from_secs(1);
/// Time without calls after which uvmd checks whether the process has executed another program.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// Entry of a recording.
#[derive(Debug)]
struct Recorded {
    reader: Arc<Reader>,
    uid: u32,
    /// Sequence number of the process's exit among all exits; 0 before it.
    exit_number: u64,
    /// Processor time used by the process up to the last scan.
    cpu_time: Option<Duration>,
    /// Program of the process when its ring was found.
    image: Option<Image>,
    admitted_at: Duration,
}

#[derive(Debug)]
enum Entry {
    /// A search for the ring is in progress or due.
    Searching,
    /// The process has no ring.
    NoRing,
    Recorded(Recorded),
}

/// Recordings of all processes.
#[derive(Debug)]
pub struct Recordings {
    roots: Roots,
    clock: Arc<dyn Clock>,
    registry: Mutex<Registry>,
}

/// Registry of recordings.
#[derive(Debug)]
struct Registry {
    quotas: Quotas,
    entries: BTreeMap<ProcessId, Entry>,
    /// Processes whose recordings hold memory, or recently held some.
    held: BTreeSet<ProcessId>,
    searches: Searches,
    budgets: Budgets,
    /// Number of recorded processes that have exited so far.
    exits: u64,
    /// Evicted recordings, whose memory is freed without the lock.
    evicted: Vec<Arc<Reader>>,
}

/// Observation of a recorded process in a scan.
#[derive(Debug)]
struct Observation {
    process: ProcessId,
    /// Processor time used by the process.
    cpu_time: Option<Duration>,
    /// Program of the process, if it was read.
    image: Option<Image>,
    /// Processor time that uvmd has spent on the observation.
    spent: Duration,
}

/// Result of reading a part of a ring.
#[derive(Clone, Copy, Debug)]
struct PartResult {
    /// Whether more can be read now.
    has_more: bool,
    /// Whether the reader time of the user is used up.
    is_throttled: bool,
    took: Duration,
}

/// Rings of a user to read.
#[derive(Debug)]
struct Turn {
    uid: u32,
    rings: VecDeque<(Arc<Reader>, Reading)>,
}

impl Recorded {
    /// Whether the recording holds memory.
    fn is_held(&self) -> bool {
        self.reader.recording().is_held()
    }

    fn is_waiting(&self) -> bool {
        matches!(self.reader.recording().state(), State::QuotaReached(_))
    }
}

impl Recordings {
    /// Empty registry.
    #[must_use]
    pub fn new(roots: Roots, quotas: Quotas) -> Self {
        Self::with_clock(roots.clone(), quotas, Arc::new(SystemClock(roots)))
    }

    fn with_clock(roots: Roots, quotas: Quotas, clock: Arc<dyn Clock>) -> Self {
        let searches = Searches::new(roots.clone(), (quotas.user_max, quotas.node_max));
        let registry = Registry {
            quotas,
            entries: BTreeMap::new(),
            held: BTreeSet::new(),
            searches,
            budgets: Budgets::default(),
            exits: 0,
            evicted: Vec::new(),
        };
        Self { roots, clock, registry: Mutex::new(registry) }
    }

    /// Snapshot of the recording of a process; `None` without a helper.
    #[must_use]
    pub fn snapshot(&self, process: ProcessId) -> Option<Recording> {
        let reader = Arc::clone(&lock(&self.registry).recorded_of(process)?.reader);
        let recording = reader.recording().clone();
        Some(recording)
    }

    /// State of the recording of a process; `None` without a helper.
    #[must_use]
    pub fn state_of(&self, process: ProcessId) -> Option<State> {
        let reader = Arc::clone(&lock(&self.registry).recorded_of(process)?.reader);
        let state = reader.recording().state().clone();
        Some(state)
    }

    /// Reason why the search for the ring of a process is delayed, if it is.
    #[must_use]
    pub fn delay_of(&self, process: ProcessId) -> Option<Delay> {
        lock(&self.registry).searches.delay_of(process, self.clock.now())
    }

    /// Updates the running processes and their users, and searches for the rings of new processes.
    pub fn scan(&self, running: &BTreeMap<ProcessId, u32>) {
        let now = self.clock.now();
        let (recorded, checks) = {
            let mut registry = lock(&self.registry);
            (registry.running(now), registry.searches.checks(running, now))
        };
        // /proc is read without the lock, as processes can delay that for any time.
        let observations: Vec<Observation> =
            recorded.into_iter().map(|(process, is_quiet)| self.observe(process, is_quiet)).collect();
        let checked = checks.read();
        let now = self.clock.now();
        let mut registry = lock(&self.registry);
        registry.credit(&observations, now);
        registry.recover(now);
        registry.update_running(running);
        registry.restart_after_exec(&observations);
        registry.readmit(now);
        registry.retry_searches(running, checked, now);
        let slices = registry.next_slices(now);
        unlock_and_free(registry);
        self.start(slices);
    }

    /// Reads the processor time of a process, and its program if the process is quiet.
    fn observe(&self, process: ProcessId, is_quiet: bool) -> Observation {
        let begun = self.clock.thread_cpu_time();
        let cpu_time = self.clock.cpu_time_of(process);
        let image = if is_quiet { image_of(&self.roots, process) } else { None };
        Observation { process, cpu_time, image, spent: self.clock.thread_cpu_time().saturating_sub(begun) }
    }

    fn start(&self, slices: Vec<PendingSlice>) {
        for slice in slices {
            if let Err(process) = slice.start() {
                lock(&self.registry).searches.abandon(process, self.clock.now());
            }
        }
    }

    /// Reads all rings: a part of one ring per user in turn, until all are read or the time is up.
    pub fn poll(&self) {
        let begun = self.clock.now();
        let mut registry = lock(&self.registry);
        let slices = registry.admit_found(begun);
        let mut turns = registry.turns(begun);
        unlock_and_free(registry);
        self.start(slices);
        // Each user has at least one turn, however long the turns of others take.
        let mut first_turns = turns.len();
        // Turns of users whose accesses wait come last, and their waits take no time of others.
        let (mut slow_turns, mut waited) = (VecDeque::new(), Duration::ZERO);
        loop {
            let elapsed = self.clock.now().saturating_sub(begun);
            let next = match turns.pop_front() {
                Some(_) if first_turns == 0 && elapsed.saturating_sub(waited) >= READING_MAX => None,
                None if elapsed < READING_MAX => slow_turns.pop_front(),
                next => next,
            };
            let Some(Turn { uid, mut rings }) = next else { break };
            first_turns = first_turns.saturating_sub(1);
            let Some((reader, reading)) = rings.pop_front() else { continue };
            let PartResult { has_more, is_throttled, took } = self.read(uid, &reader, reading);
            let is_slow = took >= SLOW_PART;
            if is_slow {
                waited = waited.saturating_add(took);
            }
            if is_throttled {
                continue;
            }
            if has_more {
                rings.push_back((reader, reading));
            }
            if !rings.is_empty() {
                let turns = if is_slow { &mut slow_turns } else { &mut turns };
                turns.push_back(Turn { uid, rings });
            }
        }
    }

    /// Reads a part of a ring, and charges its user.
    fn read(&self, uid: u32, reader: &Reader, reading: Reading) -> PartResult {
        let (now, begun) = (self.clock.now(), self.clock.thread_cpu_time());
        let has_more = reader.read(reading, now);
        let spent = self.clock.thread_cpu_time().saturating_sub(begun);
        let took = self.clock.now().saturating_sub(now);
        let mut registry = lock(&self.registry);
        registry.charge(uid, spent, now);
        PartResult { has_more, is_throttled: registry.budgets.is_throttled(uid), took }
    }
}

impl Registry {
    fn recorded_of(&self, process: ProcessId) -> Option<&Recorded> {
        match self.entries.get(&process)? {
            Entry::Recorded(recorded) => Some(recorded),
            Entry::Searching | Entry::NoRing => None,
        }
    }

    fn recorded(&self) -> impl Iterator<Item = (ProcessId, &Recorded)> {
        self.entries.iter().filter_map(|(process, entry)| match entry {
            Entry::Recorded(recorded) => Some((*process, recorded)),
            Entry::Searching | Entry::NoRing => None,
        })
    }

    /// Recordings that hold memory.
    fn held(&self) -> impl Iterator<Item = (ProcessId, &Recorded)> {
        let recorded = self.held.iter().filter_map(|process| Some((*process, self.recorded_of(*process)?)));
        recorded.filter(|(_, recorded)| recorded.is_held())
    }

    /// Recorded running processes, each with whether it is quiet, and so may have executed another
    /// program.
    fn running(&self, now: Duration) -> Vec<(ProcessId, bool)> {
        let running = self.held().filter(|(_, recorded)| recorded.exit_number == 0);
        let is_quiet = |recorded: &Recorded| {
            let has_no_calls = now.saturating_sub(recorded.reader.recording().active_at()) >= QUIET_TIME;
            has_no_calls && !self.budgets.is_throttled(recorded.uid)
        };
        running.map(|(process, recorded)| (process, is_quiet(recorded))).collect()
    }

    // === Reader time ===

    fn credit(&mut self, observations: &[Observation], now: Duration) {
        for Observation { process, cpu_time, spent, .. } in observations {
            let Some(Entry::Recorded(recorded)) = self.entries.get_mut(process) else { continue };
            if let (Some(used), Some(before)) = (*cpu_time, recorded.cpu_time) {
                self.budgets.credit(recorded.uid, used.saturating_sub(before));
            }
            recorded.cpu_time = *cpu_time;
            let uid = recorded.uid;
            self.charge(uid, *spent, now);
        }
    }

    fn charge(&mut self, uid: u32, spent: Duration, now: Duration) {
        if self.budgets.charge(uid, spent, now) {
            self.set_states(uid, &State::Throttled);
        }
    }

    fn recover(&mut self, now: Duration) {
        for uid in self.budgets.recover(now) {
            self.set_states(uid, &State::Recording);
        }
    }

    fn set_states(&self, uid: u32, state: &State) {
        let of_user = self.held().filter(|(_, recorded)| recorded.uid == uid);
        of_user.for_each(|(_, recorded)| recorded.reader.set_state(state.clone()));
    }

    /// Turns of users with rings to read, least recently read first.
    fn turns(&self, now: Duration) -> VecDeque<Turn> {
        let mut by_user: BTreeMap<u32, Vec<(Duration, &Recorded)>> = BTreeMap::new();
        for (_, recorded) in self.held() {
            let recording = recorded.reader.recording();
            let is_due = match recording.state() {
                State::Recording => true,
                State::Inaccessible(_) => now.saturating_sub(recording.read_at()) >= INACCESSIBLE_PAUSE,
                _ => false,
            };
            if is_due {
                by_user.entry(recorded.uid).or_default().push((recording.read_at(), recorded));
            }
        }
        let mut turns: Vec<(Duration, Turn)> = Vec::new();
        for (uid, mut rings) in by_user {
            rings.sort_by_key(|(read_at, _)| *read_at);
            let first = rings.first().map_or(Duration::ZERO, |(read_at, _)| *read_at);
            let reading = |exit_number| if exit_number == 0 { Reading::Regular } else { Reading::Last };
            let rings =
                rings.into_iter().map(|(_, ring)| (Arc::clone(&ring.reader), reading(ring.exit_number))).collect();
            turns.push((first, Turn { uid, rings }));
        }
        turns.sort_by_key(|(first, _)| *first);
        turns.into_iter().map(|(_, turn)| turn).collect()
    }

    // === Which processes are recorded ===

    /// Updates the running processes.
    fn update_running(&mut self, running: &BTreeMap<ProcessId, u32>) {
        for (process, uid) in running {
            let needs_search = match self.entries.get(process) {
                None => true,
                // The process has closed the driver and opened it again, perhaps in another
                // program.
                Some(Entry::Recorded(recorded)) => recorded.exit_number != 0,
                Some(Entry::Searching | Entry::NoRing) => false,
            };
            if needs_search {
                self.start_search(*process, *uid);
            }
        }
        let Self { entries, exits, evicted, .. } = self;
        entries.retain(|process, entry| match entry {
            _ if running.contains_key(process) => true,
            Entry::Recorded(recorded) => {
                if recorded.exit_number == 0 {
                    *exits += 1;
                    recorded.exit_number = *exits;
                }
                let is_held = recorded.is_held();
                if !is_held {
                    evicted.push(Arc::clone(&recorded.reader));
                }
                is_held
            }
            Entry::Searching | Entry::NoRing => false,
        });
    }

    /// Searches again for the rings of recorded processes that have executed another program: they
    /// may have closed the driver and opened it again between two scans.
    fn restart_after_exec(&mut self, observations: &[Observation]) {
        for Observation { process, image, .. } in observations {
            let Some(Entry::Recorded(recorded)) = self.entries.get(process) else { continue };
            let has_executed = image.is_some() && recorded.image.is_some() && *image != recorded.image;
            if recorded.exit_number == 0 && has_executed {
                let uid = recorded.uid;
                self.start_search(*process, uid);
            }
        }
    }

    /// Starts due retries of searches.
    fn retry_searches(&mut self, running: &BTreeMap<ProcessId, u32>, checked: CheckResults, now: Duration) {
        for process in self.searches.scan(running, checked, now) {
            let has_no_ring = match self.entries.get(&process) {
                Some(Entry::NoRing) => true,
                Some(Entry::Recorded(recorded)) => {
                    matches!(recorded.reader.recording().state(), State::Unreadable(_))
                }
                Some(Entry::Searching) | None => false,
            };
            if let (true, Some(uid)) = (has_no_ring, running.get(&process)) {
                self.start_search(process, *uid);
            }
        }
    }

    fn start_search(&mut self, process: ProcessId, uid: u32) {
        self.replace(process, Entry::Searching);
        self.searches.request(process, uid);
    }

    fn replace(&mut self, process: ProcessId, entry: Entry) {
        if let Some(Entry::Recorded(recorded)) = self.entries.insert(process, entry) {
            self.evicted.push(recorded.reader);
        }
    }

    fn next_slices(&mut self, now: Duration) -> Vec<PendingSlice> {
        let Self { entries, searches, .. } = self;
        searches.retain(|process| matches!(entries.get(process), Some(Entry::Searching)));
        searches.next_slices(now)
    }

    /// Searches again for rings excluded by a quota, as many as there are free slots now, users
    /// with the fewest recordings first.
    fn readmit(&mut self, now: Duration) {
        let mut waiting: BTreeMap<u32, VecDeque<ProcessId>> = BTreeMap::new();
        for (process, recorded) in self.recorded().filter(|(_, recorded)| recorded.is_waiting()) {
            waiting.entry(recorded.uid).or_default().push_back(process);
        }
        let slots = self.slots();
        // Includes recordings whose rings are searched for.
        let mut expected = slots.clone();
        // Frees at most one slot at a time.
        let mut may_make_room = true;
        let mut users: BTreeSet<(usize, u32)> = waiting.keys().map(|uid| (slots.of_user(*uid), *uid)).collect();
        while let Some((_, uid)) = users.pop_first() {
            let has_room = expected.has_room(uid);
            let is_admissible = has_room || (may_make_room && slots.eviction_candidate(uid, now).is_some());
            if !is_admissible {
                continue;
            }
            let Some(process) = waiting.get_mut(&uid).and_then(VecDeque::pop_front) else { continue };
            may_make_room &= has_room;
            expected.reserve(uid);
            self.start_search(process, uid);
            users.insert((expected.of_user(uid), uid));
        }
        for (uid, processes) in waiting {
            let holder = slots.holder(uid);
            let of_user = processes.iter().filter_map(|process| self.recorded_of(*process));
            of_user.for_each(|recorded| recorded.reader.evict(holder));
        }
    }

    fn admit_found(&mut self, now: Duration) -> Vec<PendingSlice> {
        while let Some(SearchResult { process, uid, image, found }) = self.searches.take(now) {
            match found {
                Ok(None) => self.replace(process, Entry::NoRing),
                Ok(Some(ring)) => self.admit(process, uid, image, Ok(Box::new(ring)), now),
                Err(error) => self.admit(process, uid, image, Err(error), now),
            }
        }
        self.searches.next_slices(now)
    }

    fn admit(
        &mut self,
        process: ProcessId,
        uid: u32,
        image: Option<Image>,
        ring: Result<Box<dyn Ring>, ProcessError>,
        now: Duration,
    ) {
        let (state, ring) = match ring.map(|ring| self.make_room(uid, now).map(|()| ring)) {
            Ok(Ok(ring)) => {
                let is_throttled = self.budgets.is_throttled(uid);
                (if is_throttled { State::Throttled } else { State::Recording }, Some(ring))
            }
            Ok(Err(holder)) => (State::QuotaReached(holder), None),
            Err(error) => (State::Unreadable(error.to_string()), None),
        };
        if ring.is_some() {
            let held = self.held().map(|(process, _)| process).chain([process]).collect();
            self.held = held;
        }
        let reader = Arc::new(Reader::new(state, ring, self.quotas.window_bytes, now));
        let recorded = Recorded { reader, uid, exit_number: 0, cpu_time: None, image, admitted_at: now };
        self.replace(process, Entry::Recorded(recorded));
    }

    // === Quotas ===

    fn slots(&self) -> Slots {
        let slot = |(process, recorded): (ProcessId, &Recorded)| {
            let active_at = recorded.reader.recording().active_at();
            Slot {
                process,
                uid: recorded.uid,
                exit_number: recorded.exit_number,
                admitted_at: recorded.admitted_at,
                active_at,
            }
        };
        Slots::new(self.quotas, self.held().map(slot).collect())
    }

    /// Makes room for a recording of a user by evictions, or returns the holder of the slots.
    fn make_room(&mut self, uid: u32, now: Duration) -> Result<(), Holder> {
        let mut slots = self.slots();
        while !slots.has_room(uid) {
            let holder = slots.holder(uid);
            let process = slots.eviction_candidate(uid, now).ok_or(holder)?;
            slots.remove(process);
            self.held.remove(&process);
            match self.entries.get(&process) {
                // The process waits for a slot again.
                Some(Entry::Recorded(Recorded { reader, exit_number: 0, .. })) => {
                    reader.evict(holder);
                    self.evicted.push(Arc::clone(reader));
                }
                _ => {
                    if let Some(Entry::Recorded(recorded)) = self.entries.remove(&process) {
                        self.evicted.push(recorded.reader);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Unlocks the registry, and frees the memory of evicted recordings.
fn unlock_and_free(mut registry: MutexGuard<'_, Registry>) {
    let evicted = mem::take(&mut registry.evicted);
    let forgotten = registry.searches.take_forgotten();
    drop(registry);
    drop(forgotten);
    for reader in evicted {
        reader.free();
    }
}

#[cfg(test)]
mod tests;

//! Searches for the memories that helpers share with uvmd, in the memory maps of processes.
//!
//! A process can delay its search: by many mappings, or by holding the lock of its memory map. So
//! maps are read in slices, each on a thread of its own, whose processor time is charged to the
//! user of the process; [`schedule`] has the limits. One search finds all memories. It is repeated
//! when the process executes another program, and not each time that it opens the driver.

mod checks;
mod schedule;

use std::{
    collections::BTreeMap,
    mem,
    ops::Bound,
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Duration,
};

use call_ring::LayoutError;
pub(crate) use checks::Checked;
use checks::{Checks, UserTime};
use model::ProcessId;
use schedule::Schedule;
pub use schedule::{CREDIT_PART, Delay};
use sys::{
    Roots, cpu_time,
    processes::{self, Image},
    shared_memory::Search,
};

use crate::process::{FORMS, Memories, Process, ProcessError};

/// Bytes of a memory map read at a time: some 2,000 mappings.
const SLICE_BYTES: u64 = 256 << 10;
/// Delays before the repeats of a search that found no ring or no header, or failed: the helper may
/// be loaded late, a program may be stopped while its ring is created, and a failure may be
/// temporary.
const REPEATS_AFTER: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(10)];
/// Maximum checks of a ring without a header, one per look: the helper is about to write the
/// header. It does so before the program opens the driver, also in a forked child.
const HEADER_CHECKS_MAX: u32 = 3;
/// Maximum number of processes of a user whose processor time is read per look.
const CREDITED_MAX: usize = 64;
/// Maximum number of processes of [`Searches::known`] checked for exit per look.
const EXIT_CHECKS_MAX: usize = 16;
const STACK_BYTES: usize = 256 << 10;
/// Processor time charged for the start and the end of a thread.
const THREAD_TIME: Duration = Duration::from_micros(100);

/// Result of a search: the process with its ring; `None` without a helper.
pub(crate) type Found = Result<Option<Process>, ProcessError>;

/// Completed search.
#[derive(Debug)]
pub(crate) struct Searched {
    pub(crate) process: ProcessId,
    pub(crate) uid: u32,
    /// Program of the process.
    pub(crate) image: Option<Image>,
    pub(crate) found: Found,
}

/// Repeats of a search that found nothing.
#[derive(Clone, Copy, Debug)]
struct Repeats {
    image: Option<Image>,
    /// Number of repeats made or planned.
    count: usize,
    due: Option<Duration>,
}

/// Process whose ring has no header yet.
#[derive(Debug)]
struct Unfinished {
    uid: u32,
    /// Number of checks for the header.
    checks: u32,
}

/// Memories found, and the process by its ring.
#[derive(Debug)]
struct Opened {
    memories: Memories,
    process: Result<Process, ProcessError>,
}

/// Searches for the memories of helpers. Times are of one monotonic clock.
#[derive(Debug)]
pub(crate) struct Searches {
    roots: Roots,
    schedule: Schedule,
    partial: BTreeMap<ProcessId, Partial>,
    /// Results for processes that still run.
    known: BTreeMap<ProcessId, Known>,
    /// Last process checked for exit.
    last_looked_at: ProcessId,
    /// Maximum number of results with memories in [`Self::known`]: of a user, and in total. Others
    /// are not retained, and so searched for again.
    known_max: (usize, usize),
    unfinished: BTreeMap<ProcessId, Unfinished>,
    repeats: BTreeMap<ProcessId, Repeats>,
    /// Processor time at the last look, of processes whose users have used up their budget.
    used: BTreeMap<ProcessId, Duration>,
    slices: Receiver<Slice>,
    /// Sender for the threads.
    sender: Sender<Slice>,
}

/// Search in progress, between two slices.
#[derive(Debug)]
struct Partial {
    search: Search<2>,
    image: Image,
}

#[derive(Clone, Debug)]
struct Known {
    uid: u32,
    image: Image,
    /// `None` without a helper.
    memories: Option<Memories>,
}

/// Slice to read.
#[derive(Debug)]
pub(crate) struct PendingSlice {
    process: ProcessId,
    partial: Option<Partial>,
    known: Option<Known>,
    roots: Roots,
    sender: Sender<Slice>,
}

impl PendingSlice {
    /// Reads the slice on a thread of its own.
    ///
    /// # Errors
    /// The process, if no thread can be started.
    pub(crate) fn start(self) -> Result<(), ProcessId> {
        let Self { process, partial, known, roots, sender } = self;
        let read = move || {
            let begun = cpu_time::of_this_thread();
            let result = slice(&roots, process, partial, known);
            let spent = cpu_time::of_this_thread().saturating_sub(begun);
            // Fails without a receiver, after the end of the searches.
            let _ = sender.send(Slice { process, spent, result });
        };
        let thread = thread::Builder::new().name("recorder-find".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(read).map(drop).map_err(|_| process)
    }
}

/// Slice that was read, with its processor time.
#[derive(Debug)]
struct Slice {
    process: ProcessId,
    spent: Duration,
    result: Progress,
}

#[derive(Debug)]
enum Progress {
    /// The map has more mappings.
    Partial(Box<Partial>),
    /// The process has executed another program during the search.
    Stale,
    /// The search is complete.
    Complete(Option<Image>, Result<Option<Box<Opened>>, ProcessError>),
}

impl Searches {
    /// Searches that retain at most this number of results: of a user, and in total.
    pub(crate) fn new(roots: Roots, known_max: (usize, usize)) -> Self {
        let (sender, slices) = mpsc::channel();
        Self {
            roots,
            schedule: Schedule::default(),
            partial: BTreeMap::new(),
            known: BTreeMap::new(),
            last_looked_at: ProcessId { pid: 0, start_ticks: 0 },
            known_max,
            unfinished: BTreeMap::new(),
            repeats: BTreeMap::new(),
            used: BTreeMap::new(),
            slices,
            sender,
        }
    }

    /// Searches for the memories of a process of a user, until there is a result to [`Self::take`].
    pub(crate) fn seek(&mut self, process: ProcessId, uid: u32) {
        if !self.unfinished.contains_key(&process) {
            self.schedule.want(process, uid);
        }
    }

    /// Restricts searches to these processes. Results of slices read for others are dropped.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&ProcessId) -> bool) {
        self.schedule.retain(&is_wanted);
        self.partial.retain(|process, _| is_wanted(process));
        self.unfinished.retain(|process, _| is_wanted(process));
    }

    /// Reason why the search in a process is delayed, if it is.
    pub(crate) fn delay_of(&self, process: ProcessId, now: Duration) -> Option<Delay> {
        let is_sought = self.schedule.is_wanted(process) || self.unfinished.contains_key(&process);
        self.schedule.delay_of(process, now).or(is_sought.then_some(Delay::Turn))
    }

    /// Processes to read in /proc before the next [`Self::look`].
    pub(crate) fn checks(&mut self, running: &BTreeMap<ProcessId, u32>, now: Duration) -> Checks {
        let mut of_users: BTreeMap<u32, Vec<ProcessId>> =
            self.schedule.over_budget(now).map(|uid| (uid, Vec::new())).collect();
        if !of_users.is_empty() {
            for (process, uid) in running {
                match of_users.get_mut(uid) {
                    Some(processes) if processes.len() < CREDITED_MAX => processes.push(*process),
                    _ => {}
                }
            }
        }
        Checks { roots: self.roots.clone(), exits: self.exit_checks(running), of_users }
    }

    /// Known processes that may have exited, a limited number at a time.
    fn exit_checks(&mut self, running: &BTreeMap<ProcessId, u32>) -> Vec<ProcessId> {
        let next = self.known.range((Bound::Excluded(self.last_looked_at), Bound::Unbounded));
        let absent = next.map(|(process, _)| *process).filter(|process| !running.contains_key(process));
        let checks: Vec<ProcessId> = absent.take(EXIT_CHECKS_MAX).collect();
        // After the last process, restarts with the first.
        let last = checks.last().filter(|_| checks.len() == EXIT_CHECKS_MAX);
        self.last_looked_at = last.copied().unwrap_or(ProcessId { pid: 0, start_ticks: 0 });
        checks
    }

    /// Updates the processes that have the driver open, with their users, and credits users for the
    /// processor time of their processes. Returns the processes whose search is due for a repeat.
    /// Called once a second.
    #[must_use]
    pub(crate) fn look(
        &mut self,
        running: &BTreeMap<ProcessId, u32>,
        checked: Checked,
        now: Duration,
    ) -> Vec<ProcessId> {
        self.schedule.forget(now);
        let Checked { exited, of_users } = checked;
        self.credit(of_users, now);
        for (process, Unfinished { uid, .. }) in &self.unfinished {
            self.schedule.want(*process, *uid);
        }
        for process in exited {
            self.known.remove(&process);
        }
        let known = &self.known;
        self.repeats.retain(|process, _| running.contains_key(process) || known.contains_key(process));
        let mut due = Vec::new();
        for (process, repeats) in &mut self.repeats {
            if repeats.due.is_some_and(|time| time <= now) && running.contains_key(process) {
                repeats.due = None;
                self.known.remove(process);
                due.push(*process);
            }
        }
        due
    }

    /// Schedules a repeat of a search that found no ring with a header, up to the maximum.
    fn plan_repeat(&mut self, process: ProcessId, image: Option<Image>, now: Duration) {
        let none = Repeats { image, count: 0, due: None };
        let repeats = self.repeats.entry(process).or_insert(none);
        if repeats.image != image {
            *repeats = none;
        }
        if let (None, Some(after)) = (repeats.due, REPEATS_AFTER.get(repeats.count)) {
            repeats.count += 1;
            repeats.due = Some(now + *after);
        }
    }

    /// Credits users whose budget is used up, for the processor time of their processes.
    fn credit(&mut self, of_users: BTreeMap<u32, UserTime>, now: Duration) {
        let before = mem::take(&mut self.used);
        for (uid, UserTime { used, spent }) in of_users {
            // Processor time before the first look is not credited.
            let earned = used.iter().map(|(process, time)| {
                before.get(process).map_or(Duration::ZERO, |before| time.saturating_sub(*before))
            });
            self.schedule.credit(uid, earned.sum());
            self.schedule.charge(uid, spent, now);
            self.used.extend(used);
        }
    }

    /// Slices that are next in turn. The caller starts each of them, or [abandons](Self::abandon)
    /// it.
    pub(crate) fn next_slices(&mut self, now: Duration) -> Vec<PendingSlice> {
        let mut slices = Vec::new();
        while let Some(process) = self.schedule.next(now) {
            let (partial, known) = (self.partial.remove(&process), self.known.get(&process).cloned());
            let (roots, sender) = (self.roots.clone(), self.sender.clone());
            slices.push(PendingSlice { process, partial, known, roots, sender });
        }
        slices
    }

    /// Returns a slice that could not be started to the queue.
    pub(crate) fn abandon(&mut self, process: ProcessId, now: Duration) {
        self.schedule.end(process, Duration::ZERO, false, now);
    }

    /// Next result.
    pub(crate) fn take(&mut self, now: Duration) -> Option<Searched> {
        while let Ok(Slice { process, spent, result }) = self.slices.try_recv() {
            let is_wanted = self.schedule.is_wanted(process);
            let is_complete = matches!(result, Progress::Complete(..));
            let Some(uid) = self.schedule.end(process, spent + THREAD_TIME, is_complete, now) else { continue };
            let (image, found) = match result {
                Progress::Partial(partial) => {
                    if is_wanted {
                        self.partial.insert(process, *partial);
                    }
                    continue;
                }
                Progress::Stale => continue,
                Progress::Complete(image, found) => (image, found),
            };
            if let (Some(image), Ok(opened)) = (image, &found) {
                let memories = opened.as_ref().map(|opened| opened.memories.clone());
                self.keep(process, Known { uid, image, memories });
            }
            let found = match found {
                _ if !is_wanted => continue,
                Ok(Some(opened)) => {
                    let found = opened.process;
                    let is_unfinished = matches!(found, Err(ProcessError::Ring(LayoutError::Header)));
                    if is_unfinished && self.waits_for_header(process, uid) {
                        continue;
                    }
                    self.unfinished.remove(&process);
                    if is_unfinished {
                        self.plan_repeat(process, image, now);
                    }
                    found.map(Some)
                }
                not_found => {
                    self.unfinished.remove(&process);
                    self.plan_repeat(process, image, now);
                    not_found.map(|_| None)
                }
            };
            return Some(Searched { process, uid, image, found });
        }
        None
    }

    /// Whether the ring of a process may still get a header.
    fn waits_for_header(&mut self, process: ProcessId, uid: u32) -> bool {
        let unfinished = self.unfinished.entry(process).or_insert(Unfinished { uid, checks: 0 });
        unfinished.checks += 1;
        unfinished.checks <= HEADER_CHECKS_MAX
    }

    /// Retains the result for a process, if there is room.
    fn keep(&mut self, process: ProcessId, known: Known) {
        self.known.remove(&process);
        // Results without a helper hold no descriptors: the limits are ten times as high.
        let is_alike = |other: &&Known| other.memories.is_some() == known.memories.is_some();
        let times = if known.memories.is_some() { 1 } else { 10 };
        let of_user = self.known.values().filter(is_alike).filter(|other| other.uid == known.uid).count();
        let all = self.known.values().filter(is_alike).count();
        if of_user < self.known_max.0 * times && all < self.known_max.1 * times {
            self.known.insert(process, known);
        }
    }
}

/// Reads the next slice of a search, or the first one.
fn slice(roots: &Roots, process: ProcessId, partial: Option<Partial>, known: Option<Known>) -> Progress {
    let begun = partial.map_or_else(|| begin(roots, process, known), Ok);
    let Partial { mut search, image: before } = match begun {
        Ok(begun) => begun,
        Err(progress) => return progress,
    };
    let found = match search.advance(SLICE_BYTES) {
        Ok(false) => return Progress::Partial(Box::new(Partial { search, image: before })),
        Ok(true) => Memories::open(search),
        Err(error) => Err(error),
    };
    match image_of(roots, process) {
        None => Progress::Complete(None, Ok(None)),
        Some(image) if image != before => Progress::Stale,
        Some(image) => Progress::Complete(Some(image), found.map(opened).map_err(ProcessError::from)),
    }
}

fn opened(memories: Option<Memories>) -> Option<Box<Opened>> {
    memories.map(|memories| Box::new(Opened { process: Process::new(memories.clone()), memories }))
}

/// Begins a search, or returns its result in `Err` if that is known.
fn begin(roots: &Roots, process: ProcessId, known: Option<Known>) -> Result<Partial, Progress> {
    let Some(image) = image_of(roots, process) else { return Err(Progress::Complete(None, Ok(None))) };
    if let Some(known) = known.filter(|known| known.image == image) {
        return Err(Progress::Complete(Some(image), Ok(opened(known.memories))));
    }
    // If the first thread of a process has ended, only the others have a memory map.
    let thread = processes::live_thread(roots, process.pid).ok().flatten().unwrap_or(process.pid);
    let search = Search::begin(roots, thread, FORMS);
    let search = search.map_err(|error| Progress::Complete(Some(image), Err(error.into())))?;
    Ok(Partial { search, image })
}

/// Image of a process; `None` if its pid belongs to a later process.
pub(crate) fn image_of(roots: &Roots, process: ProcessId) -> Option<Image> {
    processes::image(roots, process.pid).ok().flatten().filter(|image| image.is_of(process.start_ticks))
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command, sync::Arc};

    use call_ring::{Memory, Mode, NAME, TOTAL_BYTES};
    use sys::{fake::Machine, shared_memory::SharedMemory};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const fn process(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 7 }
    }

    /// Stat of a process, with its stack at this address.
    fn stat(pid: u32, stack: u64) -> String {
        stat_after(pid, stack, 0)
    }

    /// Stat of a process that has used this processor time.
    fn stat_after(pid: u32, stack: u64, used_ticks: u64) -> String {
        let fields = (4..=52).map(|field| match field {
            14 => used_ticks,
            22 => 7,
            28 => stack,
            _ => 0,
        });
        let fields: Vec<String> = fields.map(|value: u64| value.to_string()).collect();
        format!("{pid} (app) S {}\n", fields.join(" "))
    }

    fn searches(machine: &Machine) -> Searches {
        Searches::new(machine.roots.clone(), (2, 4))
    }

    fn start(searches: &mut Searches, now: Duration) {
        searches.next_slices(now).into_iter().for_each(|slice| slice.start().unwrap());
    }

    fn look(searches: &mut Searches, running: &BTreeMap<ProcessId, u32>, now: Duration) -> Vec<ProcessId> {
        let checked = searches.checks(running, now).read();
        searches.look(running, checked, now)
    }

    /// Result of a search in a process, with its number of slices.
    fn search(searches: &mut Searches, pid: u32) -> (Found, u32) {
        searches.seek(process(pid), 1000);
        let mut slices = 0;
        loop {
            start(searches, SECOND);
            let slice = searches.slices.recv_timeout(60 * SECOND).unwrap();
            slices += 1;
            searches.sender.send(slice).unwrap();
            if let Some(Searched { process: found, uid, found: result, .. }) = searches.take(SECOND) {
                assert_eq!((found, uid), (process(pid), 1000));
                return (result, slices);
            }
        }
    }

    #[test]
    fn program_is_searched_once_however_often_it_opens_the_driver() {
        let machine = Machine::new().with("proc/42/stat", stat(42, 1)).with("proc/42/maps", "");
        let mut searches = searches(&machine);
        assert!(matches!(search(&mut searches, 42), (Ok(None), 1)));
        fs::remove_file(machine.roots.proc.join("42/maps")).unwrap();
        assert!(matches!(search(&mut searches, 42), (Ok(None), 1)), "its map is not read");
        // The process executes another program.
        machine.write("proc/42/stat", stat(42, 2));
        assert!(matches!(search(&mut searches, 42), (Err(ProcessError::Memory(_)), 1)));
        // The result for a process is dropped once it has exited.
        machine.remove("proc/42");
        let _ = look(&mut searches, &BTreeMap::new(), SECOND);
        assert!(searches.known.is_empty());
    }

    #[test]
    fn search_that_found_nothing_or_failed_is_repeated_twice() {
        let machine = Machine::new().with("proc/42/stat", stat(42, 1)).with("proc/42/maps", "");
        let (mut searches, running) = (searches(&machine), BTreeMap::from([(process(42), 1000)]));
        assert!(matches!(search(&mut searches, 42), (Ok(None), 1)));
        assert!(look(&mut searches, &running, SECOND).is_empty());
        // The map is temporarily unreadable.
        fs::remove_file(machine.roots.proc.join("42/maps")).unwrap();
        assert_eq!(look(&mut searches, &running, 30 * SECOND), [process(42)]);
        assert!(matches!(search(&mut searches, 42), (Err(_), 1)), "what was known is not used");
        machine.write("proc/42/maps", "");
        assert_eq!(look(&mut searches, &running, 60 * SECOND), [process(42)]);
        assert!(matches!(search(&mut searches, 42), (Ok(None), 1)));
        assert!(look(&mut searches, &running, 600 * SECOND).is_empty());
        // No further repeats, even if the process opens the driver again.
        let _ = look(&mut searches, &BTreeMap::new(), 600 * SECOND);
        assert!(matches!(search(&mut searches, 42), (Ok(None), 1)));
        assert!(look(&mut searches, &running, 900 * SECOND).is_empty());
    }

    #[test]
    fn large_map_is_read_in_slices_of_which_each_is_charged() {
        let line = |at: u64| format!("{:012x}-{:012x} rw-p 00000000 00:00 0\n", at << 12, (at << 12) + 2048);
        let map = (1..30_000).map(line).collect::<Vec<String>>().concat();
        let slices_min = u32::try_from(map.len() as u64 / SLICE_BYTES).unwrap();
        let machine = Machine::new().with("proc/42/stat", stat(42, 1)).with("proc/42/maps", map);
        let mut searches = searches(&machine);
        let (found, slices) = search(&mut searches, 42);
        assert!(matches!(found, Ok(None)) && (slices_min..slices_min + 2).contains(&slices), "{slices} slices");
        // A user without budget waits, for that reason.
        searches.schedule.charge(1000, 10 * SECOND, SECOND);
        machine.write("proc/42/stat", stat(42, 2));
        searches.seek(process(42), 1000);
        start(&mut searches, SECOND);
        assert!(searches.slices.try_recv().is_err());
        assert_eq!(searches.delay_of(process(42), SECOND), Some(Delay::Budget));
        // The processor time of its processes is credited for the search.
        let running = BTreeMap::from([(process(42), 1000)]);
        let _ = look(&mut searches, &running, SECOND);
        machine.write("proc/42/stat", stat_after(42, 2, 1_000_000));
        let _ = look(&mut searches, &running, SECOND);
        assert_eq!(searches.delay_of(process(42), SECOND), Some(Delay::Turn));
    }

    #[test]
    fn processes_that_hold_their_maps_delay_no_other_user() {
        let mut machine = Machine::new().with("proc/9/stat", stat(9, 1)).with("proc/9/maps", "");
        for pid in 100..108 {
            machine = machine.with(&format!("proc/{pid}/stat"), stat(pid, 1));
        }
        // An open blocks until there is a writer.
        let pipes: Vec<_> = (100..108).map(|pid| machine.roots.proc.join(format!("{pid}/maps"))).collect();
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        let mut searches = searches(&machine);
        for pid in 100..108 {
            searches.seek(process(pid), pid / 2);
        }
        start(&mut searches, SECOND);
        start(&mut searches, 4 * SECOND);
        searches.seek(process(9), 1);
        start(&mut searches, 7 * SECOND);
        let slice = searches.slices.recv_timeout(60 * SECOND).unwrap();
        assert!(matches!(slice, Slice { process: ProcessId { pid: 9, .. }, result: Progress::Complete(..), .. }));
        // The threads end with the locks.
        for pipe in pipes {
            fs::write(pipe, "").unwrap();
            searches.slices.recv_timeout(60 * SECOND).unwrap();
        }
    }

    /// Searches that know the ring of a process, which has no header.
    fn searches_with_unfinished_ring(machine: &Machine) -> (Searches, Arc<SharedMemory>) {
        let ring = Arc::new(SharedMemory::create(NAME, TOTAL_BYTES.try_into().unwrap()).unwrap());
        let mut searches = searches(machine);
        let image = image_of(&machine.roots, process(42)).unwrap();
        let memories = Some(Memories { ring: Arc::clone(&ring), plan: Ok(None) });
        searches.keep(process(42), Known { uid: 1000, image, memories });
        searches.seek(process(42), 1000);
        (searches, ring)
    }

    /// Reads the due slices. Returns their number, and the results.
    fn poll(searches: &mut Searches) -> (usize, Vec<Searched>) {
        start(searches, SECOND);
        let mut slices = Vec::new();
        while slices.len() < searches.schedule.running() {
            slices.push(searches.slices.recv_timeout(60 * SECOND).unwrap());
        }
        let count = slices.len();
        for slice in slices {
            searches.sender.send(slice).unwrap();
        }
        (count, std::iter::from_fn(|| searches.take(SECOND)).collect())
    }

    #[test]
    fn ring_without_a_header_is_read_once_a_look_at_its_users_expense() {
        let machine = Machine::new().with("proc/42/stat", stat(42, 1));
        let running = BTreeMap::from([(process(42), 1000)]);
        let (mut searches, ring) = searches_with_unfinished_ring(&machine);
        let polls = |searches: &mut Searches| (0..20).map(|_| poll(searches).0).sum::<usize>();
        assert_eq!(polls(&mut searches), 1);
        let _ = look(&mut searches, &running, SECOND);
        assert_eq!(polls(&mut searches), 1);
        assert_eq!(searches.delay_of(process(42), SECOND), Some(Delay::Turn));
        Memory::create(ring.words().unwrap(), Mode::Record).unwrap();
        searches.schedule.charge(1000, 10 * SECOND, SECOND);
        let _ = look(&mut searches, &running, SECOND);
        assert_eq!(polls(&mut searches), 0);
        assert_eq!(searches.delay_of(process(42), SECOND), Some(Delay::Budget));
        searches.schedule.credit(1000, 1000 * SECOND);
        let (_, found) = poll(&mut searches);
        assert!(matches!(&found[..], [Searched { uid: 1000, found: Ok(Some(_)), .. }]), "{found:?}");
    }

    #[test]
    fn ring_that_gets_no_header_is_refused() {
        let machine = Machine::new().with("proc/42/stat", stat(42, 1));
        let running = BTreeMap::from([(process(42), 1000)]);
        let (mut searches, _ring) = searches_with_unfinished_ring(&machine);
        for _ in 0..HEADER_CHECKS_MAX {
            assert!(poll(&mut searches).1.is_empty());
            let _ = look(&mut searches, &running, SECOND);
        }
        let (_, found) = poll(&mut searches);
        let is_none = |found: &Found| matches!(found, Err(ProcessError::Ring(LayoutError::Header)));
        assert!(found.len() == 1 && is_none(&found[0].found), "{found:?}");
        assert_eq!(searches.delay_of(process(42), SECOND), None);
    }

    #[test]
    fn ring_that_gets_its_header_late_is_found_by_a_repeated_search() {
        let machine = Machine::new().with("proc/42/stat", stat(42, 1)).with("proc/42/maps", "");
        let running = BTreeMap::from([(process(42), 1000)]);
        let (mut searches, ring) = searches_with_unfinished_ring(&machine);
        while poll(&mut searches).1.is_empty() {
            let _ = look(&mut searches, &running, SECOND);
        }
        Memory::create(ring.words().unwrap(), Mode::Record).unwrap();
        assert!(look(&mut searches, &running, 3 * SECOND).is_empty());
        assert_eq!(look(&mut searches, &running, 4 * SECOND), [process(42)]);
        // The map of the fake process has no ring: the result was retained.
        let image = image_of(&machine.roots, process(42)).unwrap();
        let memories = Some(Memories { ring, plan: Ok(None) });
        searches.keep(process(42), Known { uid: 1000, image, memories });
        searches.seek(process(42), 1000);
        let (_, found) = poll(&mut searches);
        assert!(matches!(&found[..], [Searched { found: Ok(Some(_)), .. }]), "{found:?}");
    }
}

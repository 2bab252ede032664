//! Searches for the memories that helpers share with uvmd, in the memory maps of processes.
//!
//! A process can delay its search: by many mappings, or by holding the lock of its memory map. So
//! maps are read in slices, each on a thread of its own, whose processor time is charged to the
//! user of the process; `schedule` has the limits. One search finds all memories. It is repeated
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
pub(crate) use checks::CheckResults;
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
/// Delays before the retries of a search that found no ring or no header, or failed: the helper may
/// be loaded late, a program may be stopped while its ring is created, and a failure may be
/// temporary.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(10)];
/// Maximum checks of a ring without a header, one per scan: the helper is about to write the
/// header. It does so before the program opens the driver, also in a forked child.
const HEADER_CHECKS_MAX: u32 = 3;
/// Maximum number of processes of a user whose processor time is read per scan.
const CREDITED_MAX: usize = 64;
/// Maximum number of processes of [`Searches::cache`] checked for exit per scan.
const EXIT_CHECKS_MAX: usize = 16;
const STACK_BYTES: usize = 256 << 10;
/// Processor time charged for the start and the end of a thread.
const THREAD_TIME: Duration = Duration::from_micros(100);

/// Result of a search: the process with its ring; `None` without a helper.
pub(crate) type Found = Result<Option<Process>, ProcessError>;

/// Completed search.
#[derive(Debug)]
pub(crate) struct SearchResult {
    pub(crate) process: ProcessId,
    pub(crate) uid: u32,
    /// Program of the process.
    pub(crate) image: Option<Image>,
    pub(crate) found: Found,
}

/// Retries of a search that found nothing.
#[derive(Clone, Copy, Debug)]
struct Retries {
    image: Option<Image>,
    /// Number of retries made or scheduled.
    count: usize,
    due: Option<Duration>,
}

/// Process whose ring has no header yet.
#[derive(Debug)]
struct PendingHeader {
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
    partial: BTreeMap<ProcessId, PartialSearch>,
    /// Results for processes that still run.
    cache: BTreeMap<ProcessId, CachedResult>,
    /// Results that are no longer needed: the last user of a memory waits for its accessor.
    forgotten: Vec<CachedResult>,
    /// Last process checked for exit.
    last_checked: ProcessId,
    /// Maximum number of results with memories in [`Self::cache`]: of a user, and in total. Others
    /// are not retained, and so searched for again.
    cache_max: (usize, usize),
    pending_headers: BTreeMap<ProcessId, PendingHeader>,
    retries: BTreeMap<ProcessId, Retries>,
    /// Processor time at the last scan, of processes whose users have used up their budget.
    cpu_times: BTreeMap<ProcessId, Duration>,
    slices: Receiver<Slice>,
    /// Sender for the threads.
    sender: Sender<Slice>,
}

/// Search in progress, between two slices.
#[derive(Debug)]
struct PartialSearch {
    search: Search<2>,
    image: Image,
}

#[derive(Clone, Debug)]
pub(crate) struct CachedResult {
    uid: u32,
    image: Image,
    /// `None` without a helper.
    memories: Option<Memories>,
}

/// Slice to read.
#[derive(Debug)]
pub(crate) struct PendingSlice {
    process: ProcessId,
    partial: Option<PartialSearch>,
    cached: Option<CachedResult>,
    roots: Roots,
    sender: Sender<Slice>,
}

impl PendingSlice {
    /// Reads the slice on a thread of its own.
    ///
    /// # Errors
    /// The process, if no thread can be started.
    pub(crate) fn start(self) -> Result<(), ProcessId> {
        let Self { process, partial, cached, roots, sender } = self;
        let read = move || {
            let begun = cpu_time::of_this_thread();
            let result = read_slice(&roots, process, partial, cached);
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
    Partial(Box<PartialSearch>),
    /// The process has executed another program during the search.
    Stale,
    /// The search is complete.
    Complete(Option<Image>, Result<Option<Box<Opened>>, ProcessError>),
}

impl Searches {
    /// Searches that retain at most this number of results: of a user, and in total.
    pub(crate) fn new(roots: Roots, cache_max: (usize, usize)) -> Self {
        let (sender, slices) = mpsc::channel();
        Self {
            roots,
            schedule: Schedule::default(),
            partial: BTreeMap::new(),
            cache: BTreeMap::new(),
            forgotten: Vec::new(),
            last_checked: ProcessId { pid: 0, start_ticks: 0 },
            cache_max,
            pending_headers: BTreeMap::new(),
            retries: BTreeMap::new(),
            cpu_times: BTreeMap::new(),
            slices,
            sender,
        }
    }

    /// Searches for the memories of a process of a user, until there is a result to [`Self::take`].
    pub(crate) fn request(&mut self, process: ProcessId, uid: u32) {
        if !self.pending_headers.contains_key(&process) {
            self.schedule.request(process, uid);
        }
    }

    /// Restricts searches to these processes. Results of slices read for others are dropped.
    pub(crate) fn retain(&mut self, is_requested: impl Fn(&ProcessId) -> bool) {
        self.schedule.retain(&is_requested);
        self.partial.retain(|process, _| is_requested(process));
        self.pending_headers.retain(|process, _| is_requested(process));
    }

    /// Reason why the search in a process is delayed, if it is.
    pub(crate) fn delay_of(&self, process: ProcessId, now: Duration) -> Option<Delay> {
        let is_pending = self.schedule.is_requested(process) || self.pending_headers.contains_key(&process);
        self.schedule.delay_of(process, now).or(is_pending.then_some(Delay::Turn))
    }

    /// Processes to read in /proc before the next [`Self::scan`].
    pub(crate) fn checks(&mut self, running: &BTreeMap<ProcessId, u32>, now: Duration) -> Checks {
        let mut users: BTreeMap<u32, Vec<ProcessId>> =
            self.schedule.users_over_budget(now).map(|uid| (uid, Vec::new())).collect();
        if !users.is_empty() {
            for (process, uid) in running {
                match users.get_mut(uid) {
                    Some(processes) if processes.len() < CREDITED_MAX => processes.push(*process),
                    _ => {}
                }
            }
        }
        Checks { roots: self.roots.clone(), exits: self.exit_checks(running), users }
    }

    /// Processes of cached results that may have exited, a limited number at a time.
    fn exit_checks(&mut self, running: &BTreeMap<ProcessId, u32>) -> Vec<ProcessId> {
        let next = self.cache.range((Bound::Excluded(self.last_checked), Bound::Unbounded));
        let absent = next.map(|(process, _)| *process).filter(|process| !running.contains_key(process));
        let checks: Vec<ProcessId> = absent.take(EXIT_CHECKS_MAX).collect();
        // After the last process, restarts with the first.
        let last = checks.last().filter(|_| checks.len() == EXIT_CHECKS_MAX);
        self.last_checked = last.copied().unwrap_or(ProcessId { pid: 0, start_ticks: 0 });
        checks
    }

    /// Updates the processes that have the driver open, with their users, and credits users for the
    /// processor time of their processes. Returns the processes whose search is due for a repeat.
    /// Called once a second.
    #[must_use]
    pub(crate) fn scan(
        &mut self,
        running: &BTreeMap<ProcessId, u32>,
        checked: CheckResults,
        now: Duration,
    ) -> Vec<ProcessId> {
        self.schedule.expire_slow(now);
        let CheckResults { exited, users } = checked;
        self.credit(users, now);
        for (process, PendingHeader { uid, .. }) in &self.pending_headers {
            self.schedule.request(*process, *uid);
        }
        for process in exited {
            self.forgotten.extend(self.cache.remove(&process));
        }
        let cache = &self.cache;
        self.retries.retain(|process, _| running.contains_key(process) || cache.contains_key(process));
        let mut due = Vec::new();
        for (process, retries) in &mut self.retries {
            if retries.due.is_some_and(|time| time <= now) && running.contains_key(process) {
                retries.due = None;
                self.forgotten.extend(self.cache.remove(process));
                due.push(*process);
            }
        }
        due
    }

    /// Schedules a repeat of a search that found no ring with a header, up to the maximum.
    fn schedule_retry(&mut self, process: ProcessId, image: Option<Image>, now: Duration) {
        let none = Retries { image, count: 0, due: None };
        let retries = self.retries.entry(process).or_insert(none);
        if retries.image != image {
            *retries = none;
        }
        if let (None, Some(after)) = (retries.due, RETRY_DELAYS.get(retries.count)) {
            retries.count += 1;
            retries.due = Some(now + *after);
        }
    }

    /// Credits users whose budget is used up, for the processor time of their processes.
    fn credit(&mut self, users: BTreeMap<u32, UserTime>, now: Duration) {
        let before = mem::take(&mut self.cpu_times);
        for (uid, UserTime { cpu_times, spent }) in users {
            // Processor time before the first scan is not credited.
            let earned = cpu_times.iter().map(|(process, time)| {
                before.get(process).map_or(Duration::ZERO, |before| time.saturating_sub(*before))
            });
            self.schedule.credit(uid, earned.sum());
            self.schedule.charge(uid, spent, now);
            self.cpu_times.extend(cpu_times);
        }
    }

    /// Slices that are next in turn. The caller starts each of them, or [abandons](Self::abandon)
    /// it.
    pub(crate) fn next_slices(&mut self, now: Duration) -> Vec<PendingSlice> {
        let mut slices = Vec::new();
        while let Some(process) = self.schedule.next(now) {
            let (partial, cached) = (self.partial.remove(&process), self.cache.get(&process).cloned());
            let (roots, sender) = (self.roots.clone(), self.sender.clone());
            slices.push(PendingSlice { process, partial, cached, roots, sender });
        }
        slices
    }

    /// Returns a slice that could not be started to the queue.
    pub(crate) fn abandon(&mut self, process: ProcessId, now: Duration) {
        self.schedule.finish_slice(process, Duration::ZERO, false, now);
    }

    /// Next result.
    pub(crate) fn take(&mut self, now: Duration) -> Option<SearchResult> {
        while let Ok(Slice { process, spent, result }) = self.slices.try_recv() {
            let is_requested = self.schedule.is_requested(process);
            let is_complete = matches!(result, Progress::Complete(..));
            let Some(uid) = self.schedule.finish_slice(process, spent + THREAD_TIME, is_complete, now) else {
                continue;
            };
            let (image, found) = match result {
                Progress::Partial(partial) => {
                    if is_requested {
                        self.partial.insert(process, *partial);
                    }
                    continue;
                }
                Progress::Stale => continue,
                Progress::Complete(image, found) => (image, found),
            };
            if let (Some(image), Ok(opened)) = (image, &found) {
                let memories = opened.as_ref().map(|opened| opened.memories.clone());
                self.cache_result(process, CachedResult { uid, image, memories });
            }
            let found = match found {
                _ if !is_requested => continue,
                Ok(Some(opened)) => {
                    let found = opened.process;
                    let is_header_pending = found.as_ref().is_err_and(|error| {
                        matches!(error, ProcessError::Ring(LayoutError::Header)) || error.is_pending()
                    });
                    if is_header_pending && self.waits_for_header(process, uid) {
                        continue;
                    }
                    self.pending_headers.remove(&process);
                    if is_header_pending {
                        self.schedule_retry(process, image, now);
                    }
                    found.map(Some)
                }
                not_found => {
                    self.pending_headers.remove(&process);
                    self.schedule_retry(process, image, now);
                    not_found.map(|_| None)
                }
            };
            return Some(SearchResult { process, uid, image, found });
        }
        None
    }

    /// Whether the ring of a process may still get a header.
    fn waits_for_header(&mut self, process: ProcessId, uid: u32) -> bool {
        let pending = self.pending_headers.entry(process).or_insert(PendingHeader { uid, checks: 0 });
        pending.checks += 1;
        pending.checks <= HEADER_CHECKS_MAX
    }

    /// Results to drop without the lock of the registry.
    pub(crate) fn take_forgotten(&mut self) -> Vec<CachedResult> {
        mem::take(&mut self.forgotten)
    }

    /// Retains the result for a process, if there is room.
    fn cache_result(&mut self, process: ProcessId, result: CachedResult) {
        self.forgotten.extend(self.cache.remove(&process));
        // Results without a helper hold no descriptors: the limits are ten times as high.
        let is_alike = |other: &&CachedResult| other.memories.is_some() == result.memories.is_some();
        let factor = if result.memories.is_some() { 1 } else { 10 };
        let of_user = self.cache.values().filter(is_alike).filter(|other| other.uid == result.uid).count();
        let all = self.cache.values().filter(is_alike).count();
        if of_user < self.cache_max.0 * factor && all < self.cache_max.1 * factor {
            self.cache.insert(process, result);
        } else {
            self.forgotten.push(result);
        }
    }
}

/// Reads the next slice of a search, or the first one.
fn read_slice(
    roots: &Roots,
    process: ProcessId,
    partial: Option<PartialSearch>,
    cached: Option<CachedResult>,
) -> Progress {
    let begun = partial.map_or_else(|| begin_search(roots, process, cached), Ok);
    let PartialSearch { mut search, image: before } = match begun {
        Ok(begun) => begun,
        Err(progress) => return progress,
    };
    let found = match search.advance(SLICE_BYTES) {
        Ok(false) => return Progress::Partial(Box::new(PartialSearch { search, image: before })),
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

/// Begins a search, or returns its result in `Err` if that is cached.
fn begin_search(roots: &Roots, process: ProcessId, cached: Option<CachedResult>) -> Result<PartialSearch, Progress> {
    let Some(image) = image_of(roots, process) else { return Err(Progress::Complete(None, Ok(None))) };
    if let Some(cached) = cached.filter(|cached| cached.image == image) {
        return Err(Progress::Complete(Some(image), Ok(opened(cached.memories))));
    }
    // If the first thread of a process has ended, only the others have a memory map.
    let thread = processes::live_thread(roots, process.pid).ok().flatten().unwrap_or(process.pid);
    let search = Search::begin(roots, thread, FORMS);
    let search = search.map_err(|error| Progress::Complete(Some(image), Err(error.into())))?;
    Ok(PartialSearch { search, image })
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

    fn scan(searches: &mut Searches, running: &BTreeMap<ProcessId, u32>, now: Duration) -> Vec<ProcessId> {
        let checked = searches.checks(running, now).read();
        searches.scan(running, checked, now)
    }

    /// Result of a search in a process, with its number of slices.
    fn search(searches: &mut Searches, pid: u32) -> (Found, u32) {
        searches.request(process(pid), 1000);
        let mut slices = 0;
        loop {
            start(searches, SECOND);
            let slice = searches.slices.recv_timeout(60 * SECOND).unwrap();
            slices += 1;
            searches.sender.send(slice).unwrap();
            if let Some(SearchResult { process: found, uid, found: result, .. }) = searches.take(SECOND) {
                assert_eq!((found, uid), (process(pid), 1000));
                return (result, slices);
            }
        }
    }

    #[test]
    fn program_is_searched_once_per_exec() {
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
        let _ = scan(&mut searches, &BTreeMap::new(), SECOND);
        assert!(searches.cache.is_empty());
    }

    #[test]
    fn unsuccessful_search_is_retried_twice() {
        let machine = Machine::new().with("proc/42/stat", stat(42, 1)).with("proc/42/maps", "");
        let (mut searches, running) = (searches(&machine), BTreeMap::from([(process(42), 1000)]));
        assert!(matches!(search(&mut searches, 42), (Ok(None), 1)));
        assert!(scan(&mut searches, &running, SECOND).is_empty());
        // The map is temporarily unreadable.
        fs::remove_file(machine.roots.proc.join("42/maps")).unwrap();
        assert_eq!(scan(&mut searches, &running, 30 * SECOND), [process(42)]);
        assert!(matches!(search(&mut searches, 42), (Err(_), 1)), "the cached result is not used");
        machine.write("proc/42/maps", "");
        assert_eq!(scan(&mut searches, &running, 60 * SECOND), [process(42)]);
        assert!(matches!(search(&mut searches, 42), (Ok(None), 1)));
        assert!(scan(&mut searches, &running, 600 * SECOND).is_empty());
        // No further retries, even if the process opens the driver again.
        let _ = scan(&mut searches, &BTreeMap::new(), 600 * SECOND);
        assert!(matches!(search(&mut searches, 42), (Ok(None), 1)));
        assert!(scan(&mut searches, &running, 900 * SECOND).is_empty());
    }

    #[test]
    fn large_map_is_read_in_charged_slices() {
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
        searches.request(process(42), 1000);
        start(&mut searches, SECOND);
        assert!(searches.slices.try_recv().is_err());
        assert_eq!(searches.delay_of(process(42), SECOND), Some(Delay::Budget));
        // The processor time of its processes is credited for the search.
        let running = BTreeMap::from([(process(42), 1000)]);
        let _ = scan(&mut searches, &running, SECOND);
        machine.write("proc/42/stat", stat_after(42, 2, 1_000_000));
        let _ = scan(&mut searches, &running, SECOND);
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
            searches.request(process(pid), pid / 2);
        }
        start(&mut searches, SECOND);
        start(&mut searches, 4 * SECOND);
        searches.request(process(9), 1);
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
    fn searches_with_pending_header(machine: &Machine) -> (Searches, Arc<SharedMemory>) {
        let ring = Arc::new(SharedMemory::create(NAME, TOTAL_BYTES.try_into().unwrap()).unwrap());
        let mut searches = searches(machine);
        let image = image_of(&machine.roots, process(42)).unwrap();
        let memories = Some(Memories { ring: Arc::clone(&ring), plan: Ok(None) });
        searches.cache_result(process(42), CachedResult { uid: 1000, image, memories });
        searches.request(process(42), 1000);
        (searches, ring)
    }

    /// Reads the due slices. Returns their number, and the results.
    fn poll(searches: &mut Searches) -> (usize, Vec<SearchResult>) {
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
    fn ring_without_a_header_is_checked_once_per_scan_and_charged() {
        let machine = Machine::new().with("proc/42/stat", stat(42, 1));
        let running = BTreeMap::from([(process(42), 1000)]);
        let (mut searches, ring) = searches_with_pending_header(&machine);
        let polls = |searches: &mut Searches| (0..20).map(|_| poll(searches).0).sum::<usize>();
        assert_eq!(polls(&mut searches), 1);
        let _ = scan(&mut searches, &running, SECOND);
        assert_eq!(polls(&mut searches), 1);
        assert_eq!(searches.delay_of(process(42), SECOND), Some(Delay::Turn));
        Memory::create(ring.words(), Mode::Record).unwrap();
        searches.schedule.charge(1000, 10 * SECOND, SECOND);
        let _ = scan(&mut searches, &running, SECOND);
        assert_eq!(polls(&mut searches), 0);
        assert_eq!(searches.delay_of(process(42), SECOND), Some(Delay::Budget));
        searches.schedule.credit(1000, 1000 * SECOND);
        let (_, found) = poll(&mut searches);
        assert!(matches!(&found[..], [SearchResult { uid: 1000, found: Ok(Some(_)), .. }]), "{found:?}");
    }

    #[test]
    fn ring_that_never_gets_a_header_is_rejected() {
        let machine = Machine::new().with("proc/42/stat", stat(42, 1));
        let running = BTreeMap::from([(process(42), 1000)]);
        let (mut searches, _ring) = searches_with_pending_header(&machine);
        for _ in 0..HEADER_CHECKS_MAX {
            assert!(poll(&mut searches).1.is_empty());
            let _ = scan(&mut searches, &running, SECOND);
        }
        let (_, found) = poll(&mut searches);
        let is_none = |found: &Found| matches!(found, Err(ProcessError::Ring(LayoutError::Header)));
        assert!(found.len() == 1 && is_none(&found[0].found), "{found:?}");
        assert_eq!(searches.delay_of(process(42), SECOND), None);
    }

    #[test]
    fn ring_with_a_late_header_is_found_by_a_retry() {
        let machine = Machine::new().with("proc/42/stat", stat(42, 1)).with("proc/42/maps", "");
        let running = BTreeMap::from([(process(42), 1000)]);
        let (mut searches, ring) = searches_with_pending_header(&machine);
        while poll(&mut searches).1.is_empty() {
            let _ = scan(&mut searches, &running, SECOND);
        }
        Memory::create(ring.words(), Mode::Record).unwrap();
        assert!(scan(&mut searches, &running, 3 * SECOND).is_empty());
        assert_eq!(scan(&mut searches, &running, 4 * SECOND), [process(42)]);
        // The map of the fake process has no ring: the result was retained.
        let image = image_of(&machine.roots, process(42)).unwrap();
        let memories = Some(Memories { ring, plan: Ok(None) });
        searches.cache_result(process(42), CachedResult { uid: 1000, image, memories });
        searches.request(process(42), 1000);
        let (_, found) = poll(&mut searches);
        assert!(matches!(&found[..], [SearchResult { found: Ok(Some(_)), .. }]), "{found:?}");
    }
}

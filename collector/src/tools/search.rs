//! Search for VA spaces, on a thread of its own.
//!
//! Each step of it may take long, and some may hang: to duplicate or compare descriptors of a
//! process waits while that process executes another program, and the last close of a VA space runs
//! the driver's teardown. So the thread of the collector does none of these. A search that hangs is
//! abandoned, and another one omits the user of the process at which it hung for a minute.

use std::{
    collections::{BTreeMap, HashSet},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sys::{
    Roots, cpu_time,
    pidfd::PidFd,
    uvm::{
        Descriptor, UvmError,
        openers::{self, Device},
        target::VaSpace,
    },
};

use super::{
    finder::{Finder, Opener},
    progress::Progress,
};
use crate::{clock, ledger::Generation};

/// Interval of looks.
const EVERY: Duration = Duration::from_millis(100);
/// Interval of checks whether processes have closed their VA spaces.
const CLOSED_EVERY: Duration = Duration::from_secs(1);
/// Time after which a search hangs at a process.
const HANGS_AFTER: Duration = Duration::from_secs(5);
/// Time for which processes of a user are omitted after a search hung at one.
const OMITTED: Duration = Duration::from_mins(1);
/// Maximum of searches that hang. Then there is no further one.
const HUNG_MAX: usize = 8;
/// Maximum of findings that wait to be taken.
const FINDINGS_MAX: usize = 8;
/// Time until a VA space that was found is among those that are held.
const SETTLES: Duration = Duration::from_secs(1);
/// Failed comparisons after which a VA space counts as closed.
const FAILURES_MAX: u8 = 3;

/// VA space that is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) generation: Generation,
    pub(super) pid: u32,
    pub(super) uid: u32,
    /// Its place in the process.
    pub(super) place: Descriptor,
    /// The same in its holder, once it is held.
    pub(super) held_at: Option<Descriptor>,
}

/// VA space that is not counted.
pub(super) struct Found {
    pub(super) opener: Opener,
    pub(super) process: Arc<PidFd>,
    pub(super) place: Descriptor,
    pub(super) file: OwnedFd,
}

/// Finding of a search.
pub(super) enum Finding {
    Found(Found),
    /// The process has too many VA spaces or open files to inspect.
    TooMany(Opener),
    /// The descriptor of a counted VA space has another number.
    Moved(Generation, Descriptor),
    /// The process has closed a counted VA space.
    Closed(Generation),
}

/// Users at whose processes a search hung, and when.
type Omitted = Arc<Mutex<BTreeMap<u32, Instant>>>;

/// Current search.
pub(super) struct Search {
    roots: Roots,
    device: Device,
    shared: Arc<Shared>,
    /// Behind a lock for the compiler: a receiver is not shared by threads.
    findings: Mutex<Receiver<Finding>>,
    closing: Sender<OwnedFd>,
    omitted: Omitted,
    hung: Vec<JoinHandle<()>>,
    thread: Option<JoinHandle<()>>,
    /// Reason why there is no search.
    not_started: Option<String>,
}

/// What a search shares with the collector.
#[derive(Default)]
struct Shared {
    counted: Mutex<Vec<Counted>>,
    progress: Progress,
    warning: Mutex<Option<String>>,
    is_abandoned: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Search {
    pub(super) fn start(roots: &Roots, device: Device) -> Self {
        // Replaced at once.
        let ((_, findings), (closing, _)) = (mpsc::sync_channel(0), mpsc::channel());
        let mut search = Self {
            roots: roots.clone(),
            device,
            shared: Arc::default(),
            findings: Mutex::new(findings),
            closing,
            omitted: Omitted::default(),
            hung: Vec::new(),
            thread: None,
            not_started: None,
        };
        search.restart();
        search
    }

    fn restart(&mut self) {
        let shared = Arc::new(Shared::default());
        lock(&shared.counted).clone_from(&lock(&self.shared.counted));
        let (found, findings) = mpsc::sync_channel(FINDINGS_MAX);
        let (closing, close) = mpsc::channel();
        let thread = Thread {
            roots: self.roots.clone(),
            finder: Finder::new(&self.roots, self.device, shared.progress.clone()),
            shared: Arc::clone(&shared),
            omitted: Arc::clone(&self.omitted),
            found,
            recent: Vec::new(),
            failures: BTreeMap::new(),
            checked_closed: None,
        };
        (self.shared, self.findings, self.closing) = (shared, Mutex::new(findings), closing);
        let started = thread::Builder::new().name("va-spaces".to_owned()).spawn(move || thread.run(&close));
        match started {
            Ok(started) => self.thread = Some(started),
            Err(error) => self.not_started = Some(format!("VA spaces are not searched for: {error}")),
        }
    }

    /// Sets the VA spaces that are counted, and replaces a search that hangs.
    pub(super) fn update(&mut self, counted: Vec<Counted>) {
        *lock(&self.shared.counted) = counted;
        self.hung.retain(|thread| !thread.is_finished());
        let Some((pid, uid)) = self.shared.progress.stuck(HANGS_AFTER) else { return };
        if self.hung.len() >= HUNG_MAX {
            return;
        }
        tracing::error!(pid, uid, "a search for VA spaces hangs at this process");
        self.shared.is_abandoned.store(true, Ordering::Relaxed);
        lock(&self.omitted).insert(uid, Instant::now());
        self.hung.extend(self.thread.take());
        self.restart();
    }

    /// Next finding, if there is one.
    pub(super) fn next(&mut self) -> Option<Finding> {
        self.findings.get_mut().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }

    /// Closes a VA space of a finding.
    pub(super) fn close(&self, file: OwnedFd) {
        // Without a search, it is closed here.
        let _ = self.closing.send(file);
    }

    /// Reason why some processes are not found.
    pub(super) fn warning(&self) -> Option<String> {
        let hung = (!self.hung.is_empty()).then(|| {
            format!(
                "{} searches for VA spaces hang at processes that execute another program; those of their users are omitted for a minute",
                self.hung.len()
            )
        });
        self.not_started.clone().or(hung).or_else(|| lock(&self.shared.warning).clone())
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.shared.is_abandoned.store(true, Ordering::Relaxed);
    }
}

struct Thread {
    roots: Roots,
    finder: Finder,
    shared: Arc<Shared>,
    omitted: Omitted,
    found: SyncSender<Finding>,
    /// Places of VA spaces that were found of late.
    recent: Vec<(Descriptor, Instant)>,
    /// Failed comparisons in a row.
    failures: BTreeMap<Generation, u8>,
    checked_closed: Option<Duration>,
}

/// The collector takes no more findings.
struct Gone;

impl Thread {
    fn run(mut self, close: &Receiver<OwnedFd>) {
        while !self.shared.is_abandoned.load(Ordering::Relaxed) && self.look().is_ok() {
            let deadline = Instant::now() + EVERY;
            loop {
                match close.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                    Ok(file) => drop(file),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        }
    }

    fn send(&self, finding: Finding) -> Result<(), Gone> {
        self.found.send(finding).map_err(|_| Gone)
    }

    fn look(&mut self) -> Result<(), Gone> {
        let now = clock::since_boot(&self.roots).unwrap_or_default();
        let counted = lock(&self.shared.counted).clone();
        if self.checked_closed.is_none_or(|last| now.saturating_sub(last) >= CLOSED_EVERY) {
            self.checked_closed = Some(now);
            self.look_for_closed(&counted, now)?;
        }
        self.recent.retain(|(_, at)| at.elapsed() < SETTLES);
        let omitted: HashSet<u32> = {
            let mut omitted = lock(&self.omitted);
            omitted.retain(|_, at| at.elapsed() < OMITTED);
            omitted.keys().copied().collect()
        };
        let pids = counted.iter().map(|space| space.pid).collect();
        for opener in self.finder.look(&pids, &omitted, now) {
            // Each of a user's processes may have many VA spaces: the others wait.
            if self.finder.is_over(opener.uid, now) {
                self.finder.tried(&opener, false, now);
                continue;
            }
            let begun = cpu_time::of_this_thread();
            self.shared.progress.begin(opener.pid, opener.uid);
            let found = self.spaces_of(&opener, &counted);
            self.shared.progress.end();
            self.finder.charge(opener.uid, cpu_time::of_this_thread().saturating_sub(begun), now);
            let has_space = match found {
                Ok(found) => {
                    for found in found {
                        self.recent.push((found.place, Instant::now()));
                        self.send(Finding::Found(found))?;
                    }
                    true
                }
                Err(UvmError::TooMany { .. }) => {
                    self.send(Finding::TooMany(opener.clone()))?;
                    true
                }
                Err(error) => {
                    tracing::debug!(pid = opener.pid, "its VA spaces are not found: {error}");
                    false
                }
            };
            self.finder.tried(&opener, has_space, now);
        }
        *lock(&self.shared.warning) = self.finder.warning();
        Ok(())
    }

    /// VA spaces of a process that are not counted, and were not found just now.
    fn spaces_of(&self, opener: &Opener, counted: &[Counted]) -> Result<Vec<Found>, UvmError> {
        let process = Arc::new(PidFd::open(opener.pid)?);
        if !opener.is_still(&self.roots) {
            return Err(UvmError::NoVaSpace(opener.pid));
        }
        // One that is not held yet is compared with its place in its process.
        let places = counted.iter().map(|space| (space.held_at.unwrap_or(space.place), space.pid));
        let places: Vec<_> = places.chain(self.recent.iter().map(|(place, _)| (*place, opener.pid))).collect();
        let mut found = Vec::new();
        for va_space in VaSpace::of(&process, &self.roots)? {
            let is_known = places.iter().any(|(place, pid)| {
                // Without a comparison, another one of the same process is taken for the same.
                va_space.is(*place).unwrap_or(*pid == opener.pid)
            });
            let place = va_space.place();
            let file = OwnedFd::from(va_space);
            if !is_known {
                found.push(Found { opener: opener.clone(), process: Arc::clone(&process), place, file });
            }
        }
        Ok(found)
    }

    /// Looks for counted VA spaces that their processes have closed.
    fn look_for_closed(&mut self, counted: &[Counted], now: Duration) -> Result<(), Gone> {
        self.failures.retain(|generation, _| counted.iter().any(|space| space.generation == *generation));
        for space in counted {
            let Some(held_at) = space.held_at.filter(|_| !self.finder.is_over(space.uid, now)) else { continue };
            let begun = cpu_time::of_this_thread();
            self.shared.progress.begin(space.pid, space.uid);
            let place = openers::place_of(&self.roots, space.pid, held_at, space.place);
            self.shared.progress.end();
            self.finder.charge(space.uid, cpu_time::of_this_thread().saturating_sub(begun), now);
            let failures = self.failures.entry(space.generation).or_default();
            match place {
                Ok(Some(place)) => {
                    *failures = 0;
                    if place != space.place {
                        self.send(Finding::Moved(space.generation, place))?;
                    }
                }
                Ok(None) => self.send(Finding::Closed(space.generation))?,
                Err(error) => {
                    // Nothing is known of a process that has exited, which its handle reports.
                    tracing::debug!(pid = space.pid, "its VA space is not compared: {error}");
                    *failures = failures.saturating_add(1);
                    if *failures == FAILURES_MAX && matches!(error, UvmError::TooMany { .. }) {
                        self.send(Finding::Closed(space.generation))?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sys::fake::Machine;

    use super::*;

    fn search() -> (Machine, Search) {
        let machine = Machine::new().with("proc/devices", "Character devices:\n  5 nvidia-uvm\n\nBlock devices:\n");
        let device = Device::of_driver(&machine.roots).unwrap();
        let search = Search::start(&machine.roots, device);
        (machine, search)
    }

    #[test]
    fn search_that_hangs_is_replaced_and_its_user_omitted() {
        let (_machine, mut search) = search();
        let first = Arc::clone(&search.shared);
        first.progress.begin_at(7, 1000, Instant::now().checked_sub(HANGS_AFTER * 2).unwrap());
        search.update(Vec::new());
        assert!(first.is_abandoned.load(Ordering::Relaxed) && !Arc::ptr_eq(&first, &search.shared));
        assert!(lock(&search.omitted).contains_key(&1000));
        assert!(!search.shared.is_abandoned.load(Ordering::Relaxed));
    }

    #[test]
    fn closed_files_are_closed_by_the_search() {
        let (_machine, search) = search();
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        search.close(here.into());
        let mut byte = [0];
        assert_eq!(std::io::Read::read(&mut &there, &mut byte).unwrap(), 0);
    }
}

//! Search for VA spaces, on a thread of its own.
//!
//! Each step of it may take long, and some may hang: to duplicate or compare descriptors of a
//! process waits while that process executes another program, and the last close of a VA space runs
//! the driver's teardown. So the thread of the collector does none of these. A search that hangs is
//! abandoned, and another one omits the user of the process at which it hung: as long as it hangs, and
//! a minute more. Another thread closes VA spaces, so that one that hangs keeps none of others open.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender, SyncSender},
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
use tokio::sync::Notify;

use super::{
    finder::{Finder, Opener},
    progress::Progress,
};
use crate::{clock, ledger::Generation};

/// Interval of looks.
const EVERY: Duration = Duration::from_millis(100);
/// Interval of checks whether there is a cause for a look before. A check takes some microseconds.
const CAUSES_EVERY: Duration = Duration::from_millis(10);
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
/// Time after which a VA space that was found, and is not counted, is found again: there was no room for
/// it.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
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
    /// Time since boot after which it was created.
    pub(super) created_after: Duration,
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

/// Place of a VA space, and the process that has it there or had it.
type Place = (Descriptor, u32);

/// Whether a VA space of a process is at one of these places. `is`: whether it is at one.
fn is_among(places: &[Place], pid: u32, is: impl Fn(Descriptor) -> io::Result<bool>) -> bool {
    // Without a comparison, another one of the same process is taken for the same. The process of a
    // place may have exited: that says nothing about those of others.
    places.iter().any(|(place, of)| is(*place).unwrap_or(*of == pid))
}

/// VA spaces that were found, until the collector has taken them and shown what it counts since. Found
/// again before that, they would be counted twice, however long the collector waits for a processor.
#[derive(Default)]
struct Recent {
    /// Place, number of the finding, and its time.
    found: Vec<(Place, u64, Instant)>,
    /// Number of the last finding.
    last: u64,
}

impl Recent {
    fn push(&mut self, place: Place, now: Instant) {
        self.last += 1;
        self.found.push((place, self.last, now));
    }

    /// Removes those that are counted by now, or have no room. `taken`: findings of VA spaces that the
    /// collector had taken before it showed what it counts.
    fn settle(&mut self, taken: u64, now: Instant) {
        self.found.retain(|(_, number, at)| *number > taken || now.saturating_duration_since(*at) < AGAIN_AFTER);
    }

    fn places(&self) -> Vec<Place> {
        self.found.iter().map(|(place, ..)| *place).collect()
    }
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
    /// Findings of VA spaces of this search that were taken.
    taken: u64,
    /// Rung with each finding.
    bell: Arc<Notify>,
    closing: Sender<OwnedFd>,
    omitted: Omitted,
    /// Searches that hang, each at a process of this user.
    hung: Vec<(u32, JoinHandle<()>)>,
    thread: Option<JoinHandle<()>>,
    /// Reason why there is no search.
    not_started: Option<String>,
}

/// What a search shares with the collector.
#[derive(Default)]
struct Shared {
    /// VA spaces that are counted, and the number of findings that were taken before.
    counted: Mutex<(Vec<Counted>, u64)>,
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
        let (_, findings) = mpsc::sync_channel(0);
        let (closing, close) = mpsc::channel::<OwnedFd>();
        let closer = thread::Builder::new().name("closer".to_owned()).spawn(move || close.into_iter().for_each(drop));
        if let Err(error) = closer {
            tracing::error!("no thread closes VA spaces, so that the collector does: {error}");
        }
        let mut search = Self {
            roots: roots.clone(),
            device,
            shared: Arc::default(),
            findings: Mutex::new(findings),
            taken: 0,
            bell: Arc::default(),
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
        lock(&shared.counted).0.clone_from(&lock(&self.shared.counted).0);
        self.taken = 0;
        let (found, findings) = mpsc::sync_channel(FINDINGS_MAX);
        let thread = Thread {
            roots: self.roots.clone(),
            finder: Finder::new(&self.roots, self.device, shared.progress.clone()),
            shared: Arc::clone(&shared),
            omitted: Arc::clone(&self.omitted),
            found,
            bell: Arc::clone(&self.bell),
            recent: Recent::default(),
            failures: BTreeMap::new(),
            checked_closed: None,
        };
        (self.shared, self.findings) = (shared, Mutex::new(findings));
        let started = thread::Builder::new().name("va-spaces".to_owned()).spawn(move || thread.run());
        match started {
            Ok(started) => self.thread = Some(started),
            Err(error) => self.not_started = Some(format!("VA spaces are not searched for: {error}")),
        }
    }

    /// Sets the VA spaces that are counted, and replaces a search that hangs.
    pub(super) fn update(&mut self, counted: Vec<Counted>) {
        *lock(&self.shared.counted) = (counted, self.taken);
        self.hung.retain(|(_, thread)| !thread.is_finished());
        for (uid, _) in &self.hung {
            lock(&self.omitted).insert(*uid, Instant::now());
        }
        let Some((pid, uid)) = self.shared.progress.stuck(HANGS_AFTER) else { return };
        if self.hung.len() >= HUNG_MAX {
            return;
        }
        tracing::error!(pid, uid, "a search for VA spaces hangs at this process");
        self.shared.is_abandoned.store(true, Ordering::Relaxed);
        lock(&self.omitted).insert(uid, Instant::now());
        self.hung.extend(self.thread.take().map(|thread| (uid, thread)));
        self.restart();
    }

    /// Completes when there is a finding.
    pub(super) async fn ready(&self) {
        self.bell.notified().await;
    }

    /// Next finding, if there is one.
    pub(super) fn next(&mut self) -> Option<Finding> {
        let finding = self.findings.get_mut().unwrap_or_else(PoisonError::into_inner).try_recv().ok()?;
        self.taken += u64::from(matches!(finding, Finding::Found(_)));
        Some(finding)
    }

    /// Closes a VA space of a finding.
    pub(super) fn close(&self, file: OwnedFd) {
        // Without that thread, it is closed here.
        let _ = self.closing.send(file);
    }

    /// Reason why some processes are not found.
    pub(super) fn warning(&self) -> Option<String> {
        let hung = (!self.hung.is_empty()).then(|| {
            format!(
                "{} searches for VA spaces hang at processes that execute another program; those of their users are omitted until a minute after",
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
    bell: Arc<Notify>,
    recent: Recent,
    /// Failed comparisons in a row.
    failures: BTreeMap<Generation, u8>,
    checked_closed: Option<Duration>,
}

/// The collector takes no more findings.
struct Gone;

impl Thread {
    fn run(mut self) {
        loop {
            let (now, looked) = (clock::since_boot(&self.roots).unwrap_or_default(), Instant::now());
            if self.shared.is_abandoned.load(Ordering::Relaxed) || self.look(now).is_err() {
                return;
            }
            thread::sleep(CAUSES_EVERY);
            while looked.elapsed() < EVERY && !self.finder.has_cause(now + looked.elapsed()) {
                thread::sleep(CAUSES_EVERY);
            }
        }
    }

    fn send(&self, finding: Finding) -> Result<(), Gone> {
        self.found.send(finding).map_err(|_| Gone)?;
        self.bell.notify_one();
        Ok(())
    }

    /// Looks for VA spaces, at this time since boot.
    fn look(&mut self, now: Duration) -> Result<(), Gone> {
        let (counted, taken) = lock(&self.shared.counted).clone();
        if self.checked_closed.is_none_or(|last| now.saturating_sub(last) >= CLOSED_EVERY) {
            self.checked_closed = Some(now);
            self.look_for_closed(&counted, now)?;
        }
        self.recent.settle(taken, Instant::now());
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
            if found.as_ref().map_or_else(
                |error| matches!(error, UvmError::NoVaSpace(_)),
                |(found, are_settled)| found.is_empty() && *are_settled,
            ) {
                self.finder.set_without_space(&opener, now);
            }
            let has_space = match found {
                Ok((found, are_settled)) => {
                    for found in found {
                        self.recent.push((found.place, opener.pid), Instant::now());
                        self.send(Finding::Found(found))?;
                    }
                    are_settled
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

    /// VA spaces of a process that are not counted, and were not found just now; whether there are none
    /// that were, and are not counted yet, or not any more.
    fn spaces_of(&self, opener: &Opener, counted: &[Counted]) -> Result<(Vec<Found>, bool), UvmError> {
        let process = Arc::new(PidFd::open(opener.pid)?);
        if !opener.is_still(&self.roots) {
            return Err(UvmError::NoVaSpace(opener.pid));
        }
        // One that is not held yet is compared with its place in its process.
        let counted: Vec<Place> =
            counted.iter().map(|space| (space.held_at.unwrap_or(space.place), space.pid)).collect();
        let recent = self.recent.places();
        let (mut found, mut are_settled) = (Vec::new(), true);
        for va_space in VaSpace::of(&process, &self.roots)? {
            let is_at = |places: &[Place]| is_among(places, opener.pid, |place| va_space.is(place));
            let is_counted = is_at(&counted);
            let is_recent = !is_counted && is_at(&recent);
            let place = va_space.place();
            let file = OwnedFd::from(va_space);
            if is_recent {
                are_settled = false;
            } else if !is_counted {
                let (opener, process) = (opener.clone(), Arc::clone(&process));
                found.push(Found { created_after: self.finder.created_after(&opener), opener, process, place, file });
            }
        }
        Ok((found, are_settled))
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
    fn va_space_is_found_again_only_after_its_finding_was_taken() {
        let (mut recent, begun, place) = (Recent::default(), Instant::now(), ((7, 3), 7));
        recent.push(place, begun);
        recent.settle(0, begun + AGAIN_AFTER * 100);
        assert_eq!(recent.places(), [place], "the collector waits for a processor");
        recent.settle(1, begun + AGAIN_AFTER / 2);
        assert_eq!(recent.places(), [place], "it may have no room for it");
        recent.settle(1, begun + AGAIN_AFTER);
        assert_eq!(recent.places(), []);
    }

    #[test]
    fn va_space_of_an_exited_process_hides_none_of_another() {
        let exited = |_| Err(io::Error::from_raw_os_error(3));
        let places = [((7, 3), 7)];
        assert!(is_among(&places, 7, exited) && !is_among(&places, 8, exited));
        assert!(is_among(&places, 8, |place| Ok(place == (7, 3))));
    }

    #[test]
    fn user_at_whose_process_a_search_hangs_stays_omitted() {
        let (_machine, mut search) = search();
        let (end, hang) = mpsc::channel::<()>();
        let hanging = thread::spawn(move || {
            let _ = hang.recv();
        });
        search.hung.push((1000, hanging));
        lock(&search.omitted).clear();
        search.update(Vec::new());
        assert!(lock(&search.omitted).contains_key(&1000));
        drop(end);
        while !search.hung.is_empty() {
            search.update(Vec::new());
        }
        lock(&search.omitted).clear();
        search.update(Vec::new());
        assert!(!lock(&search.omitted).contains_key(&1000));
    }

    #[test]
    fn files_are_closed_while_a_search_hangs() {
        let (_machine, mut search) = search();
        search.shared.progress.begin_at(7, 1000, Instant::now().checked_sub(HANGS_AFTER * 2).unwrap());
        search.update(Vec::new());
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        search.close(here.into());
        let mut byte = [0];
        assert_eq!(io::Read::read(&mut &there, &mut byte).unwrap(), 0);
    }
}

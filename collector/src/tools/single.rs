//! Tracker of one process at a time, which counts beside the probes: one page of counters, no queue.
//!
//! Its VA space is searched for on a thread of its own, as each step of that may hang. The thread
//! also notices that the process has closed the VA space, and closes descriptors of it: the last
//! close runs the driver's teardown. Without more than one VA space at a time, none of the quotas of
//! the [tools](super) can be reached.

use std::{
    io,
    num::NonZeroUsize,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use model::ProcessId;
use sys::{
    Roots,
    executable::Program,
    pidfd::{PidFd, PidFdError},
    processes,
    trackers::{Event, Memory},
    uvm::{
        Descriptor, Uuid, UvmError, openers,
        target::VaSpace,
        tracker::{Counters, Layout},
    },
};

use super::{FIRST_GENERATION, holders::Holders};
use crate::{
    crosscheck::{Progress, Target, Tracking},
    ledger::Generation,
    refusal::Refusal,
};

/// Interval of checks whether the process has closed its VA space.
const CLOSED_EVERY: Duration = Duration::from_secs(1);
/// Page of the counters.
const PAGE: u32 = 0;

/// Tracker of one process at a time.
pub(crate) struct SingleTracker {
    roots: Roots,
    program: Program,
    /// Version of the driver.
    version: String,
    /// Started for the first process.
    holders: Option<Holders>,
    /// Number of the last VA space.
    generation: Generation,
    phase: Phase,
    search: Option<JoinHandle<()>>,
}

enum Phase {
    Idle,
    Searching(Searching),
    Held(Held),
}

struct Searching {
    uid: u32,
    link: Link,
}

/// Channels to the thread of a search, which ends when they are dropped.
struct Link {
    tasks: Sender<Task>,
    /// Behind a lock for the compiler: a receiver is not shared by threads. `None` when it is dropped.
    reports: Option<Mutex<Receiver<Report>>>,
}

/// VA space in a holder.
struct Held {
    uid: u32,
    process: PidFd,
    memory: Memory,
    /// `None` once it is being released.
    link: Option<Link>,
    is_counting: bool,
}

/// Task of a search that has found a VA space.
enum Task {
    Close(OwnedFd),
    /// Watch it: a holder has it at this place.
    Watch(Descriptor),
    /// Drop reports that were not taken, and descriptors with them.
    Drop(Receiver<Report>),
}

enum Report {
    Found {
        process: PidFd,
        file: OwnedFd,
    },
    NotFound(UvmError),
    /// It has several.
    Several,
    Closed,
}

impl SingleTracker {
    /// Tracker for a driver of this version. `program`: as that of the configuration.
    pub(crate) fn new(roots: &Roots, program: &Program, version: &str) -> Self {
        Self {
            roots: roots.clone(),
            program: program.clone(),
            version: version.to_owned(),
            holders: None,
            generation: FIRST_GENERATION,
            phase: Phase::Idle,
            search: None,
        }
    }

    /// Has a VA space that was found held and counted.
    fn hold(&mut self, uid: u32, process: PidFd, file: OwnedFd, link: Link) -> Result<(), Option<String>> {
        let asked = self.ask(uid, &process, &file);
        // Not here: it may be the last one by now, whose close runs the driver's teardown.
        let _ = link.tasks.send(Task::Close(file));
        let memory = asked?;
        self.phase = Phase::Held(Held { uid, process, memory, link: Some(link), is_counting: false });
        Ok(())
    }

    /// Asks a holder to hold and count a VA space.
    fn ask(&mut self, uid: u32, process: &PidFd, file: &OwnedFd) -> Result<Memory, Option<String>> {
        let refused = |reason: &dyn std::fmt::Display| Some(format!("processes cannot be cross-checked: {reason}"));
        let layout =
            Layout::of(&self.version).map_err(|_| refused(&Refusal::UnknownTools { version: self.version.clone() }))?;
        let holders = match &mut self.holders {
            Some(holders) => holders,
            None => self.holders.insert(Holders::start(&self.program).map_err(|refusal| refused(&refusal))?),
        };
        let memory = Memory::new(NonZeroUsize::MIN).map_err(|error| refused(&error))?;
        self.generation = self.generation.saturating_add(1);
        let generation = self.generation;
        let is_asked = holders.hold(uid, generation, |holder| {
            holder.hold(generation, file.as_fd(), process, &memory)?;
            holder.count(generation, PAGE, layout, Uuid::CPU)
        });
        if !is_asked {
            let hangs =
                || format!("the process that holds trackers of user {uid} hung, and has no successor for a minute");
            let reason = holders.warning().or_else(|| holders.hung().any(|each| each == uid).then(hangs));
            return Err(reason.and_then(|reason| refused(&reason)));
        }
        Ok(memory)
    }

    /// Goes on with a search.
    fn look_at_search(&mut self, Searching { uid, link }: Searching) -> Progress {
        let report = link.report();
        match report {
            Err(TryRecvError::Empty) => {
                self.phase = Phase::Searching(Searching { uid, link });
                Progress::Busy
            }
            Ok(Report::Found { process, file }) => match self.hold(uid, process, file, link) {
                Ok(()) => Progress::Busy,
                Err(reason) => Progress::Failed { reason },
            },
            Ok(Report::NotFound(error)) => Progress::Failed { reason: lasting(&error) },
            Ok(Report::Several | Report::Closed) | Err(TryRecvError::Disconnected) => Progress::Failed { reason: None },
        }
    }

    /// Takes the outcomes of the holders' requests.
    fn look_at_holders(&mut self) -> Progress {
        let Some(holders) = &mut self.holders else { return Progress::Idle };
        let (events, lost) = (holders.events(), holders.lost());
        let Phase::Held(held) = &mut self.phase else { return Progress::Idle };
        let mut failed = None;
        let mut has_exited = held.link.as_ref().is_some_and(|link| matches!(link.report(), Ok(Report::Closed)));
        let mut is_gone = lost.contains(&self.generation);
        for event in events {
            match event {
                Event::Held { space, place } if space == self.generation => {
                    if let Some(link) = &held.link {
                        // Without that thread, the check ends in seconds anyway.
                        let _ = link.tasks.send(Task::Watch(place));
                    }
                }
                Event::Counting { space, .. } if space == self.generation => held.is_counting = true,
                Event::Refused { space, error } if space == self.generation => failed = Some(error),
                Event::Exited { space } if space == self.generation => has_exited = true,
                Event::Released { space } if space == self.generation => is_gone = true,
                _ => {}
            }
        }
        // A holder has closed the tracker of such a process by itself.
        has_exited |= held.process.has_exited().unwrap_or_default();
        if is_gone {
            self.phase = Phase::Idle;
            return Progress::Idle;
        }
        if has_exited || failed.is_some() {
            self.end();
        }
        match (failed, &self.phase) {
            (Some(error), _) => Progress::Failed { reason: lasting(&error) },
            (None, Phase::Held(Held { is_counting: true, link: Some(_), .. })) => Progress::Counting,
            _ => Progress::Busy,
        }
    }
}

impl Tracking for SingleTracker {
    fn begin(&mut self, target: &Target) {
        let (tasks, tasks_of_thread) = mpsc::channel();
        let (reports_of_thread, reports) = mpsc::channel();
        let search = Search { roots: self.roots.clone(), process: target.process, reports: reports_of_thread };
        let run = move || search.run(&tasks_of_thread);
        match thread::Builder::new().name("crosscheck".to_owned()).spawn(run) {
            Ok(thread) => self.search = Some(thread),
            // The channels are closed, which is a failed search.
            Err(error) => tracing::warn!("no thread searches for a VA space to cross-check: {error}"),
        }
        self.phase =
            Phase::Searching(Searching { uid: target.uid, link: Link { tasks, reports: Some(Mutex::new(reports)) } });
    }

    fn look(&mut self) -> Progress {
        let progress = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Searching(searching) => self.look_at_search(searching),
            other => {
                self.phase = other;
                self.look_at_holders()
            }
        };
        // A thread that hangs has no successor.
        let has_ended = self.search.as_ref().is_none_or(JoinHandle::is_finished);
        if progress == Progress::Idle && !has_ended { Progress::Busy } else { progress }
    }

    fn read(&self) -> Option<Counters> {
        let Phase::Held(Held { process, memory, link: Some(_), is_counting: true, .. }) = &self.phase else {
            return None;
        };
        let counted = memory.page(PAGE as usize).map(Counters::of)?;
        // In this order: the tracker is open as long as the process lives.
        let lives = !process.has_exited().ok()?;
        lives.then_some(counted)
    }

    fn end(&mut self) {
        match &mut self.phase {
            Phase::Held(held) => {
                if let (Some(_), Some(holders)) = (held.link.take(), &mut self.holders) {
                    holders.release(held.uid, self.generation);
                }
            }
            Phase::Searching(_) | Phase::Idle => self.phase = Phase::Idle,
        }
    }
}

impl Link {
    fn report(&self) -> Result<Report, TryRecvError> {
        let reports = self.reports.as_ref().ok_or(TryRecvError::Disconnected)?;
        reports.lock().unwrap_or_else(PoisonError::into_inner).try_recv()
    }
}

impl Drop for Link {
    /// Leaves reports to the thread: one may have a descriptor whose close runs the driver's teardown.
    fn drop(&mut self) {
        if let Some(reports) = self.reports.take() {
            let reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
            // A thread that has ended has reported no descriptor.
            let _ = self.tasks.send(Task::Drop(reports));
        }
    }
}

/// Sentence about an error that others than this process have too; `None` for those of a process
/// that exits, or opens and closes the driver.
fn lasting(error: &UvmError) -> Option<String> {
    let is_lasting = match error {
        UvmError::Process(PidFdError::NoProcess(_) | PidFdError::NoFile { .. })
        | UvmError::NoVaSpace(_)
        | UvmError::TooMany { .. } => false,
        UvmError::Unreadable { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
        _ => true,
    };
    is_lasting.then(|| {
        format!("processes cannot be cross-checked: {error}; docs/sources.md has what the driver's tools need")
    })
}

/// Search for the VA space of a process, on a thread.
struct Search {
    roots: Roots,
    process: ProcessId,
    reports: Sender<Report>,
}

impl Search {
    /// Runs until the channels close. Reports that nobody receives are of no use.
    fn run(self, tasks: &Receiver<Task>) {
        let ProcessId { pid, .. } = self.process;
        let (report, place) = match self.find() {
            Ok(Some((process, place, file))) => (Report::Found { process, file }, Some(place)),
            Ok(None) => (Report::Several, None),
            Err(error) => (Report::NotFound(error), None),
        };
        let _ = self.reports.send(report);
        let Some(place) = place else { return };
        let mut held_at = None;
        loop {
            match tasks.recv_timeout(CLOSED_EVERY) {
                Ok(Task::Close(file)) => drop(file),
                Ok(Task::Watch(at)) => held_at = Some(at),
                Ok(Task::Drop(reports)) => drop(reports),
                Err(RecvTimeoutError::Timeout) => {
                    let is_closed =
                        held_at.is_some_and(|at| matches!(openers::place_of(&self.roots, pid, at, place), Ok(None)));
                    if is_closed && self.reports.send(Report::Closed).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The process and its only VA space; `None` if it has several.
    fn find(&self) -> Result<Option<(PidFd, Descriptor, OwnedFd)>, UvmError> {
        let ProcessId { pid, start_ticks } = self.process;
        let process = PidFd::open(pid)?;
        // From here on the id is not reused.
        let ticks = processes::start_ticks(&self.roots, pid).map_err(|source| UvmError::Unreadable { pid, source })?;
        if ticks != Some(start_ticks) {
            return Err(UvmError::NoVaSpace(pid));
        }
        let spaces: Vec<_> = VaSpace::of(&process, &self.roots)?
            .into_iter()
            .map(|space| (space.place(), OwnedFd::from(space)))
            .collect();
        let single = <[_; 1]>::try_from(spaces).ok();
        Ok(single.map(|[(place, file)]| (process, place, file)))
    }
}

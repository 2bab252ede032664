//! Searches for the rings of processes, each on a thread of its own: a process can hold its memory
//! map, and so delay whoever reads it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

use model::ProcessId;
use sys::{Roots, processes};

use crate::process::{Process, ProcessError};

/// Searches at a time, of all processes and of those of a user.
const SEARCHES_MAX: usize = 8;
const SEARCHES_OF_USER_MAX: usize = 2;
/// Searches for the ring of a process, a look apart. A program makes its ring before it opens the
/// driver, so that it is there when uvmd first sees the process.
const TRIES: u32 = 3;

/// Result of a search: the ring; `None` if there is none.
pub(crate) type Found = Result<Option<Process>, ProcessError>;

/// Process whose ring is searched for.
#[derive(Debug)]
struct Sought {
    uid: u32,
    /// Searches so far.
    tries: u32,
    /// Whether a search runs.
    is_searched: bool,
}

/// Searches for the rings of processes.
#[derive(Debug)]
pub(crate) struct Searches {
    roots: Roots,
    sought: BTreeMap<ProcessId, Sought>,
    /// Searches that run, by user: a clone for each, which its thread holds. Also those of processes
    /// that are no more.
    running: BTreeMap<u32, Arc<()>>,
    results: Receiver<(ProcessId, Found)>,
    /// For the threads of searches.
    sender: Sender<(ProcessId, Found)>,
}

impl Searches {
    pub(crate) fn new(roots: Roots) -> Self {
        let (sender, results) = mpsc::channel();
        Self { roots, sought: BTreeMap::new(), running: BTreeMap::new(), results, sender }
    }

    /// Searches for the ring of a process of a user, until there is a result.
    pub(crate) fn seek(&mut self, process: ProcessId, uid: u32) {
        self.sought.entry(process).or_insert(Sought { uid, tries: 0, is_searched: false });
    }

    /// Searches for the rings of these processes alone. The results of searches that run for others
    /// are for nobody.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&ProcessId) -> bool) {
        self.sought.retain(|process, _| is_wanted(process));
    }

    /// Starts the searches that there is room for.
    pub(crate) fn start(&mut self) {
        let Self { roots, sought, running, sender, .. } = self;
        running.retain(|_, running| Arc::strong_count(running) > 1);
        let mut all: usize = running.values().map(|running| Arc::strong_count(running) - 1).sum();
        for (process, Sought { uid, tries, is_searched }) in sought {
            let of_user = running.entry(*uid).or_default();
            if *is_searched || all >= SEARCHES_MAX || Arc::strong_count(of_user) > SEARCHES_OF_USER_MAX {
                continue;
            }
            let (roots, process, sender, running) = (roots.clone(), *process, sender.clone(), Arc::clone(of_user));
            let search = move || {
                // Nobody takes it after the end.
                let _ = sender.send((process, find(&roots, process)));
                drop(running);
            };
            if thread::Builder::new().name("recorder-find".to_owned()).spawn(search).is_ok() {
                (*is_searched, *tries) = (true, *tries + 1);
                all += 1;
            }
        }
    }

    /// Next result, with its process and user.
    pub(crate) fn take(&mut self) -> Option<(ProcessId, u32, Found)> {
        while let Ok((process, found)) = self.results.try_recv() {
            let Some(sought @ Sought { is_searched: true, .. }) = self.sought.get_mut(&process) else { continue };
            // A helper that is just making its ring has no header yet.
            if sought.tries < TRIES && !matches!(found, Ok(Some(_))) {
                sought.is_searched = false;
                continue;
            }
            let uid = sought.uid;
            self.sought.remove(&process);
            return Some((process, uid, found));
        }
        None
    }
}

/// Ring of this process, and not of a later one with its pid.
fn find(roots: &Roots, process: ProcessId) -> Found {
    // Of a process whose first thread has ended, only the others have a memory map.
    let thread = processes::live_thread(roots, process.pid).ok().flatten().unwrap_or(process.pid);
    let found = Process::find(roots, thread)?;
    let is_same = processes::start_ticks(roots, process.pid).is_ok_and(|ticks| ticks == Some(process.start_ticks));
    Ok(found.filter(|_| is_same))
}

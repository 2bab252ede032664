//! Choice of processes with series, which have to be enabled and are limited: series of every
//! process that ever ran would overload a database.
//!
//! A series that came and went with its process's rank would be unreadable. So a process keeps its
//! series until it is forgotten, or until it has exited and a busier process needs the place.

use std::{cmp::Reverse, collections::BTreeMap};

use model::{Process, ProcessId, Snapshot};

use crate::convert::busyness;

/// Processes with series, from one scrape to the next.
#[derive(Debug, Default)]
pub(crate) struct Listed(BTreeMap<ProcessId, [String; 3]>);

/// Processes with series in one scrape.
pub(super) struct Listing<'a> {
    /// Processes with the values of `pid`, `process` and `cgroup`.
    pub(super) processes: Vec<(&'a Process, [String; 3])>,
    /// Running processes with counts, but without series for want of room.
    pub(super) omitted: usize,
}

impl Listed {
    /// Chooses the processes of a scrape: those with series keep them; others get series by their
    /// sums, up to `max` in all.
    pub(super) fn choose<'a>(&mut self, snapshot: &'a Snapshot, max: usize) -> Listing<'a> {
        let processes = latest(snapshot);
        let exited_at = |id: &ProcessId| processes.get(id).and_then(|process| process.exited_at);
        self.0.retain(|id, _| processes.contains_key(id));

        let mut others: Vec<_> = processes
            .values()
            .filter(|process| process.exited_at.is_none() && !self.0.contains_key(&process.id))
            .map(|process| (Reverse(busyness(process.gpus.values().chain([&process.host]))), *process))
            .filter(|(busyness, _)| busyness.0 > 0)
            .collect();
        others.sort_by_key(|(busyness, process)| (*busyness, process.id));
        let mut omitted = others.len();
        for (_, process) in others {
            if self.0.len() >= max {
                let first_exited = self.0.keys().filter_map(|id| Some((exited_at(id)?, *id))).min();
                let Some((_, id)) = first_exited else { break };
                self.0.remove(&id);
            }
            self.0.insert(process.id, names(process));
            omitted -= 1;
        }
        let listed = self.0.iter().filter_map(|(id, names)| Some((*processes.get(id)?, names.clone())));
        Listing { processes: listed.collect(), omitted }
    }
}

/// The latest process of each pid: labels have the pid only.
fn latest(snapshot: &Snapshot) -> BTreeMap<ProcessId, &Process> {
    let mut latest: BTreeMap<u32, &Process> = BTreeMap::new();
    for process in &snapshot.processes {
        let known = latest.entry(process.id.pid).or_insert(process);
        if known.id < process.id {
            *known = process;
        }
    }
    latest.into_values().map(|process| (process.id, process)).collect()
}

/// Values of `pid`, `process` and `cgroup`.
fn names(process: &Process) -> [String; 3] {
    let cgroup = process.cgroup.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    [process.id.pid.to_string(), process.name.clone(), cgroup]
}

//! Which processes have series of their own. Only on request, and only so many: a series for every process that ever ran would swamp a database.
//!
//! A series that comes and goes with its process's rank could not be read. So who has one keeps it until its process is forgotten, or has ended
//! and a busier one needs the room.

use std::{cmp::Reverse, collections::BTreeMap};

use model::{Process, ProcessId, Snapshot};

use crate::convert::busyness;

/// Those who have series, from one scrape to the next.
#[derive(Debug, Default)]
pub(crate) struct Listed(BTreeMap<ProcessId, [String; 3]>);

/// Those who have series in one scrape.
pub(super) struct Listing<'a> {
    /// With the values of `pid`, `process` and `cgroup`.
    pub(super) processes: Vec<(&'a Process, [String; 3])>,
    /// Living processes with counts that have none, for want of room.
    pub(super) left_out: usize,
}

impl Listed {
    /// Chooses those of a snapshot: whoever had series has them still; the others by what they did in all, until there are `max`.
    pub(super) fn choose<'a>(&mut self, snapshot: &'a Snapshot, max: usize) -> Listing<'a> {
        let processes = latest(snapshot);
        let ended = |id: &ProcessId| processes.get(id).and_then(|process| process.exited_at);
        self.0.retain(|id, _| processes.contains_key(id));

        let mut others: Vec<_> = processes
            .values()
            .filter(|process| process.exited_at.is_none() && !self.0.contains_key(&process.id))
            .map(|process| (Reverse(busyness(process.gpus.values().chain([&process.host]))), *process))
            .filter(|(busyness, _)| busyness.0 > 0)
            .collect();
        others.sort_by_key(|(busyness, process)| (*busyness, process.id));
        let mut left_out = others.len();
        for (_, process) in others {
            if self.0.len() >= max {
                let first_ended = self.0.keys().filter_map(|id| Some((ended(id)?, *id))).min();
                let Some((_, id)) = first_ended else { break };
                self.0.remove(&id);
            }
            self.0.insert(process.id, names(process));
            left_out -= 1;
        }
        let listed = self.0.iter().filter_map(|(id, names)| Some((*processes.get(id)?, names.clone())));
        Listing { processes: listed.collect(), left_out }
    }
}

/// Of the processes that had the same pid the latest: labels name the pid alone.
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

/// The values of `pid`, `process` and `cgroup`.
fn names(process: &Process) -> [String; 3] {
    let cgroup = process.cgroup.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    [process.id.pid.to_string(), process.name.clone(), cgroup]
}

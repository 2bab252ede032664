//! What was counted, by VA space and process. No I/O: the collector feeds it what the probes and /proc say.
//!
//! A VA space's counts are absolute and belong to its process, which may have several. When it is gone they are folded into the process; when
//! the process is forgotten, into the totals. So every sum only grows; but what is pending, as its GPU is not known yet, moves there once it is.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, SystemTime},
};

use abi::{CountKey, Kind, Tally};
use gpu_ids::GpuIds;
use model::{Access, Blocks, Cause, Counters, GpuKey, Process, ProcessId};

use crate::{
    gpus::Links,
    identity::{Identity, Sighting},
};

mod gpu_ids;

/// Of a VA space: given by the probes, never twice.
pub(crate) type Generation = u64;

/// Counters of GPUs, and of the host, which belongs to none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) host: Counters,
    pub(crate) gpus: BTreeMap<GpuKey, Counters>,
}

#[derive(Debug, Default)]
struct Space {
    /// Unknown if the record of its making was lost.
    process: Option<ProcessId>,
    tallies: HashMap<CountKey, Tally>,
    gpu_ids: GpuIds,
    /// Its events for which there was no room.
    lost_events: u64,
    destroyed: bool,
}

#[derive(Debug)]
struct Entry {
    identity: Identity,
    /// What its destroyed VA spaces had counted.
    past: Counts,
    /// How many VA spaces it has.
    living: usize,
    ended: Option<SystemTime>,
    presence: Presence,
}

/// The last that /proc said for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Here,
    Gone,
    /// Nothing yet.
    Unknown,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Ledger {
    spaces: HashMap<Generation, Space>,
    processes: BTreeMap<ProcessId, Entry>,
    /// What forgotten processes had, and VA spaces that no process is known for.
    past: Counts,
    retention: Duration,
    ended_max: usize,
}

impl Ledger {
    /// Keeps processes for `retention` after their end, and at most `ended_max` ended ones; those that are still there and only gave up
    /// their VA spaces beyond that, as they may come again and their counts must not go back.
    pub(crate) fn new(retention: Duration, ended_max: usize) -> Self {
        Self { spaces: HashMap::new(), processes: BTreeMap::new(), past: Counts::default(), retention, ended_max }
    }

    /// A process made a VA space.
    pub(crate) fn registered(&mut self, generation: Generation, process: ProcessId, identity: Identity) {
        let space = self.spaces.entry(generation).or_default();
        space.process = Some(process);
        let entry = self.processes.entry(process).or_insert_with(|| Entry {
            identity: identity.clone(),
            past: Counts::default(),
            living: 0,
            ended: None,
            presence: Presence::Unknown,
        });
        entry.identify(identity);
        entry.living += 1;
        entry.ended = None;
        if entry.presence == Presence::Gone {
            entry.presence = Presence::Unknown;
        }
    }

    /// A VA space is gone. Its counts are final at the next reading, which then ends in [`Self::close`].
    pub(crate) fn destroyed(&mut self, generation: Generation, lost_events: u64, now: SystemTime) {
        let space = self.spaces.entry(generation).or_default();
        space.lost_events = space.lost_events.max(lost_events);
        if std::mem::replace(&mut space.destroyed, true) {
            return;
        }
        if let Some(entry) = space.process.and_then(|process| self.processes.get_mut(&process)) {
            entry.living = entry.living.saturating_sub(1);
            if entry.living == 0 {
                entry.ended.get_or_insert(now);
            }
        }
    }

    /// VA spaces that are gone and whose counts are still to be read for the last time.
    pub(crate) fn closing(&self) -> Vec<Generation> {
        self.spaces.iter().filter(|(_, space)| space.destroyed).map(|(generation, _)| *generation).collect()
    }

    /// VA spaces that are not gone, as far as was told.
    pub(crate) fn open(&self) -> Vec<Generation> {
        self.spaces.iter().filter(|(_, space)| !space.destroyed).map(|(generation, _)| *generation).collect()
    }

    /// What a VA space has counted so far under one key.
    pub(crate) fn count(&mut self, key: CountKey, tally: Tally) {
        let space = self.spaces.entry(key.generation).or_default();
        space.gpu_ids.counted(key.gpu);
        space.tallies.insert(key, tally);
    }

    /// Which GPUs the driver shows now. Must have been read after the counts, and before it was seen which VA spaces are gone: an id that a
    /// living one uses cannot have changed hands.
    pub(crate) fn shown(&mut self, links: &Arc<Links>) {
        for space in self.spaces.values_mut().filter(|space| !space.destroyed) {
            space.gpu_ids.look(links);
        }
    }

    /// How many events of a VA space could not be counted so far.
    pub(crate) fn lost(&mut self, generation: Generation, events: u64) {
        let space = self.spaces.entry(generation).or_default();
        space.lost_events = space.lost_events.max(events);
    }

    /// Folds a VA space into its process.
    pub(crate) fn close(&mut self, generation: Generation) {
        let Some(mut space) = self.spaces.remove(&generation) else { return };
        space.gpu_ids.settle();
        let past = match space.process.and_then(|process| self.processes.get_mut(&process)) {
            Some(entry) => &mut entry.past,
            None => &mut self.past,
        };
        past.add_space(&space);
    }

    /// Drops what the VA spaces that are not yet folded have counted: it turned out to be wrong.
    pub(crate) fn discard(&mut self) {
        for space in self.spaces.values_mut() {
            space.tallies.clear();
        }
    }

    /// Folds all VA spaces, as the probes are gone. With `ended`, so is the driver, and every VA space with it.
    pub(crate) fn close_all(&mut self, ended: Option<SystemTime>) {
        let generations: Vec<_> = self.spaces.keys().copied().collect();
        for generation in generations {
            if let Some(now) = ended {
                self.destroyed(generation, 0, now);
            }
            self.close(generation);
        }
        for entry in self.processes.values_mut() {
            entry.living = 0;
        }
    }

    /// Processes that are not gone, as far as is known, whether or not they have a VA space.
    pub(crate) fn present(&self) -> Vec<ProcessId> {
        let present = self.processes.iter().filter(|(_, entry)| entry.presence != Presence::Gone);
        present.map(|(process, _)| *process).collect()
    }

    /// What /proc says of a process now. If it is gone, its VA space may live on: descriptors can be passed to others.
    pub(crate) fn seen(&mut self, process: ProcessId, sighting: Sighting, now: SystemTime) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        match sighting {
            Sighting::Here(identity) => {
                entry.presence = Presence::Here;
                entry.identify(identity);
            }
            Sighting::Gone => {
                entry.presence = Presence::Gone;
                entry.ended.get_or_insert(now);
            }
            Sighting::Unknown => {}
        }
    }

    /// Forgets processes that ended long ago, and the oldest of those that are too many.
    pub(crate) fn forget(&mut self, now: SystemTime) {
        let forgettable = self.processes.iter().filter(|(_, entry)| entry.presence != Presence::Here);
        let mut ended: Vec<_> = forgettable.filter_map(|(process, entry)| Some((entry.ended?, *process))).collect();
        ended.sort_unstable();
        let too_many = ended.len().saturating_sub(self.ended_max);
        for (at, (when, process)) in ended.into_iter().enumerate() {
            // A clock set back makes a process stay longer, not forever: the number is bounded.
            let is_old = now.duration_since(when).is_ok_and(|age| age >= self.retention);
            if (is_old || at < too_many)
                && let Some(entry) = self.processes.remove(&process)
            {
                self.past.add(&entry.past);
                for space in self.spaces.values_mut().filter(|space| space.process == Some(process)) {
                    space.process = None;
                }
            }
        }
    }

    /// Every process, with what it and its VA spaces counted, and the sums over all processes ever seen.
    pub(crate) fn totals(&self, user: impl Fn(u32) -> Option<String>) -> (Vec<Process>, Counts) {
        let mut counts: BTreeMap<ProcessId, Counts> =
            self.processes.iter().map(|(process, entry)| (*process, entry.past.clone())).collect();
        let mut totals = self.past.clone();
        for space in self.spaces.values() {
            match space.process.and_then(|process| counts.get_mut(&process)) {
                Some(counts) => counts.add_space(space),
                None => totals.add_space(space),
            }
        }
        let processes = counts
            .into_iter()
            .filter_map(|(id, counts)| {
                totals.add(&counts);
                let Entry { identity, ended, .. } = self.processes.get(&id)?;
                let Identity { name, uid, cgroup, started } = identity.clone();
                let Counts { host, gpus } = counts;
                Some(Process {
                    id,
                    started,
                    name,
                    uid,
                    user: user(uid),
                    cgroup,
                    ended: *ended,
                    host,
                    gpus,
                    managed_bytes: None,
                    blocks: Blocks::default(),
                })
            })
            .collect();
        (processes, totals)
    }
}

impl Entry {
    /// Keeps the start as it was told first: when the clock is set, it does not move.
    fn identify(&mut self, identity: Identity) {
        let started = self.identity.started.or(identity.started);
        self.identity = Identity { started, ..identity };
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.host += &other.host;
        for (gpu, counters) in &other.gpus {
            *self.gpus.entry(*gpu).or_default() += counters;
        }
    }

    fn add_space(&mut self, space: &Space) {
        self.host.dropped_events = self.host.dropped_events.saturating_add(space.lost_events);
        for (key, tally) in &space.tallies {
            self.add_tally(key, space.gpu_ids.key(key.gpu), *tally);
        }
    }

    fn add_tally(&mut self, key: &CountKey, gpu: GpuKey, Tally { events, amount }: Tally) {
        let Some(kind) = Kind::from_index(key.kind.into()) else { return };
        let counters = match kind {
            Kind::CpuFault => &mut self.host,
            _ => self.gpus.entry(gpu).or_default(),
        };
        let add = |counter: &mut u64, value: u64| *counter = counter.saturating_add(value);
        match kind {
            Kind::GpuFault | Kind::GpuFaultDuplicate => {
                if let Some(access) = Access::ALL.get(usize::from(key.detail)) {
                    add(&mut counters.fault_entries[*access], events);
                    add(&mut counters.fault_instances[*access], amount);
                }
            }
            Kind::CpuFault if key.detail == 0 => add(&mut counters.cpu_read_faults, events),
            Kind::CpuFault => add(&mut counters.cpu_write_faults, events),
            Kind::CopyHtod => add(&mut counters.bytes_htod[cause(key.detail)], amount),
            Kind::CopyDtoh => add(&mut counters.bytes_dtoh[cause(key.detail)], amount),
            Kind::CopyDtod => add(&mut counters.bytes_dtod[cause(key.detail)], amount),
        }
    }
}

/// The driver's `uvm_make_resident_cause_t`.
const fn cause(number: u16) -> Cause {
    match number {
        // Replayable and non-replayable; faults of CPUs are among the former.
        0 | 1 => Cause::Fault,
        2 => Cause::AccessCounter,
        3 => Cause::TreePrefetch,
        4 => Cause::Eviction,
        // Tools, migrate, range groups, hints.
        5..=8 => Cause::Api,
        _ => Cause::Other,
    }
}

#[cfg(test)]
mod tests;

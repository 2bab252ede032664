//! Ledger of counts, by VA space and process. No I/O: the collector feeds it with data of the probes and /proc.
//!
//! A VA space's counts are absolute and belong to its process, which may have several. When it is gone they are folded into the process; when
//! the process is forgotten, into the totals. So every sum only grows; but what is pending, as its GPU is not known yet, moves there once it is.
//!
//! * `memory`: what is about single blocks of memory, kept by `blocks` and `pattern`; `bounds`: how much of it
//! * `evictions`: who pushed whose memory out; `owners`: sums by owner
//! * `counts`, `tally`, `gpu_ids`: what a count means, and of which GPU it is
//! * `closing`: the end of VA spaces and processes
//! * `totals`: what is told of all that

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, SystemTime},
};

use abi::{
    CountKey, Tally,
    count::{EvictionKey, RecordLosses},
};
use blocks::BlockMap;
pub(crate) use counts::Counts;
use evictions::Evictions;
use gpu_ids::GpuIds;
use model::{GpuKey, OwnerKey, Party, ProcessId};
use owners::{Owners, ProcessShare, SpaceShare};
use tally::cause;

use crate::{
    BlockLimits, OwnerLimits, Retention,
    gpus::Links,
    identity::{Identity, Sighting},
};

mod blocks;
mod bounds;
mod closing;
mod counts;
mod evictions;
mod gpu_ids;
mod memory;
mod owners;
mod pattern;
mod tally;
mod totals;

/// Number of a VA space: given by the probes, never twice.
pub(crate) type Generation = u64;
/// Counts of a GPU without a VA space that names it.
const NOBODYS: Generation = 0;

/// Events of a VA space that were not counted or written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    /// Events for which there was no room.
    pub(crate) events: u64,
    /// Block records.
    pub(crate) records: RecordLosses,
}

impl Losses {
    /// Sum of two VA spaces.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self { events: self.events.saturating_add(other.events), records: sum(self.records, other.records) }
    }
}

const fn sum(one: RecordLosses, other: RecordLosses) -> RecordLosses {
    RecordLosses {
        sampled_out: one.sampled_out.saturating_add(other.sampled_out),
        dropped: one.dropped.saturating_add(other.dropped),
        stale: one.stale.saturating_add(other.stale),
    }
}

#[derive(Debug, Default)]
struct Space {
    /// Unknown if the record of its making was lost.
    process: Option<ProcessId>,
    tallies: HashMap<CountKey, Tally>,
    gpu_ids: GpuIds,
    /// Its events for which there was no room.
    dropped_events: u64,
    /// Its block records that were not written.
    records: RecordLosses,
    destroyed: bool,
    /// Owner of the counts.
    share: SpaceShare,
}

#[derive(Debug)]
struct Entry {
    identity: Identity,
    /// Counts of its destroyed VA spaces.
    past: Counts,
    /// Number of its VA spaces.
    living: usize,
    ended: Option<SystemTime>,
    presence: Presence,
    managed_bytes: Option<u64>,
    command_line: Option<String>,
    blocks: BlockMap,
    /// Whether it had a VA space before the probes were there.
    is_adopted: bool,
    /// Block records of its destroyed VA spaces that were not written.
    past_records: RecordLosses,
    /// Owner of the counts.
    share: ProcessShare,
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
    /// Counts of forgotten processes, and of VA spaces of unknown processes.
    past: Counts,
    owners: Owners,
    evictions: Evictions,
    limits: Limits,
    /// Page size of this kernel, the unit of residency in records.
    page_bytes: u64,
}

/// Limits of retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Processes, for so long after their end.
    pub(crate) retention: Duration,
    /// Ended processes, at most.
    pub(crate) max_ended: usize,
    /// Blocks.
    pub(crate) blocks: BlockLimits,
    /// Owners.
    pub(crate) owners: OwnerLimits,
}

impl Ledger {
    /// Processes that are still there and only gave up their VA spaces are kept beyond the limits, as they may come again and their counts must not
    /// go back.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            spaces: HashMap::new(),
            processes: BTreeMap::new(),
            past: Counts::default(),
            owners: Owners::new(limits.owners),
            evictions: Evictions::default(),
            limits,
            page_bytes: procfs::page_size(),
        }
    }

    /// So much is kept from now on. What is kept beyond that goes as it would have gone: a process at the next look, an owner when it is idle.
    pub(crate) fn retain(&mut self, retention: Retention) {
        let Retention { ended_retention, max_ended, owners } = retention;
        self.limits = Limits { retention: ended_retention, max_ended, owners, ..self.limits };
        self.owners.retain(owners);
    }

    /// A process made a VA space.
    pub(crate) fn registered(&mut self, generation: Generation, process: ProcessId, identity: Identity) {
        let space = self.spaces.entry(generation).or_default();
        space.process = Some(process);
        let owner = identity.owner.key();
        let account = self.owners.admit(&owner, identity.uid);
        let entry = self.processes.entry(process).or_insert_with(|| Entry {
            identity: identity.clone(),
            past: Counts::default(),
            living: 0,
            ended: None,
            presence: Presence::Unknown,
            managed_bytes: None,
            command_line: None,
            blocks: BlockMap::default(),
            is_adopted: false,
            past_records: RecordLosses::default(),
            share: ProcessShare::new(owner, &account),
        });
        entry.identify(identity);
        if space.tallies.is_empty() {
            space.share = entry.share.share();
        }
        entry.living += 1;
        entry.ended = None;
        if entry.presence == Presence::Gone {
            entry.presence = Presence::Unknown;
        }
    }

    /// A VA space is gone. Its counts are final at the next reading, which then ends in [`Self::close`].
    pub(crate) fn destroyed(&mut self, generation: Generation, losses: Losses, now: SystemTime) {
        self.lost(generation, losses);
        let space = self.spaces.entry(generation).or_default();
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
        let open = self.spaces.iter().filter(|(generation, space)| !space.destroyed && **generation != NOBODYS);
        open.map(|(generation, _)| *generation).collect()
    }

    /// Sets the cumulative counts of a VA space under one key.
    pub(crate) fn count(&mut self, key: CountKey, tally: Tally) {
        let space = self.spaces.entry(key.generation).or_default();
        space.gpu_ids.counted(key.gpu);
        if space.tallies.insert(key, tally) != Some(tally) {
            space.share.is_active = true;
        }
    }

    /// Sets the cumulative evictions of one VA space's memory for another.
    pub(crate) fn evicted(&mut self, key: EvictionKey, tally: Tally) {
        for generation in [key.victim, key.evictor] {
            self.spaces.entry(generation).or_default().gpu_ids.counted(key.gpu);
        }
        self.evictions.count(key, tally);
    }

    /// Which GPUs the driver shows now. Must have been read after the counts, and before it was seen which VA spaces are gone: an id that a
    /// living one uses cannot have changed hands.
    pub(crate) fn shown(&mut self, links: &Arc<Links>) {
        for space in self.spaces.values_mut().filter(|space| !space.destroyed) {
            space.gpu_ids.look(links);
        }
    }

    /// Sets the cumulative events of a VA space that were not counted or written.
    pub(crate) fn lost(&mut self, generation: Generation, losses: Losses) {
        let space = self.spaces.entry(generation).or_default();
        space.dropped_events = space.dropped_events.max(losses.events);
        space.records = RecordLosses {
            sampled_out: space.records.sampled_out.max(losses.records.sampled_out),
            dropped: space.records.dropped.max(losses.records.dropped),
            stale: space.records.stale.max(losses.records.stale),
        };
    }

    /// Identity of a process, if known.
    pub(crate) fn identity(&self, process: ProcessId) -> Option<&Identity> {
        self.processes.get(&process).map(|entry| &entry.identity)
    }

    /// Whether this is a VA space that is known and not gone.
    pub(crate) fn is_open(&self, generation: Generation) -> bool {
        self.spaces.get(&generation).is_some_and(|space| !space.destroyed)
    }

    /// The name that a process has.
    pub(crate) fn name(&self, process: ProcessId) -> Option<&str> {
        self.processes.get(&process).map(|entry| entry.identity.name.as_str())
    }

    /// Sets the command line of a process.
    pub(crate) fn runs(&mut self, process: ProcessId, command_line: String) {
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.command_line = Some(command_line);
        }
    }

    /// Processes that are not gone, as far as is known, whether or not they have a VA space.
    pub(crate) fn present(&self) -> Vec<ProcessId> {
        let present = self.processes.iter().filter(|(_, entry)| entry.presence != Presence::Gone);
        present.map(|(process, _)| *process).collect()
    }

    /// Sets the current state of a process. If it is gone, its VA space may live on: descriptors can be passed to others.
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
}

/// Where to count what was counted under an id of a VA space.
fn gpu(spaces: &HashMap<Generation, Space>, generation: Generation, id: u32) -> GpuKey {
    spaces.get(&generation).map_or(GpuKey::Unknown(id), |space| space.gpu_ids.key(id))
}

/// Owner of a VA space.
fn party(processes: &BTreeMap<ProcessId, Entry>, space: Option<&Space>) -> Party {
    let process = space.and_then(|space| space.process).filter(|process| processes.contains_key(process));
    process.map_or(Party::Unknown, Party::Process)
}

/// Process that a VA space counts for; `None` if unknown.
fn owner(space: Option<&Space>) -> Option<OwnerKey> {
    space.filter(|space| space.process.is_some()).map(|space| space.share.account.clone())
}

impl Entry {
    /// Keeps the start as it was told first: when the clock is set, it does not move.
    fn identify(&mut self, identity: Identity) {
        let started = self.identity.started.or(identity.started);
        self.share.wanted = identity.owner.key();
        self.identity = Identity { started, ..identity };
    }
}

#[cfg(test)]
mod tests;

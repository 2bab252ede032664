//! Ledger of counts, by VA space and process. No I/O: the collector feeds it with data of the
//! probes and /proc.
//!
//! Counts of a VA space are absolute and belong to its process, which may have several. When the VA
//! space is destroyed they are added to the process; when the process is forgotten, to the totals.
//! Every sum is therefore monotonic, except that counts of an unknown GPU move to the GPU once it
//! is known.
//!
//! * `memory`: data of single blocks, in `blocks` and `pattern`; `bounds`: their limits
//! * `evictions`: evictions by victim and evictor; `owners`: sums by owner
//! * `sites`: instructions that raise CPU faults
//! * `counts`, `tally`, `gpu_ids`: meaning of a count, and its GPU
//! * `growth`: growth of managed memory
//! * `closing`: the end of VA spaces and processes
//! * `totals`: totals for a snapshot; `single`: those of one VA space

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
use growth::Growth;
use model::{GpuKey, OwnerKey, Party, ProcessId};
use owners::{Owners, ProcessShare, SpaceShare};
use sites::{CountsBySite, SitesOfProcess};
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
mod growth;
mod memory;
mod owners;
mod pattern;
mod single;
mod sites;
mod tally;
mod totals;

/// Number of a VA space: assigned by the probes, never reused.
pub(crate) type Generation = u64;
/// Counts of a GPU without a VA space that names it.
const NO_SPACE: Generation = 0;

/// Events of a VA space that were not counted or written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    /// Events without room in the counts.
    pub(crate) events: u64,
    /// Losses of block records.
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
    /// Process; unknown if the record of its creation was dropped.
    process: Option<ProcessId>,
    tallies: HashMap<CountKey, Tally>,
    gpu_ids: GpuIds,
    sites: CountsBySite,
    /// Its events without room in the counts.
    dropped_events: u64,
    /// Its losses of block records.
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
    managed_growth: Growth,
    command_line: Option<String>,
    blocks: BlockMap,
    sites: SitesOfProcess,
    /// When the last VA space was found that it had before the source counted.
    counted_from: Option<SystemTime>,
    /// Losses of block records of its destroyed VA spaces.
    past_records: RecordLosses,
    /// Owner of the counts.
    share: ProcessShare,
}

/// Last certain state in /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Here,
    Gone,
    /// No state yet.
    Unknown,
}

/// Ledger of a node.
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
    /// Retention of exited processes.
    pub(crate) retention: Duration,
    /// Maximum of exited processes.
    pub(crate) max_ended: usize,
    /// Maxima of blocks and ranges.
    pub(crate) blocks: BlockLimits,
    /// Limits of owners.
    pub(crate) owners: OwnerLimits,
}

impl Ledger {
    /// Creates a ledger. Live processes without VA spaces are retained beyond the limits, as they
    /// may create more, and their counts must not decrease.
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

    /// Sets the limits of retention. Excess entries are removed in the regular way: a process at
    /// the next check, an owner when it is idle.
    pub(crate) fn retain(&mut self, retention: Retention) {
        let Retention { ended_retention, max_ended, owners } = retention;
        self.limits = Limits { retention: ended_retention, max_ended, owners, ..self.limits };
        self.owners.retain(owners);
    }

    /// Adds a VA space of a process.
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
            managed_growth: Growth::default(),
            command_line: None,
            blocks: BlockMap::with_returns(self.limits.blocks.returns_of_process),
            sites: SitesOfProcess::default(),
            counted_from: None,
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

    /// Marks a VA space as destroyed. Its counts are final at the next reading, which then ends in
    /// [`Self::close`].
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

    /// Destroyed VA spaces whose counts are still to be read for the last time.
    pub(crate) fn closing(&self) -> Vec<Generation> {
        self.spaces.iter().filter(|(_, space)| space.destroyed).map(|(generation, _)| *generation).collect()
    }

    /// VA spaces that are not destroyed, by the records.
    pub(crate) fn open(&self) -> Vec<Generation> {
        let open = self.spaces.iter().filter(|(generation, space)| !space.destroyed && **generation != NO_SPACE);
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

    /// Sets the GPUs that the driver lists now. To be read after the counts, and before the check
    /// for destroyed VA spaces: an id in use by a live one cannot have changed its GPU.
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

    /// Whether this VA space is known and not destroyed.
    pub(crate) fn is_open(&self, generation: Generation) -> bool {
        self.spaces.get(&generation).is_some_and(|space| !space.destroyed)
    }

    /// Name of a process.
    pub(crate) fn name(&self, process: ProcessId) -> Option<&str> {
        self.processes.get(&process).map(|entry| entry.identity.name.as_str())
    }

    /// Sets the command line of a process.
    pub(crate) fn runs(&mut self, process: ProcessId, command_line: String) {
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.command_line = Some(command_line);
        }
    }

    /// Live processes, as far as known, with or without a VA space.
    pub(crate) fn present(&self) -> Vec<ProcessId> {
        let present = self.processes.iter().filter(|(_, entry)| entry.presence != Presence::Gone);
        present.map(|(process, _)| *process).collect()
    }

    /// Sets the current state of a process. Its VA space may outlive it, as descriptors can be
    /// passed to others.
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

/// GPU under which counts of a VA space's id belong.
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
    /// Retains the start time as first reported: it does not move when the clock is set.
    fn identify(&mut self, identity: Identity) {
        let started = self.identity.started.or(identity.started);
        self.share.wanted = identity.owner.key();
        self.identity = Identity { started, ..identity };
    }
}

#[cfg(test)]
mod tests;

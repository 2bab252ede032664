//! Evictions by victim and evictor.
//!
//! The probes tell it by VA space. When one of the two is gone, what they had is kept by process; when the process is forgotten, under
//! [`Party::Forgotten`]. So sums only grow. As the pairs grow with the square of the processes, their number is bounded: beyond it the smallest of
//! those that were kept go to [`Party::Forgotten`] too.
//!
//! By owner there are sums of their own, to which each reading adds what is new: [`by_owner`].

mod by_owner;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use abi::{Tally, count::EvictionKey};
use by_owner::{ByOwner, OwnerPair};
use model::{EvictionCause, EvictionPair, GpuKey, OwnerEvictions, OwnerKey, Party, ProcessId};

use super::Generation;

/// Maximum of pairs of VA spaces that are gone, with some 100 bytes each.
const PAST_MAX: usize = 4096;
/// The part of them that makes room at once, so that it is seldom looked for the smallest.
const ROOM: usize = 8;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    living: HashMap<EvictionKey, Counted>,
    past: BTreeMap<Pair, Tally>,
    by_owner: ByOwner,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Absolute, as the probes have it.
    tally: Tally,
    /// Part that is in the owners' sums.
    of_owners: Tally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    gpu: GpuKey,
    victim: Party,
    evictor: Party,
    cause: EvictionCause,
}

impl Pair {
    /// Key that merged pairs are summed under.
    const fn forgotten(self) -> Self {
        Self { victim: Party::Forgotten, evictor: Party::Forgotten, ..self }
    }
}

impl Evictions {
    /// Sets the cumulative counts under one key.
    pub(super) fn count(&mut self, key: EvictionKey, tally: Tally) {
        self.living.entry(key).or_default().tally = tally;
    }

    /// A VA space is gone, and was read for the last time. `party` and `owner`: whose a VA space is; `gpu`: which GPU it knows by an id.
    pub(super) fn close(
        &mut self,
        generation: Generation,
        party: impl Fn(Generation) -> Party,
        owner: impl Fn(Generation) -> Option<OwnerKey>,
        gpu: impl Fn(Generation, u32) -> GpuKey,
    ) {
        let final_ones = self.living.extract_if(|key, _| key.victim == generation || key.evictor == generation);
        for (key, counted) in final_ones {
            let pair = match pair(&key, &party, &gpu) {
                // Nothing more will be learned of it.
                Pair { gpu: GpuKey::Pending(id), .. } => Pair { gpu: GpuKey::Unknown(id), ..pair(&key, &party, &gpu) },
                settled => settled,
            };
            add(self.past.entry(pair).or_default(), counted.tally);
            if let Some(new) = counted.new_for_owners() {
                self.by_owner.add(owner_pair(&key, pair.gpu, &owner), new);
            }
        }
        self.bound(PAST_MAX);
    }

    /// Makes room where there are more than `max` pairs of VA spaces that are gone. Sums by GPU and cause stay as they are.
    fn bound(&mut self, max: usize) {
        if self.past.len() <= max {
            return;
        }
        let is_apart = |pair: &&Pair| **pair != pair.forgotten();
        let mut pairs: Vec<_> = self.past.keys().filter(is_apart).copied().collect();
        let size = |pair: &Pair| self.past.get(pair).map_or((0, 0), |tally| (tally.amount, tally.events));
        pairs.sort_by_cached_key(size);
        let too_many = self.past.len() - (max - max / ROOM);
        for pair in pairs.into_iter().take(too_many) {
            if let Some(tally) = self.past.remove(&pair) {
                add(self.past.entry(pair.forgotten()).or_default(), tally);
            }
        }
    }

    /// Adds what is new to the sums of owners, where it is known on which GPU it was. After each reading; `pairs_max`: how many pairs have room; the
    /// other arguments are as of [`Self::close`].
    pub(super) fn settle_owners(
        &mut self,
        pairs_max: usize,
        user: impl Fn(&OwnerKey) -> Option<u32>,
        owner: impl Fn(Generation) -> Option<OwnerKey>,
        gpu: impl Fn(Generation, u32) -> GpuKey,
    ) {
        for (key, counted) in &mut self.living {
            let Some(new) = counted.new_for_owners() else { continue };
            if let Some(gpu) = known_gpu(key, &gpu) {
                self.by_owner.add(owner_pair(key, gpu, &owner), new);
                counted.of_owners = counted.tally;
            }
        }
        self.by_owner.settle(pairs_max, user);
    }

    /// Forgets the sums of owners that are listed no more.
    pub(super) fn retain_owners(&mut self, is_listed: impl Fn(&OwnerKey) -> bool) {
        self.by_owner.retain(is_listed);
    }

    /// Every pair of owners that is listed.
    pub(super) fn of_owners(&self) -> Vec<OwnerEvictions> {
        self.by_owner.all()
    }

    /// Processes are no longer listed.
    pub(super) fn forget(&mut self, processes: &BTreeSet<ProcessId>) {
        let is_forgotten = |party| matches!(party, Party::Process(process) if processes.contains(&process));
        let forgotten = |party| if is_forgotten(party) { Party::Forgotten } else { party };
        for (pair, tally) in std::mem::take(&mut self.past) {
            let pair = Pair { victim: forgotten(pair.victim), evictor: forgotten(pair.evictor), ..pair };
            add(self.past.entry(pair).or_default(), tally);
        }
    }

    /// Drops what living VA spaces have: it turned out to be wrong.
    pub(super) fn discard(&mut self) {
        self.living.clear();
    }

    /// Every pair. The arguments are as of [`Self::close`].
    pub(super) fn all(
        &self,
        party: impl Fn(Generation) -> Party,
        gpu: impl Fn(Generation, u32) -> GpuKey,
    ) -> Vec<EvictionPair> {
        let mut sums = self.past.clone();
        for (key, counted) in &self.living {
            add(sums.entry(pair(key, &party, &gpu)).or_default(), counted.tally);
        }
        let pairs = sums.into_iter().map(|(Pair { gpu, victim, evictor, cause }, tally)| EvictionPair {
            gpu,
            victim,
            evictor,
            cause,
            evictions: tally.events,
            bytes: tally.amount,
        });
        pairs.collect()
    }
}

impl Counted {
    /// Part that is not yet in the owners' sums, if any.
    fn new_for_owners(&self) -> Option<Tally> {
        let Self { tally, of_owners } = self;
        let new = Tally {
            events: tally.events.saturating_sub(of_owners.events),
            amount: tally.amount.saturating_sub(of_owners.amount),
        };
        (new != Tally::default()).then_some(new)
    }
}

fn owner_pair(key: &EvictionKey, gpu: GpuKey, owner: impl Fn(Generation) -> Option<OwnerKey>) -> OwnerPair {
    OwnerPair { gpu, victim: owner(key.victim), evictor: owner(key.evictor), cause: cause(key.cause) }
}

/// GPU of the eviction. Both use it; either may have been looked at.
fn known_gpu(key: &EvictionKey, gpu: impl Fn(Generation, u32) -> GpuKey) -> Option<GpuKey> {
    let known = |generation| match gpu(generation, key.gpu) {
        GpuKey::Pending(_) => None,
        known => Some(known),
    };
    known(key.victim).or_else(|| known(key.evictor))
}

fn pair(key: &EvictionKey, party: impl Fn(Generation) -> Party, gpu: impl Fn(Generation, u32) -> GpuKey) -> Pair {
    Pair {
        gpu: known_gpu(key, gpu).unwrap_or(GpuKey::Pending(key.gpu)),
        victim: party(key.victim),
        evictor: party(key.evictor),
        cause: cause(key.cause),
    }
}

fn add(sum: &mut Tally, added: Tally) {
    sum.events = sum.events.saturating_add(added.events);
    sum.amount = sum.amount.saturating_add(added.amount);
}

/// The probes' number.
fn cause(number: u32) -> EvictionCause {
    let at = usize::try_from(number).unwrap_or(usize::MAX);
    EvictionCause::ALL.get(at).copied().unwrap_or(EvictionCause::Other)
}

#[cfg(test)]
mod tests;

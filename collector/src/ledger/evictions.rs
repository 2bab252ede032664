//! Evictions by victim and evictor.
//!
//! The probes count by VA space. When one of the two is destroyed, their counts are kept by
//! process; when the process is forgotten, under [`Party::Forgotten`]. Sums are therefore
//! monotonic. As the number of pairs grows with the square of the processes, it is bounded: beyond
//! it, the smallest go to [`Party::Forgotten`] too.
//!
//! Sums by owner are separate, and each reading adds new counts to them: [`by_owner`].

mod by_owner;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use abi::{Tally, count::EvictionKey};
use by_owner::{ByOwner, OwnerPair};
use model::{EvictionCause, EvictionPair, GpuKey, OwnerEvictions, OwnerKey, Party, ProcessId};

use super::Generation;

/// Maximum of pairs of destroyed VA spaces, with some 100 bytes each.
const PAST_MAX: usize = 4096;
/// Part of them that is removed at once, so that the search for the smallest is rare.
const ROOM: usize = 8;

/// Evictions of a node.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    living: HashMap<EvictionKey, Counted>,
    past: BTreeMap<Pair, Tally>,
    by_owner: ByOwner,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Absolute count of the probes.
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

    /// Closes a destroyed VA space after its last reading. `party` and `owner` of a VA space;
    /// `gpu`: GPU of its id.
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
                // Its GPU cannot become known any more.
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

    /// Merges the smallest pairs if there are more than `max` of destroyed VA spaces. Sums by GPU
    /// and cause are unchanged.
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

    /// Adds new counts to the sums of owners, if the GPU is known. To be called after each reading.
    /// `pairs_max`: maximum of pairs; the other arguments are as in [`Self::close`].
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

    /// Removes the sums of owners that are no longer listed.
    pub(super) fn retain_owners(&mut self, is_listed: impl Fn(&OwnerKey) -> bool) {
        self.by_owner.retain(is_listed);
    }

    /// All pairs of listed owners.
    pub(super) fn of_owners(&self) -> Vec<OwnerEvictions> {
        self.by_owner.all()
    }

    /// Forgets processes that are no longer listed.
    pub(super) fn forget(&mut self, processes: &BTreeSet<ProcessId>) {
        let is_forgotten = |party| matches!(party, Party::Process(process) if processes.contains(&process));
        let forgotten = |party| if is_forgotten(party) { Party::Forgotten } else { party };
        for (pair, tally) in std::mem::take(&mut self.past) {
            let pair = Pair { victim: forgotten(pair.victim), evictor: forgotten(pair.evictor), ..pair };
            add(self.past.entry(pair).or_default(), tally);
        }
    }

    /// Drops the counts of live VA spaces, which turned out to be wrong.
    pub(super) fn discard(&mut self) {
        self.living.clear();
    }

    /// All pairs. The arguments are as in [`Self::close`].
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

/// GPU of the eviction. Both VA spaces use it; either may know it.
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

/// Cause of the probes' number.
fn cause(number: u32) -> EvictionCause {
    let at = usize::try_from(number).unwrap_or(usize::MAX);
    EvictionCause::ALL.get(at).copied().unwrap_or(EvictionCause::Other)
}

#[cfg(test)]
mod tests;

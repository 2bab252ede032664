//! Who pushed whose memory out of a GPU.
//!
//! The probes tell it by VA space. When one of the two is gone, what they had is kept by process; when the process is forgotten, under
//! [`Party::Forgotten`]. So sums only grow, and there are at most as many as pairs of listed processes.
//!
//! By owner there are sums of their own, to which each reading adds what is new: [`by_owner`].

mod by_owner;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use abi::{Tally, count::EvictionKey};
use by_owner::{ByOwner, OwnerPair};
use model::{EvictionCause, EvictionPair, GpuKey, OwnerEvictions, OwnerKey, Party, ProcessId};

use super::Generation;

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
    /// What of it is among the owners' sums.
    of_owners: Tally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    gpu: GpuKey,
    victim: Party,
    evictor: Party,
    cause: EvictionCause,
}

impl Evictions {
    /// What was counted so far under one key.
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
    }

    /// Adds what is new to the sums of owners, where it is known on which GPU it was. After each reading; `pairs_max`: how many pairs have room; the
    /// other arguments are as of [`Self::close`].
    pub(super) fn settle_owners(
        &mut self,
        pairs_max: usize,
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
        self.by_owner.settle(pairs_max);
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
    /// What is not yet among the owners' sums, if anything is.
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

/// Which GPU it was on. Both use it; either may have been looked at.
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
mod tests {
    use super::*;

    const A: ProcessId = ProcessId { pid: 1, start_ticks: 1 };
    const B: ProcessId = ProcessId { pid: 2, start_ticks: 1 };
    const CARD: GpuKey = GpuKey::Unknown(7);
    const PAIRS_MAX: usize = 9;

    fn key(victim: Generation, evictor: Generation, cause: EvictionCause) -> EvictionKey {
        EvictionKey { victim, evictor, gpu: 1, cause: cause as u32 }
    }

    const fn tally(events: u64, amount: u64) -> Tally {
        Tally { events, amount }
    }

    /// VA spaces 10 and 11 are A's, 20 is B's.
    fn party(generation: Generation) -> Party {
        match generation {
            10 | 11 => Party::Process(A),
            20 => Party::Process(B),
            _ => Party::Unknown,
        }
    }

    /// A works for a unit, B for nobody who is known.
    fn owner(generation: Generation) -> Option<OwnerKey> {
        match party(generation) {
            Party::Process(A) => Some(OwnerKey::Unit("a".to_owned())),
            Party::Process(_) => Some(OwnerKey::Other),
            Party::Forgotten | Party::Unknown => None,
        }
    }

    /// Kinds of victims and evictors, and how much.
    fn of_owners(evictions: &Evictions) -> Vec<(&'static str, &'static str, GpuKey, u64, u64)> {
        let kind = |owner: &Option<OwnerKey>| owner.as_ref().map_or("unknown", OwnerKey::kind);
        let pairs = evictions.of_owners();
        pairs
            .iter()
            .map(|pair| (kind(&pair.victim), kind(&pair.evictor), pair.gpu, pair.evictions, pair.bytes))
            .collect()
    }

    fn all(evictions: &Evictions) -> Vec<(Party, Party, EvictionCause, u64, u64)> {
        let pairs = evictions.all(party, |_, _| CARD);
        pairs.iter().map(|pair| (pair.victim, pair.evictor, pair.cause, pair.evictions, pair.bytes)).collect()
    }

    #[test]
    fn the_probes_causes_are_those_of_the_model_in_one_order() {
        let probes = abi::count::EvictionCause::ALL.iter().map(|cause| cause.name());
        assert_eq!(probes.collect::<Vec<_>>(), EvictionCause::ALL.map(EvictionCause::name));
        assert_eq!(cause(99), EvictionCause::Other);
    }

    #[test]
    fn the_va_spaces_of_a_process_are_one_party_whether_they_live_or_not() {
        let mut evictions = Evictions::default();
        evictions.count(key(10, 20, EvictionCause::Fault), tally(1, 4096));
        evictions.count(key(11, 20, EvictionCause::Fault), tally(2, 8192));
        evictions.count(key(11, 20, EvictionCause::Api), tally(5, 0));
        let (a, b) = (Party::Process(A), Party::Process(B));
        let expected = [(a, b, EvictionCause::Fault, 3, 12288), (a, b, EvictionCause::Api, 5, 0)];
        assert_eq!(all(&evictions), expected);
        evictions.close(10, party, owner, |_, _| CARD);
        assert_eq!(all(&evictions), expected);
        evictions.close(20, party, owner, |_, _| CARD);
        assert_eq!((all(&evictions), evictions.living.len()), (expected.to_vec(), 0));
    }

    #[test]
    fn counts_are_absolute_so_reading_twice_counts_once() {
        let mut evictions = Evictions::default();
        for events in [3, 4] {
            evictions.count(key(10, 10, EvictionCause::Fault), tally(events, 0));
        }
        assert_eq!(all(&evictions)[0].3, 4);
    }

    #[test]
    fn what_forgotten_processes_had_stays_and_is_one_party() {
        let mut evictions = Evictions::default();
        evictions.count(key(10, 20, EvictionCause::Fault), tally(1, 4096));
        evictions.count(key(20, 10, EvictionCause::Fault), tally(2, 0));
        evictions.count(key(10, 0, EvictionCause::Other), tally(4, 0));
        evictions.close(10, party, owner, |_, _| CARD);
        evictions.forget(&[A].into());
        let (b, forgotten) = (Party::Process(B), Party::Forgotten);
        assert_eq!(
            all(&evictions),
            [
                (b, forgotten, EvictionCause::Fault, 2, 0),
                (forgotten, b, EvictionCause::Fault, 1, 4096),
                (forgotten, Party::Unknown, EvictionCause::Other, 4, 0)
            ]
        );
        evictions.forget(&[B].into());
        assert_eq!(all(&evictions)[0], (forgotten, forgotten, EvictionCause::Fault, 3, 4096));
    }

    #[test]
    fn the_gpu_is_the_one_that_either_of_them_knows() {
        let mut evictions = Evictions::default();
        evictions.count(key(10, 20, EvictionCause::Fault), tally(1, 0));
        let pending = |_, id| GpuKey::Pending(id);
        let evictors = |generation, id| if generation == 20 { CARD } else { GpuKey::Pending(id) };
        assert_eq!(evictions.all(party, pending)[0].gpu, GpuKey::Pending(1));
        assert_eq!(evictions.all(party, evictors)[0].gpu, CARD);
        evictions.close(10, party, owner, pending);
        assert_eq!(evictions.all(party, evictors)[0].gpu, GpuKey::Unknown(1));
    }

    #[test]
    fn an_owners_sums_only_grow_and_stay_when_its_processes_are_forgotten() {
        let mut evictions = Evictions::default();
        evictions.count(key(10, 20, EvictionCause::Fault), tally(1, 4096));
        evictions.settle_owners(PAIRS_MAX, owner, |_, _| CARD);
        assert_eq!(of_owners(&evictions), [("unit", "other", CARD, 1, 4096)]);
        evictions.settle_owners(PAIRS_MAX, owner, |_, _| CARD);
        evictions.count(key(10, 20, EvictionCause::Fault), tally(3, 8192));
        evictions.count(key(11, 20, EvictionCause::Fault), tally(1, 0));
        evictions.close(10, party, owner, |_, _| CARD);
        evictions.settle_owners(PAIRS_MAX, owner, |_, _| CARD);
        evictions.forget(&[A, B].into());
        assert_eq!(of_owners(&evictions), [("unit", "other", CARD, 4, 8192)]);
        evictions.count(key(0, 20, EvictionCause::Fault), tally(1, 0));
        evictions.settle_owners(PAIRS_MAX, owner, |_, _| CARD);
        evictions.retain_owners(|owner| *owner == OwnerKey::Other);
        assert_eq!(of_owners(&evictions), [("unknown", "other", CARD, 1, 0)]);
    }

    #[test]
    fn an_owners_sum_waits_until_the_gpu_is_known_or_never_will_be() {
        let mut evictions = Evictions::default();
        evictions.count(key(10, 20, EvictionCause::Fault), tally(1, 4096));
        let pending = |_, id| GpuKey::Pending(id);
        evictions.settle_owners(PAIRS_MAX, owner, pending);
        assert_eq!(of_owners(&evictions), []);
        evictions.close(10, party, owner, pending);
        evictions.settle_owners(PAIRS_MAX, owner, pending);
        assert_eq!(of_owners(&evictions), [("unit", "other", GpuKey::Unknown(1), 1, 4096)]);
    }

    #[test]
    fn what_an_owner_had_stays_with_it_when_the_process_changes_hands() {
        let mut evictions = Evictions::default();
        evictions.count(key(10, 10, EvictionCause::Fault), tally(1, 4096));
        evictions.settle_owners(PAIRS_MAX, owner, |_, _| CARD);
        evictions.count(key(10, 10, EvictionCause::Fault), tally(2, 8192));
        evictions.settle_owners(PAIRS_MAX, |_| Some(OwnerKey::Other), |_, _| CARD);
        assert_eq!(of_owners(&evictions), [("unit", "unit", CARD, 1, 4096), ("other", "other", CARD, 1, 4096)]);
    }
}

//! Sums by owner, which outlive the owners' processes.
//!
//! The number of pairs is bounded, as it grows with the square of the owners. Half of it is the
//! limit for one user's owners as evictors, or as victims of an unknown evictor. A pair is listed
//! while there is room, the largest of simultaneous ones first, and then stays until one of its
//! owners is no longer listed. Others are counted under [`OwnerKey::Other`] by `Other`, at the same
//! GPU and for the same cause, for which there is always room. The sum of all pairs is therefore
//! exact, and none decreases.

use std::{cmp::Reverse, collections::BTreeMap};

use abi::Tally;
use model::{EvictionCause, GpuKey, OwnerEvictions, OwnerKey};

use super::add;

/// Sums of evictions by owner.
#[derive(Debug, Default)]
pub(super) struct ByOwner {
    listed: BTreeMap<OwnerPair, Tally>,
    /// Counts since [`Self::settle`].
    new: BTreeMap<OwnerPair, Tally>,
}

/// Pair of owners; without an owner, the party is unknown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OwnerPair {
    pub(super) gpu: GpuKey,
    pub(super) victim: Option<OwnerKey>,
    pub(super) evictor: Option<OwnerKey>,
    pub(super) cause: EvictionCause,
}

impl ByOwner {
    pub(super) fn add(&mut self, pair: OwnerPair, tally: Tally) {
        add(self.new.entry(pair).or_default(), tally);
    }

    /// Adds new counts to the sums, of which there are at most `max` beside the unbounded ones.
    /// `user`: user charged for an owner.
    pub(super) fn settle(&mut self, max: usize, user: impl Fn(&OwnerKey) -> Option<u32>) {
        if self.new.is_empty() {
            return;
        }
        let mut new: Vec<_> = std::mem::take(&mut self.new).into_iter().collect();
        new.sort_by_key(|(_, tally)| Reverse((tally.amount, tally.events)));
        let mut taken = 0;
        let mut by_user: BTreeMap<u32, usize> = BTreeMap::new();
        for pair in self.listed.keys().filter(|pair| !pair.is_of_others()) {
            taken += 1;
            if let Some(user) = pair.charged().and_then(&user) {
                *by_user.entry(user).or_default() += 1;
            }
        }
        for (pair, tally) in new {
            let needs_room = !self.listed.contains_key(&pair) && !pair.is_of_others();
            let mut of_user = pair.charged().and_then(&user).map(|user| by_user.entry(user).or_default());
            let has_room = taken < max && of_user.as_ref().is_none_or(|pairs| **pairs < max / 2);
            let pair = if needs_room && !has_room { pair.of_others() } else { pair };
            if needs_room && has_room {
                taken += 1;
                if let Some(pairs) = &mut of_user {
                    **pairs += 1;
                }
            }
            add(self.listed.entry(pair).or_default(), tally);
        }
    }

    /// Removes the sums of owners that are no longer listed.
    pub(super) fn retain(&mut self, is_listed: impl Fn(&OwnerKey) -> bool) {
        let is_kept = |owner: &OwnerKey| *owner == OwnerKey::Other || is_listed(owner);
        self.listed.retain(|pair, _| pair.victim.iter().chain(&pair.evictor).all(is_kept));
    }

    /// All pairs.
    pub(super) fn all(&self) -> Vec<OwnerEvictions> {
        let pairs = self.listed.iter().map(|(OwnerPair { gpu, victim, evictor, cause }, tally)| OwnerEvictions {
            gpu: *gpu,
            victim: victim.clone(),
            evictor: evictor.clone(),
            cause: *cause,
            evictions: tally.events,
            bytes: tally.amount,
        });
        pairs.collect()
    }
}

impl OwnerPair {
    fn of_others(self) -> Self {
        Self { victim: Some(OwnerKey::Other), evictor: Some(OwnerKey::Other), ..self }
    }

    /// Owner whose user is charged for it.
    fn charged(&self) -> Option<&OwnerKey> {
        self.evictor.as_ref().or(self.victim.as_ref())
    }

    fn is_of_others(&self) -> bool {
        [&self.victim, &self.evictor].iter().all(|owner| **owner == Some(OwnerKey::Other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: GpuKey = GpuKey::Unknown(7);
    const MAX: usize = 2;

    fn pair(victim: &str) -> OwnerPair {
        let victim = Some(OwnerKey::Unit(victim.to_owned()));
        OwnerPair { gpu: CARD, victim, evictor: None, cause: EvictionCause::Fault }
    }

    fn count(sums: &mut ByOwner, new: &[(&str, u64)]) {
        for (victim, amount) in new {
            sums.add(pair(victim), Tally { events: 1, amount: *amount });
        }
        sums.settle(MAX, |_| None);
    }

    /// Victims, with chunks and bytes.
    fn all(sums: &ByOwner) -> Vec<(String, u64, u64)> {
        let victim = |pair: &OwnerEvictions| pair.victim.as_ref().unwrap().id().to_owned();
        sums.all().iter().map(|pair| (victim(pair), pair.evictions, pair.bytes)).collect()
    }

    fn are(expected: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
        expected.iter().map(|(victim, evictions, bytes)| ((*victim).to_owned(), *evictions, *bytes)).collect()
    }

    #[test]
    fn largest_simultaneous_pairs_are_listed_and_the_rest_is_summed() {
        let mut sums = ByOwner::default();
        count(&mut sums, &[("a", 1), ("b", 9), ("c", 2), ("d", 10)]);
        assert_eq!(all(&sums), are(&[("b", 1, 9), ("d", 1, 10), ("", 2, 3)]));
        let rest = sums.all().pop().unwrap();
        assert_eq!((rest.gpu, rest.cause), (CARD, EvictionCause::Fault));
        assert_eq!((rest.victim, rest.evictor), (Some(OwnerKey::Other), Some(OwnerKey::Other)));
    }

    #[test]
    fn user_with_many_owners_leaves_half_of_the_places_to_others() {
        let mut sums = ByOwner::default();
        for (victim, amount) in [("eve1", 9), ("eve2", 8), ("eve3", 7), ("bob1", 1)] {
            sums.add(pair(victim), Tally { events: 1, amount });
        }
        sums.settle(4, |owner| Some(u32::from(owner.id().starts_with("eve"))));
        assert_eq!(all(&sums), are(&[("bob1", 1, 1), ("eve1", 1, 9), ("eve2", 1, 8), ("", 1, 7)]));
        sums.add(pair("eve3"), Tally { events: 1, amount: 7 });
        sums.add(pair("bob2"), Tally { events: 1, amount: 1 });
        sums.settle(4, |owner| Some(u32::from(owner.id().starts_with("eve"))));
        assert_eq!(all(&sums).len(), 5);
        assert_eq!(all(&sums).last().unwrap().1, 2);
    }

    #[test]
    fn listed_pairs_stay_listed_and_summed_counts_stay_summed() {
        let mut sums = ByOwner::default();
        count(&mut sums, &[("a", 1), ("b", 2)]);
        count(&mut sums, &[("a", 1), ("c", 100)]);
        assert_eq!(all(&sums), are(&[("a", 2, 2), ("b", 1, 2), ("", 1, 100)]));
        // Once an owner is removed there is room, for later counts.
        sums.retain(|owner| owner.id() != "a");
        count(&mut sums, &[("c", 5)]);
        assert_eq!(all(&sums), are(&[("b", 1, 2), ("c", 1, 5), ("", 1, 100)]));
    }
}

//! Evictions by victim and evictor.

use super::*;

fn evicted(ledger: &mut Ledger, victim: Generation, evictor: Generation, events: u64, amount: u64) {
    ledger.evicted(EvictionKey { victim, evictor, gpu: 1, cause: 0 }, Tally { events, amount });
}

/// Parties and GPU of each pair, with the amounts.
fn pairs(ledger: &Ledger) -> Vec<(Party, Party, GpuKey, u64, u64)> {
    let pairs = ledger.evictions().into_iter();
    pairs.map(|pair| (pair.victim, pair.evictor, pair.gpu, pair.evictions, pair.bytes)).collect()
}

#[test]
fn eviction_pair_outlives_both_parties() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("victim"));
    ledger.registered(2, OTHER, named("evictor"));
    shown(&mut ledger, CARD);
    evicted(&mut ledger, 1, 2, 3, 4096);
    evicted(&mut ledger, 1, 0, 1, 0);
    let (victim, evictor, card) = (Party::Process(PROCESS), Party::Process(OTHER), GpuKey::Known(CARD));
    assert_eq!(
        pairs(&ledger),
        [(victim, evictor, GpuKey::Pending(1), 3, 4096), (victim, Party::Unknown, GpuKey::Pending(1), 1, 0)]
    );
    // The victim knows the GPU by now.
    shown(&mut ledger, CARD);
    ledger.destroyed(2, Losses::default(), at(10));
    ledger.close(2);
    let known = [(victim, evictor, card, 3, 4096), (victim, Party::Unknown, card, 1, 0)];
    assert_eq!(pairs(&ledger), known);
    ledger.destroyed(1, Losses::default(), at(20));
    ledger.close(1);
    assert_eq!(pairs(&ledger), known);
    ledger.seen(OTHER, Sighting::Gone, at(20));
    ledger.forget(at(10) + RETENTION);
    assert_eq!(pairs(&ledger), [(victim, Party::Forgotten, card, 3, 4096), (victim, Party::Unknown, card, 1, 0)]);
}

#[test]
fn wrong_eviction_pairs_are_discarded_with_the_counts() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    evicted(&mut ledger, 1, 1, 3, 4096);
    ledger.discard();
    ledger.close_all(None);
    assert_eq!(pairs(&ledger), []);
}

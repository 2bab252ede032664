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

/// A belongs to a unit, B to no known owner.
fn owner(generation: Generation) -> Option<OwnerKey> {
    match party(generation) {
        Party::Process(A) => Some(OwnerKey::Unit("a".to_owned())),
        Party::Process(_) => Some(OwnerKey::Other),
        Party::Forgotten | Party::Unknown => None,
    }
}

/// Kinds of victims and evictors, with the amounts.
fn of_owners(evictions: &Evictions) -> Vec<(&'static str, &'static str, GpuKey, u64, u64)> {
    let kind = |owner: &Option<OwnerKey>| owner.as_ref().map_or("unknown", OwnerKey::kind);
    let pairs = evictions.of_owners();
    pairs.iter().map(|pair| (kind(&pair.victim), kind(&pair.evictor), pair.gpu, pair.evictions, pair.bytes)).collect()
}

fn all(evictions: &Evictions) -> Vec<(Party, Party, EvictionCause, u64, u64)> {
    let pairs = evictions.all(party, |_, _| CARD);
    pairs.iter().map(|pair| (pair.victim, pair.evictor, pair.cause, pair.evictions, pair.bytes)).collect()
}

#[test]
fn causes_of_probes_and_model_are_the_same_in_equal_order() {
    let probes = abi::count::EvictionCause::ALL.iter().map(|cause| cause.name());
    assert_eq!(probes.collect::<Vec<_>>(), EvictionCause::ALL.map(EvictionCause::name));
    assert_eq!(cause(99), EvictionCause::Other);
}

#[test]
fn open_and_closed_va_spaces_of_a_process_are_one_party() {
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
fn absolute_counts_are_not_added_twice() {
    let mut evictions = Evictions::default();
    for events in [3, 4] {
        evictions.count(key(10, 10, EvictionCause::Fault), tally(events, 0));
    }
    assert_eq!(all(&evictions)[0].3, 4);
}

#[test]
fn counts_of_forgotten_processes_remain_as_one_party() {
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
fn smallest_past_pairs_beyond_the_limit_are_merged_without_changing_the_sum() {
    let mut evictions = Evictions::default();
    let party = |generation| Party::Process(ProcessId { pid: u32::try_from(generation).unwrap(), start_ticks: 1 });
    for at in 1..=3 * PAST_MAX as u64 {
        evictions.count(key(at, 1_000_000, EvictionCause::Fault), tally(1, at));
        evictions.close(at, party, |_| None, |_, _| CARD);
        assert!(evictions.past.len() <= PAST_MAX + 1, "{}", evictions.past.len());
    }
    let all = evictions.all(party, |_, _| CARD);
    let at_most = 3 * PAST_MAX as u64;
    assert_eq!(all.iter().map(|pair| pair.bytes).sum::<u64>(), at_most * (at_most + 1) / 2);
    assert_eq!(all.iter().map(|pair| pair.evictions).sum::<u64>(), at_most);
    let forgotten: Vec<_> = all.iter().filter(|pair| pair.victim == Party::Forgotten).collect();
    assert!(forgotten.len() == 1 && forgotten[0].evictor == Party::Forgotten, "{forgotten:?}");
    // The largest are included.
    let remembered: Vec<_> = all.iter().filter(|pair| pair.victim != Party::Forgotten).map(|pair| pair.bytes).collect();
    assert_eq!(remembered.iter().min(), Some(&(at_most - remembered.len() as u64 + 1)));
    assert!(remembered.len() >= PAST_MAX - PAST_MAX / ROOM - 1, "{}", remembered.len());
}

#[test]
fn gpu_of_a_pair_is_known_if_either_party_knows_it() {
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
fn owner_sums_only_grow_and_outlive_their_processes() {
    let mut evictions = Evictions::default();
    evictions.count(key(10, 20, EvictionCause::Fault), tally(1, 4096));
    evictions.settle_owners(PAIRS_MAX, |_| None, owner, |_, _| CARD);
    assert_eq!(of_owners(&evictions), [("unit", "other", CARD, 1, 4096)]);
    evictions.settle_owners(PAIRS_MAX, |_| None, owner, |_, _| CARD);
    evictions.count(key(10, 20, EvictionCause::Fault), tally(3, 8192));
    evictions.count(key(11, 20, EvictionCause::Fault), tally(1, 0));
    evictions.close(10, party, owner, |_, _| CARD);
    evictions.settle_owners(PAIRS_MAX, |_| None, owner, |_, _| CARD);
    evictions.forget(&[A, B].into());
    assert_eq!(of_owners(&evictions), [("unit", "other", CARD, 4, 8192)]);
    evictions.count(key(0, 20, EvictionCause::Fault), tally(1, 0));
    evictions.settle_owners(PAIRS_MAX, |_| None, owner, |_, _| CARD);
    evictions.retain_owners(|owner| *owner == OwnerKey::Other);
    assert_eq!(of_owners(&evictions), [("unknown", "other", CARD, 1, 0)]);
}

#[test]
fn owner_sum_waits_until_the_gpu_is_known_or_given_up() {
    let mut evictions = Evictions::default();
    evictions.count(key(10, 20, EvictionCause::Fault), tally(1, 4096));
    let pending = |_, id| GpuKey::Pending(id);
    evictions.settle_owners(PAIRS_MAX, |_| None, owner, pending);
    assert_eq!(of_owners(&evictions), []);
    evictions.close(10, party, owner, pending);
    evictions.settle_owners(PAIRS_MAX, |_| None, owner, pending);
    assert_eq!(of_owners(&evictions), [("unit", "other", GpuKey::Unknown(1), 1, 4096)]);
}

#[test]
fn earlier_evictions_stay_with_the_former_owner() {
    let mut evictions = Evictions::default();
    evictions.count(key(10, 10, EvictionCause::Fault), tally(1, 4096));
    evictions.settle_owners(PAIRS_MAX, |_| None, owner, |_, _| CARD);
    evictions.count(key(10, 10, EvictionCause::Fault), tally(2, 8192));
    evictions.settle_owners(PAIRS_MAX, |_| None, |_| Some(OwnerKey::Other), |_, _| CARD);
    assert_eq!(of_owners(&evictions), [("unit", "unit", CARD, 1, 4096), ("other", "other", CARD, 1, 4096)]);
}

//! `collector::tools`: counts from records of several VA spaces, and totals.
//!
//! Input: steps of a VA space, each with 64 bytes: a record, the end of a reading, totals, or the
//! VA space's end. No count ever decreases while its VA space is there, the memory is bounded, and
//! evicted bytes are those of the evictors.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use abi::{CountKey, Kind, Tally};
use collector::fuzzing::RecordCounts;
use sys::uvm::{
    queue::{CONTROL_WORDS, FullQueue},
    records::{RECORD_BYTES, Record},
    tracker::Counters,
};

/// Number of VA spaces.
const SPACES: u8 = 4;
/// Bound of the keys of one VA space: GPUs by kind, and by kind and bucket.
const KEYS_MAX: usize = 33 * (12 * 8 + 6 * 496);

pub(super) fn run(input: &[u8]) {
    let mut counts = RecordCounts::default();
    let mut before: HashMap<CountKey, Tally> = HashMap::new();
    for step in input.as_chunks::<{ RECORD_BYTES + 2 }>().0 {
        let [space, what, bytes @ ..] = step;
        let generation = u64::from(space % SPACES) + 1;
        let word = |at: usize| u64::from_le_bytes(*bytes.as_chunks().0.get(at).expect("eight words"));
        match what % 8 {
            0..4 => counts.add(generation, &Record::from_bytes(bytes)),
            4 => counts.advance(word(0)),
            5 | 6 => {
                let control: Vec<_> = (0..CONTROL_WORDS).map(|_| AtomicU64::new(0)).collect();
                let mut queue = FullQueue::new(&control).expect("the page is large enough");
                for (count, at) in control.iter().skip(2).zip([0, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4]) {
                    count.store(word(at), Ordering::Relaxed);
                }
                let kinds = queue.read(&control).expect("it is full");
                let [fault_entries, cpu_faults, bytes_htod, bytes_dtoh] = [0, 1, 2, 3].map(word);
                let all = Counters { fault_entries, cpu_faults, bytes_htod, bytes_dtoh };
                counts.complete(generation, all, kinds, what % 8 == 6);
            }
            _ => {
                counts.forget(generation);
                before.retain(|key, _| key.generation != generation);
            }
        }
        let now: HashMap<_, _> = counts.counts().into_iter().collect();
        assert!(now.len() <= usize::from(SPACES + 1) * KEYS_MAX);
        for (key, tally) in &before {
            let later = now.get(key).expect("a key stays");
            assert!(later.events >= tally.events && later.amount >= tally.amount, "{key:?}: {tally:?} {later:?}");
        }
        before = now;
        let evicted: u64 = of_evictors(&counts);
        let induced = before.iter().filter(|(key, _)| Kind::from_index(key.kind.into()) == Some(Kind::InducedEviction));
        assert!(evicted <= induced.map(|(_, tally)| tally.amount).sum());
    }
    let _ = counts.contradictions();
}

/// Evicted bytes of known evictors.
fn of_evictors(counts: &RecordCounts) -> u64 {
    counts.evictions().iter().filter(|(key, _)| key.evictor != 0).map(|(_, tally)| tally.amount).sum()
}

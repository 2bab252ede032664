//! Evictions by victim and evictor.

use std::time::Duration;

use model::{EvictionCause, EvictionPair, GpuKey, Party, Snapshot};
use policy::Judge;

use crate::support::*;

fn eviction(gpu: GpuKey, victim: u32, evictor: u32, cause: EvictionCause, bytes: u64) -> EvictionPair {
    EvictionPair {
        gpu,
        victim: Party::Process(id(victim)),
        evictor: Party::Process(id(evictor)),
        cause,
        evictions: 1,
        bytes,
    }
}

fn with(ms: u64, evictions: Vec<EvictionPair>) -> Snapshot {
    Snapshot { evictions, ..snapshot(ms, Vec::new()) }
}

/// Victim, evictor and bytes.
fn victims(judge: &Judge) -> Vec<(u32, u32, u64)> {
    let victims = judge.verdicts().victims;
    victims.iter().map(|victim| (victim.victim.pid, victim.evictor.pid, victim.bytes)).collect()
}

const FAULT: EvictionCause = EvictionCause::Fault;

#[test]
fn victims_of_other_processes_in_the_last_window_are_sorted_by_bytes() {
    let mut judge = Judge::default();
    judge.observe(&with(0, vec![eviction(GPU, 1, 2, FAULT, 1000)]));
    judge.observe(&with(1000, vec![eviction(GPU, 1, 2, FAULT, 1050)]));
    assert_eq!(victims(&judge), [], "no window has ended");
    let own = eviction(GPU, 3, 3, FAULT, 1 << 30);
    let unnamed = EvictionPair { evictor: Party::Unknown, ..eviction(GPU, 1, 2, FAULT, 1 << 30) };
    let prefetched = eviction(GPU, 2, 1, EvictionCause::Api, 300);
    let evictions = vec![eviction(GPU, 1, 2, FAULT, 1100), prefetched, eviction(GPU, 2, 1, FAULT, 400), own, unnamed];
    judge.observe(&with(2000, evictions.clone()));
    assert_eq!(victims(&judge), [(2, 1, 700), (1, 2, 100)]);
    assert_eq!(judge.verdicts().victims[0].window, Duration::from_secs(2));
    judge.observe(&with(3000, evictions.clone()));
    assert_eq!(victims(&judge).len(), 2, "the next window has not ended");
    judge.observe(&with(4000, evictions));
    assert_eq!(victims(&judge), [], "the last window has no evictions");
}

#[test]
fn identification_of_a_gpu_makes_no_victims() {
    let mut judge = Judge::default();
    judge.observe(&with(0, vec![eviction(GpuKey::Pending(1), 1, 2, FAULT, 1000)]));
    judge.observe(&with(2000, vec![eviction(GPU, 1, 2, FAULT, 1000)]));
    assert_eq!(victims(&judge), []);
    judge.observe(&with(4000, vec![eviction(GPU, 1, 2, FAULT, 1024)]));
    assert_eq!(victims(&judge), [(1, 2, 24)]);
}

#[test]
fn forgotten_process_is_no_victim() {
    let mut judge = Judge::default();
    judge.observe(&with(2000, vec![eviction(GPU, 1, 2, FAULT, 1000)]));
    let forgotten = EvictionPair { victim: Party::Forgotten, ..eviction(GPU, 1, 2, FAULT, 9000) };
    judge.observe(&with(4000, vec![forgotten]));
    assert_eq!(victims(&judge), []);
}

#[test]
fn calendar_that_is_set_does_not_change_the_window_of_victims() {
    for set in [at(0), at(3_600_000)] {
        let mut judge = Judge::default();
        judge.observe(&with(7000, vec![eviction(GPU, 1, 2, FAULT, 1000)]));
        judge.observe(&Snapshot { taken: set, ..with(9000, vec![eviction(GPU, 1, 2, FAULT, 1100)]) });
        assert_eq!(victims(&judge), [(1, 2, 100)]);
        assert_eq!(judge.verdicts().victims[0].window, Duration::from_secs(2));
    }
}

use abi::count::first_of_bucket;

use super::*;

const A: Generation = 1;
const B: Generation = 2;
const C: Generation = 3;
const GPU: ProcessorIndex = ProcessorIndex(1);
const OTHER_GPU: ProcessorIndex = ProcessorIndex(2);

fn timeline() -> Timeline {
    Timeline::new(8)
}

fn fault(batch: u32, time_ns: u64) -> SharedEvent {
    SharedEvent::Fault { gpu: GPU, client: Client::Gpc, batch, time_ns }
}

fn eviction(bytes: u64, time_ns: u64) -> SharedEvent {
    SharedEvent::Eviction { gpu: GPU, bytes, time_ns }
}

fn replay(batch: u32, time_ns: u64) -> Replay {
    Replay { gpu: GPU, client: Client::Gpc, batch, time_ns }
}

/// Values of a kind: VA space, processor id, bucket's first value, number and sum.
fn of(timeline: &Timeline, kind: Kind) -> Vec<(Generation, u32, u64, u64, u64)> {
    let of_kind = timeline.counts().filter(|(key, _)| Kind::from_index(key.kind.into()) == Some(kind));
    let mut counts: Vec<_> = of_kind
        .map(|(key, tally)| (key.generation, key.gpu, first_of_bucket(key.detail), tally.events, tally.amount))
        .collect();
    counts.sort_unstable();
    counts
}

/// Evicted bytes by victim, evictor and cause.
fn evicted(timeline: &Timeline) -> Vec<(Generation, Generation, EvictionCause, u64)> {
    let mut pairs: Vec<_> = timeline
        .evictions()
        .map(|(key, tally)| {
            assert_eq!((key.gpu, tally.events), (1, 0), "chunks are not counted");
            (key.victim, key.evictor, EvictionCause::from_index(key.cause).unwrap(), tally.amount)
        })
        .collect();
    pairs.sort_unstable();
    pairs
}

/// Puts all events in order.
fn finish(timeline: &mut Timeline) {
    for generation in [A, B, C] {
        timeline.finish(generation, 1_000_000);
    }
}

#[test]
fn memory_evicted_during_a_fault_was_evicted_for_its_va_space() {
    let mut timeline = timeline();
    // Each VA space has its own queue: B's is read first. Evictions are recorded at their end.
    timeline.add(B, fault(1, 300));
    timeline.add(B, eviction(4096, 150));
    timeline.add(A, fault(1, 100));
    timeline.add(A, eviction(8192, 350));
    timeline.add_replay(&replay(1, 400));
    timeline.add(A, eviction(12288, 450));
    finish(&mut timeline);
    assert_eq!(
        evicted(&timeline),
        [
            // After the replay: for a call, of an unknown process.
            (A, UNKNOWN, EvictionCause::Other, 12288),
            (A, B, EvictionCause::Fault, 8192),
            (B, A, EvictionCause::Fault, 4096),
        ]
    );
    assert_eq!(of(&timeline, Kind::InducedEviction), [(A, 1, 0, 0, 4096), (B, 1, 0, 0, 8192)]);
}

#[test]
fn faults_and_replays_of_another_gpu_or_client_are_no_evidence() {
    let mut timeline = timeline();
    timeline.add(A, fault(1, 100));
    timeline.add(B, SharedEvent::Fault { gpu: OTHER_GPU, client: Client::Gpc, batch: 1, time_ns: 110 });
    timeline.add_replay(&Replay { gpu: OTHER_GPU, ..replay(1, 120) });
    timeline.add_replay(&Replay { client: Client::Hub, ..replay(1, 130) });
    timeline.add(C, eviction(4096, 140));
    finish(&mut timeline);
    assert_eq!(evicted(&timeline), [(C, A, EvictionCause::Fault, 4096)]);
}

#[test]
fn evictor_is_unknown_where_another_va_space_lost_faults() {
    let with = |lost: &[Generation], replays: bool| {
        let mut timeline = timeline();
        timeline.advance(50);
        timeline.add(A, fault(1, 100));
        timeline.add(C, eviction(4096, 140));
        for generation in lost {
            timeline.lost_faults(*generation);
        }
        if replays {
            timeline.lost_replays();
        }
        timeline.advance(200);
        timeline.advance(300);
        evicted(&timeline)
    };
    let (known, unknown) = ([(C, A, EvictionCause::Fault, 4096)], [(C, UNKNOWN, EvictionCause::Other, 4096)]);
    assert_eq!(with(&[], false), known);
    // Those that A lost were A's too.
    assert_eq!(with(&[A], false), known);
    assert_eq!(with(&[B], false), unknown);
    assert_eq!(with(&[A, B], false), unknown);
    assert_eq!(with(&[], true), unknown);
}

#[test]
fn losses_are_forgotten_after_the_events_that_they_concern() {
    let mut timeline = timeline();
    timeline.lost_faults(B);
    for now_ns in [100, 200, 300] {
        timeline.advance(now_ns);
    }
    timeline.add(A, fault(1, 310));
    timeline.add(C, eviction(4096, 320));
    finish(&mut timeline);
    assert_eq!(evicted(&timeline), [(C, A, EvictionCause::Fault, 4096)]);
}

#[test]
fn copy_that_completes_late_has_the_evictor_of_its_begin() {
    let mut timeline = timeline();
    timeline.advance(50);
    timeline.add(A, fault(1, 100));
    timeline.advance(200);
    // It began before that reading, and is recorded after it.
    timeline.add(C, eviction(4096, 150));
    timeline.add_replay(&replay(1, 160));
    timeline.advance(300);
    assert_eq!(evicted(&timeline), [(C, A, EvictionCause::Fault, 4096)]);
    // Two readings late: what happened meanwhile is not known any more.
    timeline.add(C, eviction(8192, 155));
    timeline.advance(400);
    timeline.advance(500);
    assert_eq!(evicted(&timeline), [(C, UNKNOWN, EvictionCause::Other, 8192), (C, A, EvictionCause::Fault, 4096)]);
}

#[test]
fn batch_is_from_its_first_entry_to_its_last_replay() {
    let mut timeline = timeline();
    for (generation, time_ns) in [(A, 100), (A, 110), (B, 120)] {
        timeline.add(generation, fault(1, time_ns));
    }
    timeline.add_replay(&replay(1, 140));
    timeline.add_replay(&replay(1, 164));
    timeline.add(A, fault(2, 200));
    timeline.add_replay(&replay(2, 208));
    finish(&mut timeline);
    assert_eq!(of(&timeline, Kind::BatchEntries), [(A, 1, 1, 1, 1), (A, 1, 2, 1, 2), (B, 1, 1, 1, 1)]);
    assert_eq!(of(&timeline, Kind::BatchNs), [(A, 1, 8, 1, 8), (A, 1, 64, 1, 64), (B, 1, 64, 1, 64)]);
    assert_eq!(of(&timeline, Kind::Replay), [(A, 1, 0, 3, 0), (B, 1, 0, 2, 0)]);
    // Of the GPU: once, under the VA space that it serviced last.
    assert_eq!(of(&timeline, Kind::GpuBatchEntries), [(A, 1, 1, 1, 1), (B, 1, 3, 1, 3)]);
    assert_eq!(of(&timeline, Kind::GpuBatchNs), [(A, 1, 8, 1, 8), (B, 1, 64, 1, 64)]);
    assert_eq!(of(&timeline, Kind::GpuReplay), [(A, 1, 0, 1, 0), (B, 1, 0, 2, 0)]);
}

#[test]
fn replay_that_is_recorded_late_counts_for_its_batch() {
    let mut timeline = timeline();
    timeline.add(A, fault(1, 100));
    timeline.add(B, fault(2, 200));
    timeline.advance(300);
    timeline.advance(400);
    assert_eq!(of(&timeline, Kind::BatchEntries), []);
    timeline.add_replay(&replay(2, 250));
    timeline.add_replay(&replay(1, 132));
    timeline.advance(500);
    timeline.advance(600);
    assert_eq!(of(&timeline, Kind::Replay), [(A, 1, 0, 1, 0), (B, 1, 0, 1, 0)]);
    assert_eq!(of(&timeline, Kind::BatchNs), [(A, 1, 32, 1, 32)]);
    // The last one goes on: it may be replayed again.
    finish(&mut timeline);
    assert_eq!(of(&timeline, Kind::BatchNs), [(A, 1, 32, 1, 32), (B, 1, first_of_bucket(bucket(50)), 1, 50)]);
}

#[test]
fn batches_that_wait_for_their_replay_are_limited() {
    let mut timeline = timeline();
    for number in 0..100 {
        timeline.add(A, fault(number, number.into()));
    }
    timeline.advance(1000);
    timeline.advance(2000);
    let ended: u64 = of(&timeline, Kind::BatchEntries).iter().map(|(.., batches, _)| batches).sum();
    assert_eq!(ended, 99 - UNREPLAYED_MAX as u64);
}

#[test]
fn replays_without_records_of_faults_count_for_the_gpu_alone() {
    let mut timeline = timeline();
    timeline.add_replay(&replay(1, 100));
    timeline.add_replay(&Replay { gpu: OTHER_GPU, ..replay(7, 110) });
    // A channel that is started again is no replay.
    timeline.add_replay(&Replay { client: Client::Hub, ..replay(2, 120) });
    timeline.advance(200);
    timeline.advance(300);
    assert_eq!(of(&timeline, Kind::GpuReplay), [(UNKNOWN, 1, 0, 1, 0), (UNKNOWN, 9, 0, 1, 0)]);
    assert_eq!(timeline.counts().count(), 2);
}

#[test]
fn fault_that_is_not_replayable_is_in_no_batch_and_may_evict() {
    let mut timeline = timeline();
    timeline.add(A, SharedEvent::Fault { gpu: GPU, client: Client::Hub, batch: 1, time_ns: 100 });
    timeline.add(C, eviction(4096, 110));
    timeline.add_replay(&Replay { client: Client::Hub, ..replay(1, 120) });
    timeline.add(C, eviction(8192, 130));
    finish(&mut timeline);
    assert_eq!(of(&timeline, Kind::BatchEntries), []);
    assert_eq!(evicted(&timeline), [(C, UNKNOWN, EvictionCause::Other, 8192), (C, A, EvictionCause::Fault, 4096)]);
}

#[test]
fn batch_ends_a_second_after_its_last_event() {
    let mut timeline = timeline();
    timeline.add(A, fault(1, 100));
    timeline.add_replay(&replay(1, 140));
    for now_ns in [1000, 2000] {
        timeline.advance(now_ns);
        assert_eq!(of(&timeline, Kind::BatchEntries), []);
    }
    timeline.advance(BATCH_ENDS_NS + 140);
    timeline.advance(BATCH_ENDS_NS + 200);
    assert_eq!(of(&timeline, Kind::BatchNs), [(A, 1, 40, 1, 40)]);
}

#[test]
fn batches_that_may_have_lost_entries_are_not_observed() {
    let mut timeline = timeline();
    timeline.add(A, fault(1, 100));
    timeline.add(B, fault(1, 110));
    timeline.add_replay(&replay(1, 140));
    timeline.add(B, fault(2, 200));
    timeline.lost_faults(A);
    timeline.advance(300);
    timeline.advance(400);
    // The batch may have begun with a fault of A.
    assert_eq!(of(&timeline, Kind::BatchNs), []);
    assert_eq!(of(&timeline, Kind::GpuBatchEntries), []);
    assert_eq!(of(&timeline, Kind::BatchEntries), [(B, 1, 1, 1, 1)]);
    assert_eq!(of(&timeline, Kind::Replay), [(A, 1, 0, 1, 0), (B, 1, 0, 1, 0)]);
}

#[test]
fn batch_without_a_replay_has_no_duration() {
    let mut timeline = timeline();
    timeline.add(A, fault(1, 100));
    finish(&mut timeline);
    assert_eq!((of(&timeline, Kind::BatchEntries).len(), of(&timeline, Kind::BatchNs)), (1, vec![]));
    assert_eq!(of(&timeline, Kind::Replay), []);
}

#[test]
fn forgotten_va_space_has_no_keys_and_evicts_nothing() {
    let mut timeline = timeline();
    timeline.add(A, fault(1, 100));
    timeline.add(B, eviction(4096, 110));
    timeline.add(A, eviction(4096, 120));
    finish(&mut timeline);
    timeline.forget(A);
    let names_a = |key: &EvictionKey| key.victim == A || key.evictor == A;
    assert!(timeline.counts().all(|(key, _)| key.generation != A));
    assert!(!timeline.evictions().any(|(key, _)| names_a(&key)));
    timeline.add(B, eviction(8192, 130));
    timeline.add_replay(&replay(1, 140));
    timeline.finish(B, 1000);
    assert_eq!(evicted(&timeline), [(B, UNKNOWN, EvictionCause::Other, 8192)]);
    assert_eq!(of(&timeline, Kind::GpuReplay), [(UNKNOWN, 1, 0, 1, 0)]);
}

#[test]
fn times_that_the_driver_cannot_have_written_delay_no_other_event() {
    let mut timeline = timeline();
    timeline.add(B, fault(9, u64::MAX));
    timeline.advance(100);
    timeline.add(A, fault(1, 150));
    timeline.add(C, eviction(4096, 160));
    timeline.advance(200);
    timeline.advance(300);
    assert_eq!(evicted(&timeline), [(C, A, EvictionCause::Fault, 4096)]);
    timeline.advance(101 + AHEAD_MAX_NS);
    timeline.advance(102 + AHEAD_MAX_NS);
    assert!(timeline.waiting.is_empty());
}

#[test]
fn waiting_events_take_bounded_memory_and_no_evicted_byte_is_lost() {
    let mut timeline = timeline();
    for number in 0..WAITING_MAX as u64 {
        timeline.add(A, fault(1, number));
    }
    timeline.add(A, fault(1, 7));
    timeline.add(C, eviction(4096, 8));
    timeline.add_replay(&replay(1, 9));
    assert_eq!(timeline.waiting.len(), WAITING_MAX);
    // A is named, whoever's events found no room.
    assert_eq!(timeline.take_unordered(), Some(Unordered { largest: A, events: 3 }));
    assert_eq!(timeline.take_unordered(), None);
    assert_eq!(evicted(&timeline), [(C, UNKNOWN, EvictionCause::Other, 4096)]);
    assert_eq!(of(&timeline, Kind::GpuReplay), [(UNKNOWN, 1, 0, 1, 0)]);
    finish(&mut timeline);
    // One entry is missing.
    assert_eq!(of(&timeline, Kind::BatchEntries), []);
}

#[test]
fn evictors_are_known_again_after_the_interval_in_which_events_found_no_room() {
    let mut timeline = timeline();
    timeline.advance(50);
    for number in 0..=WAITING_MAX as u64 {
        timeline.add(A, fault(1, 100 + number));
    }
    timeline.add_replay(&replay(1, 500_000));
    timeline.add(C, eviction(4096, 500_010));
    timeline.advance(600_000);
    timeline.advance(700_000);
    // The replay of A's batch was lost.
    timeline.add(C, eviction(8192, 700_010));
    timeline.advance(800_000);
    timeline.advance(900_000);
    timeline.add(B, fault(2, 900_010));
    timeline.add(C, eviction(12288, 900_020));
    timeline.advance(950_000);
    timeline.advance(960_000);
    let unknown = (C, UNKNOWN, EvictionCause::Other, 12288);
    assert_eq!(evicted(&timeline), [unknown, (C, B, EvictionCause::Fault, 12288)]);
    assert_eq!(timeline.take_unordered().map(|unordered| unordered.events), Some(3));
}

#[test]
fn end_of_a_va_space_without_faults_leaves_no_copy_of_others_late() {
    for (ended, evictor) in [(B, A), (A, UNKNOWN)] {
        let mut timeline = timeline();
        timeline.advance(50);
        timeline.add(A, fault(1, 100));
        timeline.add_replay(&replay(1, 200));
        timeline.finish(ended, 300);
        // It began before, and is recorded after.
        timeline.add(C, eviction(4096, 150));
        timeline.advance(400);
        timeline.advance(500);
        assert_eq!(evicted(&timeline).iter().map(|(_, evictor, ..)| *evictor).collect::<Vec<_>>(), [evictor]);
    }
}

#[test]
fn evictors_of_a_victim_are_limited_and_its_bytes_are_not() {
    let mut timeline = timeline();
    for number in 0..100 {
        timeline.add(100 + number, fault(1, 2 * number));
        timeline.add(C, eviction(4096, 2 * number + 1));
    }
    finish(&mut timeline);
    let pairs = evicted(&timeline);
    assert_eq!(pairs.len(), EVICTORS_MAX + 1);
    assert_eq!(pairs.iter().map(|(.., bytes)| bytes).sum::<u64>(), 100 * 4096);
}

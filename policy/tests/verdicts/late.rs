//! Readings that come late, and block records that come later than counts.

use std::time::Duration;

use model::{
    Snapshot,
    VerdictKind::{self, CapacityThrash, Streaming},
    verdict::Unjudged,
};
use policy::decision::ORDER;
use proptest::prelude::*;

use crate::support::*;

/// A reading: milliseconds after the one before, and percent of them of which block records are read,
/// which happens before the counts are.
type Delay = (u64, u64);

/// Passes time under a load, with these readings.
fn run_late(history: &mut History, load: &Load, delays: impl IntoIterator<Item = Delay>) {
    for (ms, recorded_percent) in delays {
        let recorded_ms = ms * recorded_percent / 100;
        history.count(load, recorded_ms);
        let recorded = history.counted();
        history.count(load, ms - recorded_ms);
        history.observe(&with_records(history, &recorded));
    }
}

/// Snapshot whose block records are those of an earlier time.
fn with_records(history: &History, recorded: &Load) -> Snapshot {
    let Load { fetched_bytes, refetched_bytes, cpu_reclaimed_bytes, bounces, .. } = *recorded;
    let Load { peer_reclaimed_bytes, peer_bounces, .. } = *recorded;
    let counted = Load {
        fetched_bytes,
        refetched_bytes,
        cpu_reclaimed_bytes,
        bounces,
        peer_reclaimed_bytes,
        peer_bounces,
        ..history.counted()
    };
    snapshot(history.now_ms, vec![process(1, history.gpu, &counted)])
}

fn kinds() -> impl Strategy<Value = VerdictKind> {
    proptest::sample::select(ORDER.to_vec())
}

/// Mostly in time, some late by many windows.
fn delays() -> impl Strategy<Value = Vec<Delay>> {
    let ms = prop_oneof![3 => 0_u64..1200, 1 => 1200_u64..20_000];
    proptest::collection::vec((ms, 0_u64..=100), 20..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn steady_program_has_its_verdict_whatever_the_delays(kind in kinds(), before_ms in 0_u64..5000, delays in delays()) {
        let total_ms: u64 = delays.iter().map(|(ms, _)| ms).sum();
        prop_assume!(total_ms >= 3 * WINDOW_MS);
        let mut history = History::new();
        history.judge = std::mem::take(&mut history.judge).with_interval(Duration::from_secs(1));
        history.run(&idles(), before_ms, 1000);
        run_late(&mut history, &load_of(kind), delays.iter().copied().chain([(1000, 100)]));
        let reported: Vec<_> = history.reported().into_iter().map(|(kind, _, ended)| (kind, ended)).collect();
        prop_assert_eq!(reported, [(kind, None)]);
        prop_assert_eq!(history.judge.verdicts().unjudged_windows, 0);
    }
}

#[test]
fn window_whose_records_are_late_lasts_until_they_are_read() {
    let mut history = History::new();
    history.run(&idles(), 5000, 1000);
    // 128 MiB moved while the collector was delayed between records and counts.
    run_late(&mut history, &streams(), [(2000, 0)]);
    assert_eq!(history.active(), None);
    run_late(&mut history, &idles(), [(1000, 100)]);
    assert_eq!(history.active(), Some(Streaming));
    assert_eq!(history.judge.verdicts().active[0].window, Duration::from_secs(3));
}

#[test]
fn window_does_not_wait_for_records_that_never_come() {
    // Dropped ones.
    let unrecorded = Load { fetched_bytes: 0, throttles: 60, ..streams() };
    let mut history = History::new();
    history.count(&unrecorded, 2000);
    let mut taken = snapshot(2000, vec![history.process()]);
    taken.processes[0].blocks.dropped_records = 100;
    history.observe(&taken);
    assert_eq!(history.active(), Some(VerdictKind::DriverThrottling));
    // Without records, a window lasts one reading longer at most.
    let mut history = History::new();
    history.run(&unrecorded, 3000, 1000);
    assert_eq!(history.active(), Some(VerdictKind::DriverThrottling));
    // With records off, no longer.
    let mut history = History::new();
    for second in 1..=2 {
        history.count(&unrecorded, 1000);
        let mut taken = snapshot(second * 1000, vec![history.process()]);
        taken.source.block_records.is_off = true;
        history.observe(&taken);
    }
    assert_eq!(history.active(), Some(VerdictKind::DriverThrottling));
}

#[test]
fn process_that_exits_is_judged_without_records() {
    let mut history = History::new();
    history.count(&Load { throttles: 60, ..streams() }, 2000);
    let recorded = Load::default();
    let mut taken = with_records(&history, &recorded);
    taken.processes[0].exited_at = Some(at(2000));
    history.observe(&taken);
    assert_eq!(history.reported(), [(VerdictKind::DriverThrottling, 2, Some(2))]);
}

/// A start that fits, with 2 s of thrashing, then more of the start, all read at once.
fn late_reading(interval: Duration) -> History {
    let mut history = History::new();
    history.judge = std::mem::take(&mut history.judge).with_interval(interval);
    history.run(&starts(), 10_000, 1000);
    history.count(&thrashes(), 2000);
    history.count(&starts(), 10_000);
    history.take_snapshot();
    history.run(&starts(), 4000, 1000);
    history
}

#[test]
fn windows_that_a_late_reading_covers_together_are_reported_as_not_judged() {
    let verdicts = late_reading(Duration::from_secs(1)).judge.verdicts();
    let expected = Unjudged { process: id(1), gpu: GPU, started_at: at(10_000), ended_at: at(22_000), windows: 6 };
    assert_eq!((verdicts.active.len(), verdicts.unjudged_windows), (0, 6));
    assert_eq!(verdicts.unjudged, [expected]);
}

/// A start that fits, and a late reading whose records are late too.
fn late_reading_without_records() -> History {
    let mut history = History::new();
    history.judge = std::mem::take(&mut history.judge).with_interval(Duration::from_secs(1));
    history.run(&starts(), 10_000, 1000);
    run_late(&mut history, &starts(), [(12_000, 0)]);
    history
}

#[test]
fn consecutive_late_readings_of_one_window_are_reported_together() {
    let mut history = late_reading_without_records();
    assert_eq!(history.judge.verdicts().unjudged_windows, 0, "it awaits records");
    run_late(&mut history, &starts(), [(10_000, 100)]);
    let verdicts = history.judge.verdicts();
    let expected = Unjudged { process: id(1), gpu: GPU, started_at: at(10_000), ended_at: at(32_000), windows: 11 };
    assert_eq!((verdicts.unjudged_windows, verdicts.unjudged), (11, vec![expected]));
}

#[test]
fn late_reading_before_counts_decreased_is_not_reported() {
    let mut history = late_reading_without_records();
    let taken = |ms, bytes| {
        let counted = Load { bytes_htod: bytes, fetched_bytes: bytes, ..Load::default() };
        snapshot(ms, vec![process(1, GPU, &counted)])
    };
    for second in 0..5 {
        history.observe(&taken(23_000 + 2000 * second, 64 * MIB * second));
    }
    assert_eq!((history.active(), history.judge.verdicts().unjudged_windows), (None, 0));
}

#[test]
fn readings_at_the_configured_interval_are_not_late() {
    assert_eq!(late_reading(Duration::from_secs(7)).judge.verdicts().unjudged_windows, 0);
    let mut history = History::new();
    history.run(&starts(), 60_000, 1000);
    assert_eq!(history.judge.verdicts().unjudged_windows, 0);
    // An idle process has no windows.
    history.run(&idles(), 60_000, 30_000).run(&trickles(), 10_000, 10_000);
    assert_eq!(history.judge.verdicts().unjudged_windows, 0);
}

#[test]
fn late_reading_ends_no_verdict_alone() {
    let mut history = History::new();
    history.run(&thrashes(), 10_000, 1000);
    history.run(&starts(), 10_000, 10_000);
    assert_eq!((history.active(), history.judge.verdicts().unjudged_windows), (Some(CapacityThrash), 5));
    history.run(&thrashes(), 2000, 1000);
    assert_eq!(history.reported(), [(CapacityThrash, 2, None)]);
}

#[test]
fn late_readings_that_are_remembered_are_limited() {
    let mut history = History::new();
    history.run(&starts(), 1_000_000, 10_000);
    let verdicts = history.judge.verdicts();
    assert_eq!((verdicts.unjudged.len(), verdicts.unjudged_windows), (policy::thresholds::UNJUDGED_MAX, 500));
}

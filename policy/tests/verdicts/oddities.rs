//! Snapshots out of the ordinary: new and exited processes, repeated or decreasing counters, a
//! calendar that is set, and GPUs that are identified late.

use model::{GpuKey, Process, ProcessId, VerdictKind::CapacityThrash};
use policy::{Change, Judge};

use crate::support::*;

fn thrashing() -> History {
    let mut history = History::new();
    history.run(&thrashes(), 10_000, 1000);
    assert_eq!(history.active(), Some(CapacityThrash));
    history
}

#[test]
fn counts_before_the_first_snapshot_are_not_judged() {
    let mut history = History::new();
    history.judge = Judge::default();
    history.count(&thrashes(), 60_000);
    history.take_snapshot();
    history.run(&idles(), 10_000, 1000);
    assert!(history.changes.is_empty());
}

#[test]
fn counts_of_a_new_process_fall_into_the_current_window() {
    let mut history = History::new();
    history.run(&idles(), 3000, 1000);
    let mut late = History::new();
    late.count(&thrashes(), 2000);
    let late = Process { id: ProcessId { pid: 2, start_ticks: 9 }, ..late.process() };
    history.observe(&snapshot(5000, vec![late]));
    let verdicts = history.judge.verdicts();
    assert_eq!(verdicts.active.iter().map(|verdict| ms(verdict.started_at)).collect::<Vec<_>>(), [3000]);
}

#[test]
fn vanished_process_has_no_active_verdict() {
    let mut history = thrashing();
    history.observe(&snapshot(11_000, Vec::new()));
    assert_eq!(history.active(), None);
    assert_eq!(ended(&history)[0].ended_at, Some(at(10_000)));
    assert!(matches!(history.changes.last(), Some((_, Change::Ended(_)))));
}

#[test]
fn exit_ends_a_verdict_at_once_and_the_process_may_return() {
    let mut history = thrashing();
    let ended_process = Process { exited_at: Some(at(10_500)), ..history.process() };
    history.observe(&snapshot(11_000, vec![ended_process]));
    assert_eq!(history.active(), None);
    history.run(&idles(), 5000, 1000).run(&thrashes(), 4000, 1000);
    assert_eq!(history.reported().len(), 2);
    assert_eq!(ms(history.judge.verdicts().active[0].started_at), 15_000);
}

#[test]
fn repeated_readings_of_equal_counters_change_nothing() {
    let mut history = thrashing();
    for _ in 0..100 {
        history.take_snapshot();
    }
    assert_eq!(history.active(), Some(CapacityThrash));
}

#[test]
fn calendar_that_is_set_changes_neither_windows_nor_the_duration_of_a_verdict() {
    const HOUR_MS: i64 = 3_600_000;
    let with_calendar_set_by = |set_by_ms: i64| {
        let mut history = History::new();
        history.run(&idles(), 2 * HOUR_MS.unsigned_abs(), 60_000).run(&thrashes(), 10_000, 1000);
        history.set_by_ms = set_by_ms;
        history.run(&idles(), 1000, 1000).run(&thrashes(), 10_000, 1000).run(&idles(), 20_000, 1000);
        let over = ended(&history).remove(0);
        (history.reported(), over.window, over.ended_at.unwrap().duration_since(over.started_at).unwrap())
    };
    let undisturbed = with_calendar_set_by(0);
    assert_eq!(undisturbed.0.len(), 1);
    for set_by_ms in [-2 * HOUR_MS, -HOUR_MS, HOUR_MS, 24 * 365 * HOUR_MS] {
        assert_eq!(with_calendar_set_by(set_by_ms), undisturbed, "{set_by_ms} ms");
    }
}

#[test]
fn verdict_is_published_with_the_time_of_the_calendar_at_its_start() {
    let mut history = History::new();
    history.set_by_ms = 3_600_000;
    history.run(&idles(), 3000, 1000).run(&thrashes(), 4000, 1000);
    assert_eq!(ms(history.judge.verdicts().active[0].started_at), 3_603_000);
}

#[test]
fn decreasing_counters_begin_a_new_window() {
    let mut history = thrashing();
    let mut fresh = History::new();
    fresh.now_ms = history.now_ms;
    std::mem::swap(&mut fresh.judge, &mut history.judge);
    fresh.run(&thrashes(), 10_000, 1000);
    assert_eq!(fresh.active(), Some(CapacityThrash));
    assert!(fresh.changes.is_empty());
    fresh.run(&idles(), 10_000, 1000);
    assert_eq!(ended(&fresh).len(), 1);
}

#[test]
fn verdict_moves_to_its_gpu_once_it_is_known() {
    for known in [GPU, GpuKey::Unknown(1)] {
        let mut history = History::new();
        history.gpu = GpuKey::Pending(1);
        history.run(&thrashes(), 10_000, 1000);
        assert_eq!(history.judge.verdicts().active[0].gpu, GpuKey::Pending(1));
        history.gpu = known;
        history.gpu_has_id = Some(1);
        history.run(&thrashes(), 10_000, 1000);
        assert_eq!(history.reported(), [(CapacityThrash, 2, None)]);
        assert_eq!(history.judge.verdicts().active[0].gpu, known);
        // Counts from before it was known did not arrive in one window.
        assert!(history.judge.verdicts().active[0].inputs.bytes_htod <= 128 * MIB);
    }
}

#[test]
fn pending_gpu_that_vanishes_unidentified_has_no_active_verdict() {
    let mut history = History::new();
    history.gpu = GpuKey::Pending(1);
    history.run(&thrashes(), 10_000, 1000);
    history.gpu = GPU;
    history.take_snapshot();
    assert_eq!(history.active(), None);
    history.run(&thrashes(), 2000, 1000);
    assert_eq!(history.active(), Some(CapacityThrash));
}

#[test]
fn identification_of_a_gpu_is_no_traffic() {
    let mut history = History::new();
    history.gpu = GpuKey::Pending(1);
    // All of it in one instant before the move, so that there is no window yet.
    history.run(&idles(), 10_000, 1000);
    history.count(&thrashes(), 100);
    history.take_snapshot();
    history.gpu = GPU;
    history.run(&idles(), 10_000, 1000);
    assert!(history.changes.is_empty(), "{:?}", history.changes);
}

#[test]
fn oldest_ended_verdicts_are_forgotten_beyond_the_limit() {
    let mut history = History::new();
    for _ in 0..300 {
        history.run(&thrashes(), 2000, 1000).run(&idles(), 5000, 1000);
    }
    assert_eq!(history.reported().len(), 300);
    let ended = history.judge.verdicts().ended;
    assert_eq!(ended.len(), policy::thresholds::ENDED_MAX);
    assert!(ended.windows(2).all(|pair| pair[0].ended_at > pair[1].ended_at), "the latest first");
}

#[test]
fn cpu_faults_before_the_first_use_of_a_gpu_are_ignored() {
    let mut history = History::new();
    let mut busy_cpu = history.process();
    busy_cpu.gpus.clear();
    busy_cpu.host.cpu_read_faults = 1_000_000;
    history.observe(&snapshot(1000, vec![busy_cpu]));
    let mut used = History::new();
    used.count(&thrashes(), 2000);
    let mut used = used.process();
    used.host.cpu_read_faults = 1_000_003;
    used.gpus = used.gpus.into_values().map(|counters| (GpuKey::Unknown(3), counters)).collect();
    used.reuse = used.reuse.into_values().map(|reuse| (GpuKey::Unknown(3), reuse)).collect();
    history.observe(&snapshot(3000, vec![used]));
    assert_eq!(history.judge.verdicts().active[0].inputs.cpu_faults, 3);
}

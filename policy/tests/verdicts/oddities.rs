//! Irregular snapshots.

use model::{GpuKey, Process, ProcessId, VerdictKind::CapacityThrash};
use policy::{Change, Judge};

use crate::support::*;

fn thrashing() -> History {
    let mut history = History::new();
    history.pass(&thrashes(), 10_000, 1000);
    assert_eq!(history.standing(), Some(CapacityThrash));
    history
}

#[test]
fn what_was_counted_before_the_first_snapshot_is_not_judged() {
    let mut history = History::new();
    history.judge = Judge::default();
    history.count(&thrashes(), 60_000);
    history.look();
    history.pass(&idles(), 10_000, 1000);
    assert!(history.changes.is_empty());
}

#[test]
fn a_process_that_was_not_there_before_did_all_of_it_since() {
    let mut history = History::new();
    history.pass(&idles(), 3000, 1000);
    let mut late = History::new();
    late.count(&thrashes(), 2000);
    let late = Process { id: ProcessId { pid: 2, start_ticks: 9 }, ..late.process() };
    history.observe(&snapshot(5000, vec![late]));
    let verdicts = history.judge.verdicts();
    assert_eq!(verdicts.active.iter().map(|verdict| ms(verdict.started_at)).collect::<Vec<_>>(), [3000]);
}

#[test]
fn a_process_that_vanishes_has_no_verdict_any_more() {
    let mut history = thrashing();
    history.observe(&snapshot(11_000, Vec::new()));
    assert_eq!(history.standing(), None);
    assert_eq!(ended(&history)[0].ended_at, Some(at(10_000)));
    assert!(matches!(history.changes.last(), Some((_, Change::Ended(_)))));
}

#[test]
fn a_process_that_ended_is_over_at_once_and_may_come_again() {
    let mut history = thrashing();
    let ended_process = Process { exited_at: Some(at(10_500)), ..history.process() };
    history.observe(&snapshot(11_000, vec![ended_process]));
    assert_eq!(history.standing(), None);
    history.pass(&idles(), 5000, 1000).pass(&thrashes(), 4000, 1000);
    assert_eq!(history.told().len(), 2);
    assert_eq!(ms(history.judge.verdicts().active[0].started_at), 15_000);
}

#[test]
fn two_readings_of_the_same_counters_change_nothing() {
    let mut history = thrashing();
    for _ in 0..100 {
        history.look();
    }
    assert_eq!(history.standing(), Some(CapacityThrash));
}

#[test]
fn a_clock_that_is_set_back_costs_a_window_and_no_more() {
    let mut history = thrashing();
    history.now_ms = 1000;
    history.pass(&thrashes(), 20_000, 1000);
    assert_eq!(history.told().len(), 1, "{:?}", history.changes);
    history.pass(&idles(), 10_000, 1000);
    let over = &ended(&history)[0];
    assert!(over.ended_at.unwrap() >= over.started_at);
    history.pass(&thrashes(), 5000, 1000);
    assert_eq!(history.standing(), Some(CapacityThrash));
}

#[test]
fn a_clock_that_is_set_back_behind_the_beginning_makes_no_verdict_end_before_it_began() {
    let mut history = History::new();
    history.now_ms = 100_000;
    history.look();
    history.pass(&thrashes(), 4000, 1000);
    history.now_ms = 10_000;
    history.pass(&thrashes(), 10_000, 1000).pass(&idles(), 10_000, 1000);
    let over = &ended(&history)[0];
    assert_eq!(over.ended_at, Some(over.started_at));
}

#[test]
fn counters_that_go_back_begin_a_new_window() {
    let mut history = thrashing();
    let mut fresh = History::new();
    fresh.now_ms = history.now_ms;
    std::mem::swap(&mut fresh.judge, &mut history.judge);
    fresh.pass(&thrashes(), 10_000, 1000);
    assert_eq!(fresh.standing(), Some(CapacityThrash));
    assert!(fresh.changes.is_empty());
    fresh.pass(&idles(), 10_000, 1000);
    assert_eq!(ended(&fresh).len(), 1);
}

#[test]
fn a_verdict_moves_to_its_gpu_once_that_is_known() {
    for known in [GPU, GpuKey::Unknown(1)] {
        let mut history = History::new();
        history.gpu = GpuKey::Pending(1);
        history.pass(&thrashes(), 10_000, 1000);
        assert_eq!(history.judge.verdicts().active[0].gpu, GpuKey::Pending(1));
        history.gpu = known;
        history.gpu_has_id = Some(1);
        history.pass(&thrashes(), 10_000, 1000);
        assert_eq!(history.told(), [(CapacityThrash, 2, None)]);
        assert_eq!(history.judge.verdicts().active[0].gpu, known);
        // Counts from before it was known did not arrive in one window.
        assert!(history.judge.verdicts().active[0].inputs.bytes_htod <= 128 * MIB);
    }
}

#[test]
fn a_gpu_of_which_nobody_tells_what_it_became_has_no_verdict_any_more() {
    let mut history = History::new();
    history.gpu = GpuKey::Pending(1);
    history.pass(&thrashes(), 10_000, 1000);
    history.gpu = GPU;
    history.look();
    assert_eq!(history.standing(), None);
    history.pass(&thrashes(), 2000, 1000);
    assert_eq!(history.standing(), Some(CapacityThrash));
}

#[test]
fn becoming_known_is_no_traffic() {
    let mut history = History::new();
    history.gpu = GpuKey::Pending(1);
    // All of it in one instant before the move, so that there is no window yet.
    history.pass(&idles(), 10_000, 1000);
    history.count(&thrashes(), 100);
    history.look();
    history.gpu = GPU;
    history.pass(&idles(), 10_000, 1000);
    assert!(history.changes.is_empty(), "{:?}", history.changes);
}

#[test]
fn the_oldest_of_many_ended_verdicts_are_forgotten() {
    let mut history = History::new();
    for _ in 0..300 {
        history.pass(&thrashes(), 2000, 1000).pass(&idles(), 5000, 1000);
    }
    assert_eq!(history.told().len(), 300);
    let ended = history.judge.verdicts().ended;
    assert_eq!(ended.len(), policy::thresholds::ENDED_MAX);
    assert!(ended.windows(2).all(|pair| pair[0].ended_at > pair[1].ended_at), "the latest first");
}

#[test]
fn cpu_faults_before_a_gpu_is_used_belong_to_no_window_of_it() {
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

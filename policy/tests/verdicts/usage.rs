//! Usage of a job by step, which outlives the processes.

use std::{collections::BTreeMap, time::Duration};

use model::{
    Counters, Gpu, Job, Owner, OwnerKey, OwnerTotals, OwnerUsage, Process, ProcessId, Snapshot, StepUsage, Usage,
    VerdictKind, usage::STEPS_MAX,
};

use crate::support::*;

fn job() -> OwnerKey {
    OwnerKey::Job("4711".to_owned())
}

fn listed() -> BTreeMap<OwnerKey, OwnerTotals> {
    let totals = OwnerTotals {
        host: Counters::ZERO,
        gpus: BTreeMap::new(),
        reuse: BTreeMap::new(),
        processes: 1,
        last_active_at: at(0),
    };
    [(job(), totals)].into()
}

fn in_step(step: &str, process: Process) -> Process {
    let job = Job { id: "4711".to_owned(), step: Some(step.to_owned()) };
    Process { owner: Owner { job: Some(job), ..Owner::default() }, ..process }
}

fn with_pid(pid: u32, process: Process) -> Process {
    Process { id: ProcessId { pid, start_ticks: 1 }, ..process }
}

/// Snapshot of the job's processes.
fn seen(history: &History, processes: Vec<Process>) -> Snapshot {
    let mut taken = Snapshot { owners: listed(), ..snapshot(history.now_ms, processes) };
    taken.gpus.insert(GPU, Gpu { memory_bytes: Some(100 * MIB), ..Gpu::default() });
    taken
}

/// Seconds under a load, in step 0.
fn pass(history: &mut History, load: &Load, seconds: u64) {
    for _ in 0..seconds {
        history.count(load, 1000);
        let taken = seen(history, vec![in_step("0", history.process())]);
        history.observe(&taken);
    }
}

fn usage(history: &History) -> OwnerUsage {
    history.judge.verdicts().usage.of(&job()).cloned().unwrap_or_default()
}

fn step<'a>(usage: &'a OwnerUsage, name: &str) -> &'a StepUsage {
    &usage.steps[&Some(name.to_owned())]
}

#[test]
fn steps_have_their_own_sums_which_outlive_processes_and_end_with_the_job() {
    let mut history = History::new();
    pass(&mut history, &thrashes(), 20);
    let thrashed = history.counted();
    let ended = Process { exited_at: Some(at(history.now_ms)), ..in_step("0", history.process()) };
    // Step 1 touches memory that fits, with another process.
    history.count(&idles(), 1000);
    let fits = |load| in_step("1", with_pid(2, process(2, GPU, &load)));
    let taken = seen(&history, vec![ended, fits(starts())]);
    history.observe(&taken);
    history.count(&idles(), 1000);
    // All is forgotten but the job.
    let taken = seen(&history, Vec::new());
    history.observe(&taken);
    let known = usage(&history);
    let (zero, one) = (step(&known, "0"), step(&known, "1"));
    assert_eq!(
        (zero.traffic.bytes_htod, zero.traffic.refetched_bytes),
        (thrashed.bytes_htod, thrashed.refetched_bytes)
    );
    assert_eq!(zero.traffic.evicted_bytes, thrashed.evicted_bytes);
    let thrash = zero.verdict_time[&VerdictKind::CapacityThrash];
    assert!((18.0..=20.0).contains(&thrash.as_secs_f64()), "{thrash:?}");
    assert_eq!((one.traffic.bytes_htod, one.traffic.refetched_bytes), (64 * MIB, 0));
    assert!(!one.verdict_time.contains_key(&VerdictKind::CapacityThrash), "{one:?}");
    assert_eq!(known.total().traffic.bytes_htod, thrashed.bytes_htod + 64 * MIB);
    let worst = known.worst.unwrap();
    assert_eq!((worst.verdict.kind, worst.process.id.pid), (VerdictKind::CapacityThrash, 1));
    assert!(worst.verdict.ended_at.is_some());
    history.observe(&Snapshot { owners: BTreeMap::new(), ..snapshot(history.now_ms + 1000, Vec::new()) });
    assert_eq!(usage(&history), OwnerUsage::default());
}

#[test]
fn verdict_time_of_steps_adds_up_to_that_of_the_owner() {
    let mut history = History::new();
    pass(&mut history, &thrashes(), 9);
    pass(&mut history, &idles(), 20);
    pass(&mut history, &thrashes(), 9);
    let known = history.judge.verdicts();
    let of_owner: Duration = known.verdict_time.values().sum();
    let of_steps: Duration = usage(&history).total().verdict_time.values().sum();
    assert_eq!(of_steps, of_owner);
}

#[test]
fn counts_of_a_later_snapshot_are_added_to_those_that_were_judged() {
    let mut history = History::new();
    pass(&mut history, &thrashes(), 5);
    history.count(&thrashes(), 500);
    let later = seen(&history, vec![in_step("0", history.process())]);
    let mut known = history.judge.verdicts().usage.as_ref().clone();
    for _ in 0..2 {
        known.observe(&later);
        let known = known.of(&job()).unwrap();
        assert_eq!(step(known, "0").traffic.bytes_htod, history.counted().bytes_htod);
    }
}

#[test]
fn counts_before_a_process_changes_its_step_stay_there() {
    let mut history = History::new();
    pass(&mut history, &thrashes(), 5);
    history.count(&thrashes(), 1000);
    let taken = seen(&history, vec![in_step("batch", history.process())]);
    history.observe(&taken);
    let known = usage(&history);
    assert_eq!(step(&known, "0").traffic.bytes_htod, 5 * 64 * MIB);
    assert_eq!(step(&known, "batch").traffic.bytes_htod, 64 * MIB);
}

#[test]
fn steps_beyond_the_maximum_are_counted_together() {
    let mut known = Usage::default();
    let mut processes = Vec::new();
    for pid in 1..=u32::try_from(STEPS_MAX).unwrap() + 3 {
        processes.push(in_step(&pid.to_string(), with_pid(pid, process(pid, GPU, &starts()))));
    }
    known.observe(&Snapshot { owners: listed(), ..snapshot(1000, processes) });
    let usage = known.of(&job()).unwrap();
    assert_eq!(usage.steps.len(), STEPS_MAX + 1);
    assert_eq!(usage.steps[&None].traffic.bytes_htod, 3 * 64 * MIB);
}

#[test]
fn peak_is_the_maximum_of_managed_memory_of_the_processes_that_run_at_once() {
    let mut known = Usage::default();
    let with =
        |pid, mib: u64| Process { managed_bytes: Some(mib * MIB), ..with_pid(pid, process(pid, GPU, &starts())) };
    let mut taken = seen(&History::new(), vec![in_step("0", with(1, 80)), in_step("1", with(2, 70)), with(3, 50)]);
    known.observe(&taken);
    // The process of step 1 has exited, and another takes its place in less memory.
    let exited = Process { exited_at: Some(at(2000)), ..in_step("1", with(2, 70)) };
    taken.processes = vec![in_step("0", with(1, 80)), exited, in_step("1", with(4, 10))];
    known.observe(&taken);
    let usage = known.of(&job()).unwrap();
    assert_eq!((usage.peak_oversubscription, usage.peak_gpu_oversubscription), (Some(1.5), Some(2.0)));
    assert_eq!(step(usage, "0").peak_oversubscription, Some(0.8));
    assert_eq!(step(usage, "1").peak_oversubscription, Some(0.7));
}

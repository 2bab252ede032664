//! Decisions: one in each stage.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use model::{
    ActuatorKind, Advice, ArmFigures, CallResult, Decision, DecisionId, Expected, GpuUuid, LaunchLead, LinkBytes,
    Place, PlanCounters, PlanEvidence, ProcessId, Share, Stage, VerdictKind,
    decision::{Done, Measured},
    policy::Promise,
    verdict::Inputs,
};

const GIB: u64 = 1 << 30;
/// Faults beside copies of a plan's trial.
const FAULTS_PER_GIB: u64 = 1_100;

/// Processes with their GPUs, by the outcome of the decisions about them.
pub(crate) struct Subjects {
    pub(crate) shadowed: (ProcessId, GpuUuid),
    pub(crate) improved: (ProcessId, GpuUuid),
    pub(crate) harmed: (ProcessId, GpuUuid),
}

/// Decisions about these processes. `text` replaces names and reasons, if it is given.
pub(crate) fn decisions(subjects: &Subjects, text: Option<&'static str>) -> Arc<[Decision]> {
    let Subjects { shadowed, improved, harmed } = *subjects;
    let now = SystemTime::now();
    let share = |at_least, at_most| Share { at_least, at_most };
    let measured = |gib: u64, faults| Measured {
        window: Duration::from_secs(2),
        inputs: Inputs { fault_entries: faults, ..Inputs::default() },
        replays: faults / 60,
        link: Some(LinkBytes { htod: gib * GIB, dtoh: gib * GIB }),
        own_link_bytes: 2 * gib * GIB,
        others_evicted_bytes: 0,
    };
    let confirmed = Decision {
        id: DecisionId(17),
        process: improved.0,
        process_name: "solver".to_owned(),
        gpu: improved.1,
        policy: "cycle",
        override_id: Some("solvers".to_owned()),
        verdict: Some(VerdictKind::CapacityThrash),
        reason: "cyclic accesses to 290 GiB, of which 133 GiB fit".to_owned(),
        bytes: 290 * GIB,
        ranges: vec![(0x7f2a_4000_0000, 0x7f2a_4000_0000 + 290 * GIB)],
        advice: vec![Advice::PreferredLocation(Place::Host)],
        expected: Expected { link_bytes_saved: share(0.4, 0.5), faults_saved: share(0.4, 0.5) },
        created_at: now - Duration::from_secs(95),
        updated_at: now - Duration::from_secs(91),
        stage: Stage::Confirmed,
        before: measured(44, 10_600),
        after: Some(measured(23, 5_100)),
        pace: Some(1.2),
        done: Done { calls: 78_336, touches: 66_000, ..Done::default() },
        actuator: Some(ActuatorKind::Ioctl),
        last_error: None,
        plan: None,
    };
    let shadow = Decision {
        id: DecisionId(18),
        process: shadowed.0,
        process_name: "python".to_owned(),
        gpu: shadowed.1,
        override_id: Some("llm".to_owned()),
        stage: Stage::Shadow("the mode is shadow".to_owned()),
        reason: "cyclic accesses to 187 GiB, of which 118 GiB fit".to_owned(),
        expected: Expected { link_bytes_saved: share(0.5, 0.6), faults_saved: share(0.5, 0.6) },
        after: None,
        pace: None,
        ..confirmed.clone()
    };
    let rolled_back = Decision {
        id: DecisionId(16),
        process: harmed.0,
        process_name: "cudf-worker".to_owned(),
        gpu: harmed.1,
        policy: "tenants",
        override_id: None,
        stage: Stage::RolledBack("faults for the same work grew by 31 %".to_owned()),
        reason: "11 GiB of its memory are evicted for another process".to_owned(),
        created_at: now - Duration::from_secs(63),
        updated_at: now - Duration::from_secs(52),
        after: Some(measured(51, 13_900)),
        pace: Some(0.97),
        done: Done { calls: 410, failed: 2, ..Done::default() },
        last_error: Some(CallResult::Failed("invalid argument".to_owned())),
        ..confirmed.clone()
    };
    let ended = Decision {
        id: DecisionId(15),
        stage: Stage::Ended("the verdict ended".to_owned()),
        created_at: now - Duration::from_secs(200),
        updated_at: now - Duration::from_secs(140),
        ..confirmed.clone()
    };
    let denied = Decision {
        id: DecisionId(14),
        stage: Stage::Denied("host memory is short".to_owned()),
        done: Done::default(),
        actuator: None,
        created_at: now - Duration::from_secs(210),
        updated_at: now - Duration::from_secs(210),
        ..rolled_back.clone()
    };
    let last_denied = last_denied(&shadow, now);
    let trial = trial(&rolled_back, now);
    let mut decisions = [last_denied, trial, shadow, confirmed, rolled_back, ended, denied];
    if let Some(text) = text {
        for decision in &mut decisions {
            decision.policy = text;
            text.clone_into(&mut decision.process_name);
            text.clone_into(&mut decision.reason);
        }
    }
    decisions.into()
}

/// Denial of another policy for the process of a decision in shadow.
fn last_denied(shadow: &Decision, now: SystemTime) -> Decision {
    Decision {
        id: DecisionId(20),
        policy: "hot-cold",
        stage: Stage::Denied("it is larger than the GPU and already evicts processes that fit".to_owned()),
        after: None,
        pace: None,
        done: Done::default(),
        actuator: None,
        created_at: now - Duration::from_secs(4),
        updated_at: now - Duration::from_secs(4),
        ..shadow.clone()
    }
}

/// Median iteration of a trial, of which few counts are measured.
fn iteration(link_gib: u64, duration_ms: u64) -> Measured {
    let inputs = Inputs { fault_entries: link_gib * FAULTS_PER_GIB, ..Inputs::default() };
    let window = Duration::from_millis(duration_ms);
    Measured { window, inputs, own_link_bytes: link_gib * GIB, ..Measured::default() }
}

/// Evidence of a plan within its trial.
fn plan() -> PlanEvidence {
    let arm = |iterations, gib: u64, duration_ns| ArmFigures {
        iterations,
        link_bytes: Some(2 * gib * GIB),
        faults: Some(2 * gib * FAULTS_PER_GIB),
        duration_ns: Some(duration_ns),
    };
    let counters = PlanCounters {
        iterations: 17,
        moves: 2_190,
        late: 12,
        expired: 2,
        skipped: 3,
        to_gpu_bytes: 490 * GIB,
        to_host_bytes: 490 * GIB,
    };
    PlanEvidence {
        planner: "foresight".to_owned(),
        promise: Promise::LinkBytes,
        launches: 412,
        coverage_ratio: Some(0.97),
        lead: LaunchLead::of(&(0..412).map(|lead| lead % 206).collect::<Vec<_>>()),
        planned_moves: 129,
        planned_bytes: 58 * GIB,
        planned_peak_bytes: 78 * GIB,
        room_bytes: 78 * GIB,
        modelled_driver_bytes: 86 * GIB,
        planned_faulted_blocks: 0,
        modelled_driver_faulted_blocks: 22_016,
        blocks: 5,
        without: arm(9, 44, 2_900_000_000),
        with: arm(8, 29, 2_200_000_000),
        p_value: None,
        launches_wait: false,
        counters,
    }
}

/// Decision about a plan within its trial, for the process of another one.
fn trial(other: &Decision, now: SystemTime) -> Decision {
    Decision {
        id: DecisionId(19),
        policy: "auto-plan",
        verdict: None,
        reason: "iterations of 412 launches repeat: a plan of foresight has 129 moves in each, and copies 58 GiB instead of 86 GiB by the model of the driver".to_owned(),
        advice: Vec::new(),
        expected: Expected { link_bytes_saved: Share { at_least: 0.0, at_most: 0.33 }, faults_saved: Share { at_least: 0.0, at_most: 1.0 } },
        before: iteration(88, 2_900),
        after: Some(iteration(58, 2_200)),
        stage: Stage::Trial,
        created_at: now - Duration::from_secs(47),
        updated_at: now - Duration::from_secs(7),
        pace: Some(2_900.0 / 2_200.0),
        done: Done { calls: 2_190, to_gpu_bytes: 490 * GIB, to_host_bytes: 490 * GIB, ..Done::default() },
        actuator: Some(ActuatorKind::Helper),
        last_error: None,
        plan: Some(plan()),
        ..other.clone()
    }
}

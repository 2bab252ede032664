//! Test doubles of the store of overrides, of decisions and of outcomes.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api::rule::{
    Candidate, DisabledBy, EffectivePolicy, OverrideStatus, Overrides, PlanState, PolicyState, check_parameters,
};
use model::{
    Action, ActuatorKind, Advice, AdviceCalls, Budget, Call, CallResult, Decision, DecisionId, Expected, GpuUuid,
    LinkBytes, Mode, Outcome, Override, Place, PlanCounters, PlanEvidence, Process, ProcessId, Selector, Share, Stage,
    Step, VerdictKind,
    decision::{Done, Measured},
    verdict::Inputs,
};
use web::{AdviceJournal, ChangeError, Control, Precondition, PutOutcome, Requester};

use crate::support::at;

pub(crate) const GPU: GpuUuid = GpuUuid([1; 16]);
pub(crate) const HEAVY: ProcessId = ProcessId { pid: 20, start_ticks: 120 };

/// Store of overrides in memory, with one override of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    overrides: Arc<Mutex<Vec<OverrideStatus>>>,
    disabled_by: Arc<Mutex<Option<String>>>,
    is_persist_pending: Arc<AtomicBool>,
    /// Held to stall changes, which wait for it.
    pub(crate) disk: Arc<tokio::sync::Mutex<()>>,
}

pub(crate) fn rule(id: &str) -> Override {
    Override {
        selector: Selector { pid: Some(20), range: Some((0, 1 << 21).into()), ..Selector::default() },
        parameters: [("rest".to_owned(), "stream".to_owned())].into(),
        budget: Budget { bytes_per_second: Some(4 << 30), bytes: None },
        expires_at: Some(at(3600)),
        ..Override::new(id, Mode::Shadow, "cycle")
    }
}

/// Overrides with different ids.
pub(crate) fn rules(count: usize) -> Vec<Override> {
    (0..count).map(|at| rule(&format!("rule-{at}"))).collect()
}

fn status(rule: &Override, source: &str) -> OverrideStatus {
    OverrideStatus { r#override: rule.into(), source: source.to_owned(), expired: false, matching_processes: None }
}

impl Store {
    pub(crate) fn new() -> Self {
        let store = Self::default();
        *store.overrides.lock().unwrap() = vec![status(&rule("llm"), "api"), status(&rule("of-file"), "file")];
        store
    }

    /// Store with these overrides.
    pub(crate) fn with(rules: &[Override]) -> Self {
        let store = Self::default();
        *store.overrides.lock().unwrap() = rules.iter().map(|rule| status(rule, "api")).collect();
        store
    }

    /// Removes an override.
    pub(crate) fn remove_now(&self, id: &str) {
        self.overrides.lock().unwrap().retain(|each| each.r#override.id.as_deref() != Some(id));
    }

    fn check(&self, id: &str, precondition: &Precondition) -> Result<Option<usize>, ChangeError> {
        let overrides = self.overrides.lock().unwrap();
        let at = overrides.iter().position(|each| each.r#override.id.as_deref() == Some(id));
        match at.map(|at| &overrides[at]) {
            Some(each) if each.source == "file" => Err(ChangeError::InFile("/etc/uvmd/overrides.toml".to_owned())),
            each if !precondition(each) => Err(ChangeError::PreconditionFailed),
            _ => Ok(at),
        }
    }
}

impl Control for Store {
    fn overrides(&self) -> Overrides {
        let overrides = self.overrides.lock().unwrap().clone();
        Overrides { overrides, file_error: Some("line 3".to_owned()), ..Overrides::default() }
    }

    fn put(&self, mut rule: Override, _: &Requester, precondition: &Precondition) -> Result<PutOutcome, ChangeError> {
        if rule.selector.pid == Some(404) {
            return Err(ChangeError::NoProcess("there is no process 404".to_owned()));
        }
        check_parameters(&rule.policy, &rule.parameters).map_err(ChangeError::Invalid)?;
        // The pid is that of the process that has it now.
        rule.selector.start_ticks = rule.selector.pid.map(|_| HEAVY.start_ticks);
        let index = self.check(&rule.id, precondition)?;
        let _disk = self.disk.blocking_lock();
        let now = status(&rule, "api");
        let mut overrides = self.overrides.lock().unwrap();
        match index {
            Some(at) => overrides[at] = now.clone(),
            None => overrides.push(now.clone()),
        }
        Ok(PutOutcome { now, is_new: index.is_none() })
    }

    fn remove(&self, id: &str, _: &Requester, precondition: &Precondition) -> Result<(), ChangeError> {
        let at = self.check(id, precondition)?.ok_or(ChangeError::NotFound)?;
        self.overrides.lock().unwrap().remove(at);
        Ok(())
    }

    fn wanted(&self, process: &Process) -> EffectivePolicy {
        EffectivePolicy {
            pid: process.id.pid,
            start_ticks: process.id.start_ticks,
            name: process.name.clone(),
            override_id: Some("llm".to_owned()),
            mode: "shadow".to_owned(),
            policy: "cycle".to_owned(),
            range: Some((0, 1 << 21).into()),
            reason: "the only override that matches".to_owned(),
            candidates: vec![Candidate {
                id: "llm".to_owned(),
                matches: true,
                selected: true,
                reason: "first".to_owned(),
            }],
            plan: Some(PlanState { state: "watching".to_owned(), ..PlanState::default() }),
            ..EffectivePolicy::default()
        }
    }

    fn is_match(&self, selector: &Selector, process: &Process) -> bool {
        selector.pid.is_none_or(|pid| pid == process.id.pid)
    }

    fn state(&self) -> PolicyState {
        let off = self.disabled_by.lock().unwrap().clone();
        let by =
            |by| DisabledBy { source: "api".to_owned(), actor: by, disabled_at: "2026-08-21T14:06:23.482Z".to_owned() };
        PolicyState {
            active: off.is_none(),
            enabled: true,
            disabled_by: off.map(by).into_iter().collect(),
            persist_pending: self.is_persist_pending.load(Ordering::SeqCst),
            file_error: Some("line 3".to_owned()),
            ..PolicyState::default()
        }
    }

    fn journal(&self) -> Option<AdviceJournal> {
        let warnings = vec!["the journal has 2 lines of a later version".to_owned()];
        Some(AdviceJournal { is_writable: true, unrecognised_bytes: 120, dropped_lines: 3, warnings })
    }

    fn switch_off(&self, by: &Requester) -> Result<(), ChangeError> {
        *self.disabled_by.lock().unwrap() = Some(by.to_string());
        self.is_persist_pending.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn keep_off(&self) {
        drop(self.disk.blocking_lock());
        self.is_persist_pending.store(false, Ordering::SeqCst);
    }

    fn times_off(&self) -> u64 {
        0
    }

    fn switch_on(&self, _: &Requester, _: u64) -> Result<(), ChangeError> {
        *self.disabled_by.lock().unwrap() = None;
        Ok(())
    }
}

fn measured() -> Measured {
    Measured {
        window: Duration::from_secs(2),
        inputs: Inputs::default(),
        replays: 3,
        link: Some(LinkBytes { htod: 5, dtoh: 6 }),
        own_link_bytes: 9,
        others_evicted_bytes: 7,
    }
}

pub(crate) fn decision(id: u64, stage: Stage) -> Decision {
    let share = Share { at_least: 0.5, at_most: 0.65 };
    Decision {
        id: DecisionId(id),
        process: HEAVY,
        process_name: "heavy".to_owned(),
        gpu: GPU,
        policy: "cycle",
        override_id: Some("llm".to_owned()),
        verdict: Some(VerdictKind::CapacityThrash),
        reason: "its accesses are cyclic".to_owned(),
        bytes: 32 << 20,
        ranges: vec![(0x7f2a_4000_0000, 0x7f2a_4200_0000)],
        advice: vec![Advice::PreferredLocation(Place::Host)],
        expected: Expected { link_bytes_saved: share, faults_saved: share },
        created_at: at(10),
        updated_at: at(11),
        stage,
        before: measured(),
        after: Some(measured()),
        pace: Some(1.0),
        done: Done { calls: 1, ..Done::default() },
        actuator: Some(ActuatorKind::Ioctl),
        last_error: Some(CallResult::Failed("invalid argument".to_owned())),
        plan: Some(PlanEvidence {
            planner: "foresight".to_owned(),
            counters: PlanCounters { moves: 26, ..PlanCounters::default() },
            ..PlanEvidence::default()
        }),
    }
}

pub(crate) fn outcome(id: u64) -> Outcome {
    let call = |action, result| Call {
        step: Step { begin: 0x7f2a_4000_0000, end: 0x7f2a_4020_0000, action },
        result,
        duration_ns: 9,
    };
    Outcome {
        decision: DecisionId(id),
        process: HEAVY,
        gpu: GPU,
        is_rollback: false,
        actuator: Some(ActuatorKind::Helper),
        calls: vec![
            call(Action::Migrate(Place::Gpu(GPU)), CallResult::Done),
            call(Action::Migrate(Place::Host), CallResult::NotMapped),
            call(Action::Advise(Advice::AccessedBy(GPU)), CallResult::Done),
        ],
        advice_calls: AdviceCalls::default(),
        ready_ns: 0,
    }
}

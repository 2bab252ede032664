//! Overrides that select the policies of decisions. They cannot be changed.

use std::sync::Arc;

use api::rule::{self, Candidate, EffectivePolicy, OverrideStatus, PolicyState, Restriction};
use model::{Budget, Override, Process, Selector};
use web::{ChangeError, Control, Precondition, PutOutcome, Requester};

const READ_ONLY: &str = "the showcase has fixed overrides";

/// Fixed overrides, each with the process that it matches.
#[derive(Clone, Debug)]
pub(crate) struct Overrides(Arc<[(u32, OverrideStatus)]>);

impl Overrides {
    pub(crate) fn new() -> Self {
        let status = |pid, id: &str, mode: &str, source: &str, selector| {
            let rule = rule::Override {
                id: Some(id.to_owned()),
                selector,
                mode: mode.to_owned(),
                policy: Some("cycle".to_owned()),
                budget: Budget { bytes_per_second: Some(4 << 30), bytes: None },
                ..rule::Override::default()
            };
            (pid, OverrideStatus { r#override: rule, source: source.to_owned(), ..OverrideStatus::default() })
        };
        let pod = Selector { pod: Some("7c1f0c0e-*".to_owned()), ..Selector::default() };
        let job = Selector { job: Some("4711".to_owned()), ..Selector::default() };
        Self([status(41_207, "llm", "shadow", "api", pod), status(52_113, "solvers", "act", "file", job)].into())
    }
}

impl Control for Overrides {
    fn overrides(&self) -> rule::Overrides {
        let overrides = self.0.iter().map(|(_, status)| status.clone()).collect();
        rule::Overrides { overrides, ..rule::Overrides::default() }
    }

    fn put(&self, _: Override, _: &Requester, _: &Precondition) -> Result<PutOutcome, ChangeError> {
        Err(ChangeError::NotSaved(READ_ONLY.to_owned()))
    }

    fn remove(&self, _: &str, _: &Requester, _: &Precondition) -> Result<(), ChangeError> {
        Err(ChangeError::NotSaved(READ_ONLY.to_owned()))
    }

    fn wanted(&self, process: &Process) -> EffectivePolicy {
        let selected = self.0.iter().find(|(pid, _)| *pid == process.id.pid).map(|(_, status)| &status.r#override);
        let candidate = |(pid, status): &(u32, OverrideStatus)| {
            let matches = *pid == process.id.pid;
            let reason = if matches { "selected" } else { "match.pod does not match" };
            let id = status.r#override.id.clone().unwrap_or_default();
            Candidate { id, matches, selected: matches, reason: reason.to_owned() }
        };
        EffectivePolicy {
            pid: process.id.pid,
            start_ticks: process.id.start_ticks,
            name: process.name.clone(),
            override_id: selected.and_then(|rule| rule.id.clone()),
            mode: selected.map_or_else(|| "act".to_owned(), |rule| rule.mode.clone()),
            policy: selected.and_then(|rule| rule.policy.clone()).unwrap_or_else(|| "auto-live".to_owned()),
            budget: selected.map(|rule| rule.budget).unwrap_or_default(),
            reason: if selected.is_some() { "it is the only override that matches" } else { "no override matches" }
                .to_owned(),
            active: true,
            candidates: self.0.iter().map(candidate).collect(),
            restrictions: vec![Restriction {
                gpu_uuid: None,
                scope: "moves".to_owned(),
                label: "No moves".to_owned(),
                reason: "the budget is spent".to_owned(),
            }],
            ..EffectivePolicy::default()
        }
    }

    fn is_match(&self, _: &Selector, _: &Process) -> bool {
        false
    }

    fn state(&self) -> PolicyState {
        PolicyState {
            active: true,
            enabled: true,
            default_mode: "act".to_owned(),
            default_policy: "auto-live".to_owned(),
            overrides: self.0.len() as u64,
            ..PolicyState::default()
        }
    }

    fn switch_off(&self, _: &Requester) -> Result<(), ChangeError> {
        Err(ChangeError::NotSaved(READ_ONLY.to_owned()))
    }

    fn keep_off(&self) {}

    fn times_off(&self) -> u64 {
        0
    }

    fn switch_on(&self, _: &Requester, _: u64) -> Result<(), ChangeError> {
        Err(ChangeError::NotSaved(READ_ONLY.to_owned()))
    }
}

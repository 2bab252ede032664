//! Changes over the API: overrides and the kill switch; and the resulting policy of a process.

use std::{cell::RefCell, path::Path, sync::Arc};

use actuator::JournalHealth;
use api::rule::{Candidate, EffectivePolicy, Overrides, PlanState, PolicyState, Restriction};
use model::{Mode, Override, Process, Selector};
use policy::rules::{self, Explained, MatchResult, Subject};
use sys::{Roots, processes};
use web::{AdviceJournal, ChangeError, Precondition, PutOutcome, Requester};

use crate::{
    acting::{BoardReader, Executables},
    audit::{Audit, Change, Outcome},
    rules::{Announce, Rules},
    switch::Switch,
};

/// Implementation of the changes.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) rules: Rules,
    pub(crate) switch: Switch,
    /// Whether the configuration lets uvmd act at all.
    pub(crate) enabled: bool,
    /// Decisions and restrictions of the loop that acts.
    pub(crate) reader: BoardReader,
    /// Programs as that loop knows them.
    pub(crate) executables: Executables,
    /// Audit log of the changes.
    pub(crate) audit: Audit,
}

impl web::Control for Control {
    fn overrides(&self) -> Overrides {
        self.rules.overrides()
    }

    fn put(&self, rule: Override, by: &Requester, fits: &Precondition) -> Result<PutOutcome, ChangeError> {
        let change = |before: Option<&Override>, after: Option<&Override>| Change::OverridePut {
            id: rule.id.clone(),
            etag_before: before.map(etag),
            etag_after: after.map(etag),
            r#override: Box::new(after.unwrap_or(&rule).into()),
            result: Outcome::Accepted,
        };
        // An override with mode observe reduces what uvmd does.
        let must_be_recorded = rule.mode != Mode::Observe;
        let put = self.audited(by, change, must_be_recorded, |announce| self.rules.put(&rule, fits, announce))?;
        tracing::info!("override {}: {} by {}, set by {by}", rule.id, rule.mode.name(), rule.policy);
        Ok(put)
    }

    fn remove(&self, id: &str, by: &Requester, fits: &Precondition) -> Result<(), ChangeError> {
        let change = |before: Option<&Override>, after: Option<&Override>| Change::OverrideDelete {
            id: id.to_owned(),
            etag_before: before.map(etag),
            etag_after: after.map(etag),
            result: Outcome::Accepted,
        };
        self.audited(by, change, false, |announce| self.rules.remove(id, fits, announce))?;
        tracing::info!("override {id} is deleted by {by}");
        Ok(())
    }

    fn wanted(&self, process: &Process) -> EffectivePolicy {
        let executable = self.executable(process);
        let Explained { directive, why, candidates } = self.rules.explain(process, executable.as_deref());
        EffectivePolicy {
            pid: process.id.pid,
            start_ticks: process.id.start_ticks,
            name: process.name.clone(),
            override_id: directive.override_id,
            mode: directive.mode.name().to_owned(),
            policy: directive.policy,
            parameters: directive.parameters,
            budget: directive.budget,
            range: directive.range,
            allocation_larger_than_bytes: directive.allocation_larger_than_bytes,
            reason: why,
            active: self.is_on(),
            candidates: candidates.into_iter().map(|each| candidate(each.id, &each.result)).collect(),
            restrictions: self.restrictions(process),
            plan: self.reader.following().get(&process.id).map(PlanState::from),
        }
    }

    fn is_match(&self, selector: &Selector, process: &Process) -> bool {
        let by_path = selector.executable.as_ref().is_some_and(|executable| executable.contains('/'));
        let executable = by_path.then(|| self.executable(process)).flatten();
        rules::is_match(selector, Subject { process, executable: executable.as_deref() })
    }

    fn state(&self) -> PolicyState {
        let Overrides { overrides, file_error, .. } = self.rules.overrides();
        let fallback = self.rules.fallback();
        PolicyState {
            active: self.is_on(),
            enabled: self.enabled,
            disabled_by: self.switch.disabled_by(),
            persist_pending: self.switch.is_persist_pending(),
            default_mode: fallback.mode.name().to_owned(),
            default_policy: fallback.policy,
            overrides: overrides.iter().filter(|each| !each.expired).count() as u64,
            file_error,
            inactive_reason: None,
            persist_warning: None,
        }
    }

    fn switch_off(&self, by: &Requester) -> Result<(), ChangeError> {
        self.switch.off(&by.to_string());
        // Acting is already off, even if the audit log fails. A line that has no room is counted.
        self.audit.write(Some(by), &Change::PolicyOff { result: Outcome::Accepted });
        Ok(())
    }

    fn keep_off(&self) {
        self.switch.persist_off();
    }

    fn times_off(&self) -> u64 {
        self.switch.times_off()
    }

    fn journal(&self) -> Option<AdviceJournal> {
        self.reader.journal().map(|journal| {
            let JournalHealth { is_writable, unrecognised_bytes, dropped_lines, warnings } = journal;
            AdviceJournal { is_writable, unrecognised_bytes, dropped_lines, warnings }
        })
    }

    fn switch_on(&self, by: &Requester, times_off: u64) -> Result<(), ChangeError> {
        let change = Change::PolicyOn { result: Outcome::Accepted };
        self.audit.change(Some(by), &change, true).map_err(ChangeError::NotAudited)?;
        self.switch.on(&by.to_string(), times_off).map_err(|error| {
            let error = format!("{error:#}");
            self.audit.failed(Some(by), &change, error.clone());
            ChangeError::NotSaved(error)
        })
    }
}

impl Control {
    /// Makes a change, with its audit line first: `make` passes the override before and after.
    fn audited<T>(
        &self,
        by: &Requester,
        change: impl Fn(Option<&Override>, Option<&Override>) -> Change,
        must_be_recorded: bool,
        make: impl FnOnce(Announce<'_>) -> Result<T, ChangeError>,
    ) -> Result<T, ChangeError> {
        let audited = RefCell::new(None);
        let announce = |before: Option<&Override>, after: Option<&Override>| {
            let change = change(before, after);
            self.audit.change(Some(by), &change, must_be_recorded).map_err(ChangeError::NotAudited)?;
            audited.replace(Some(change));
            Ok(())
        };
        let result = make(&announce);
        if let (Err(ChangeError::NotSaved(why)), Some(change)) = (&result, audited.take()) {
            self.audit.failed(Some(by), &change, why.clone());
        }
        result
    }

    /// Program of a process as the loop that acts knows it. Read here only while that reads none.
    fn executable(&self, process: &Process) -> Option<Arc<Path>> {
        match self.executables.known(process.id) {
            Some(known) => known.ok().flatten(),
            None => processes::executable(&Roots::default(), process.id.pid).ok().map(Into::into),
        }
    }

    fn restrictions(&self, process: &Process) -> Vec<Restriction> {
        let all = self.reader.restrictions();
        all.iter().filter(|each| each.process == process.id).map(Restriction::from).collect()
    }

    fn is_on(&self) -> bool {
        self.enabled && self.switch.is_on()
    }
}

fn etag(rule: &Override) -> String {
    web::etag(&api::rule::Override::from(rule))
}

fn candidate(id: String, result: &MatchResult) -> Candidate {
    Candidate { id, matches: result.is_match(), selected: *result == MatchResult::Selected, reason: result.to_string() }
}

#[cfg(test)]
mod tests;

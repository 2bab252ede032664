//! Store of overrides in memory, which costs little: the measured cost is the service's.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use api::rule::{EffectivePolicy, OverrideStatus, Overrides, PolicyState};
use model::{Mode, Override, Process, Selector};
use web::{ChangeError, Control, Precondition, PutOutcome, Requester};

/// Overrides by id.
pub(crate) struct InMemory(Mutex<BTreeMap<String, OverrideStatus>>);

impl InMemory {
    /// Store of `count` overrides, each for another user.
    pub(crate) fn new(count: usize) -> Self {
        let rule = |at: usize| Override {
            selector: Selector { uid: u32::try_from(at).ok().map(|at| at + 10_000), ..Selector::default() },
            ..Override::new(format!("user-{at}"), Mode::Shadow, "cycle")
        };
        Self(Mutex::new((0..count).map(rule).map(|rule| (rule.id.clone(), status(&rule))).collect()))
    }

    fn by_id(&self) -> MutexGuard<'_, BTreeMap<String, OverrideStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn status(rule: &Override) -> OverrideStatus {
    OverrideStatus { r#override: rule.into(), source: "api".to_owned(), ..OverrideStatus::default() }
}

impl Control for InMemory {
    fn overrides(&self) -> Overrides {
        Overrides { overrides: self.by_id().values().cloned().collect(), ..Overrides::default() }
    }

    fn put(&self, rule: Override, _: &Requester, precondition: &Precondition) -> Result<PutOutcome, ChangeError> {
        let mut by_id = self.by_id();
        if !precondition(by_id.get(&rule.id)) {
            return Err(ChangeError::PreconditionFailed);
        }
        let now = status(&rule);
        let is_new = by_id.insert(rule.id, now.clone()).is_none();
        Ok(PutOutcome { now, is_new })
    }

    fn remove(&self, id: &str, _: &Requester, precondition: &Precondition) -> Result<(), ChangeError> {
        let mut by_id = self.by_id();
        if !precondition(Some(by_id.get(id).ok_or(ChangeError::NotFound)?)) {
            return Err(ChangeError::PreconditionFailed);
        }
        by_id.remove(id);
        Ok(())
    }

    fn wanted(&self, _: &Process) -> EffectivePolicy {
        EffectivePolicy::default()
    }

    fn is_match(&self, selector: &Selector, process: &Process) -> bool {
        selector.uid == Some(process.uid)
    }

    fn state(&self) -> PolicyState {
        PolicyState { active: true, enabled: true, ..PolicyState::default() }
    }

    fn switch_off(&self, _: &Requester) -> Result<(), ChangeError> {
        Ok(())
    }

    fn keep_off(&self) {}

    fn times_off(&self) -> u64 {
        0
    }

    fn switch_on(&self, _: &Requester, _: u64) -> Result<(), ChangeError> {
        Ok(())
    }
}

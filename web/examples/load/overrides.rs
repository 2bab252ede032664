//! Overrides that are kept in memory: what they cost on the way in and out is the service's.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use model::{
    Mode, Override, Process, Selector,
    api::rule::{EffectivePolicy, OverrideStatus, Overrides, PolicyState},
};
use web::{ChangeError, Control, Precondition, PutOutcome, Requester};

/// All of them, by name.
pub(crate) struct InMemory(Mutex<BTreeMap<String, OverrideStatus>>);

impl InMemory {
    /// So many, each for another user.
    pub(crate) fn new(count: usize) -> Self {
        let rule = |at: usize| Override {
            id: format!("user-{at}"),
            selector: Selector { uid: u32::try_from(at).ok().map(|at| at + 10_000), ..Selector::default() },
            mode: Mode::Shadow,
            policy: "cycle".to_owned(),
            parameters: [].into(),
            budget: model::Budget::default(),
            priority: 0,
            expires_at: None,
        };
        Self(Mutex::new((0..count).map(rule).map(|rule| (rule.id.clone(), standing(&rule))).collect()))
    }

    fn there(&self) -> MutexGuard<'_, BTreeMap<String, OverrideStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn standing(rule: &Override) -> OverrideStatus {
    OverrideStatus { r#override: rule.into(), source: "api".to_owned(), expired: false }
}

impl Control for InMemory {
    fn overrides(&self) -> Overrides {
        Overrides { overrides: self.there().values().cloned().collect(), ..Overrides::default() }
    }

    fn put(&self, rule: Override, _: &Requester, fits: &Precondition) -> Result<PutOutcome, ChangeError> {
        let mut there = self.there();
        if !fits(there.get(&rule.id)) {
            return Err(ChangeError::PreconditionFailed);
        }
        let now = standing(&rule);
        let is_new = there.insert(rule.id, now.clone()).is_none();
        Ok(PutOutcome { now, is_new })
    }

    fn remove(&self, id: &str, _: &Requester, fits: &Precondition) -> Result<(), ChangeError> {
        let mut there = self.there();
        if !fits(Some(there.get(id).ok_or(ChangeError::NotFound)?)) {
            return Err(ChangeError::PreconditionFailed);
        }
        there.remove(id);
        Ok(())
    }

    fn wanted(&self, _: &Process) -> EffectivePolicy {
        EffectivePolicy::default()
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

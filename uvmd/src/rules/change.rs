//! Overrides made over the API: how they come and go.

use model::{
    Override,
    api::{self, rule::Invalid},
};
use web::{ChangeError, Precondition, PutOutcome};

use super::{Rules, bound, standing};
use crate::audit::Change;

/// Overrides made over the API.
const MAX: usize = 1000;

/// Is told of a change that is about to be made: what there is, and what there will be. What it refuses is not made.
pub(crate) type Announce<'a> = &'a dyn Fn(Option<&Override>, Option<&Override>) -> Result<(), ChangeError>;

/// Change of the audit log for an override that ended by itself.
pub(super) fn end_of(rule: &Override, reason: &'static str) -> Change {
    let etag = web::etag(&api::rule::Override::from(rule));
    Change::OverrideEnd { id: rule.id.clone(), etag_before: Some(etag), reason }
}

impl Rules {
    /// Puts an override in the place of the one of its name, if `announce` lets it. May wait for the disk.
    pub(crate) fn put(
        &self,
        rule: &Override,
        fits: &Precondition,
        announce: Announce<'_>,
    ) -> Result<PutOutcome, ChangeError> {
        api::rule::check_parameters(&rule.policy, &rule.parameters).map_err(ChangeError::Invalid)?;
        let rule = &bound::to_process(rule)?;
        let _changing = self.changing();
        if rule.expires_at.is_some_and(|end| end <= self.now()) {
            let detail = "this time has passed".to_owned();
            return Err(ChangeError::Invalid(Invalid { field: "expires_at".into(), detail }));
        }
        let there = self.there(&rule.id, fits)?;
        let is_new = there.is_none();
        if there.as_ref() != Some(rule) {
            if is_new && self.known().of_api.len() >= MAX {
                return Err(ChangeError::TooMany(MAX));
            }
            announce(there.as_ref(), Some(rule))?;
            self.keep(&rule.id, Some(rule))?;
        }
        Ok(PutOutcome { now: standing(rule, &self.known(), false), is_new })
    }

    /// Takes an override away, if `announce` lets it. May wait for the disk.
    pub(crate) fn remove(&self, id: &str, fits: &Precondition, announce: Announce<'_>) -> Result<(), ChangeError> {
        let _changing = self.changing();
        let there = self.there(id, fits)?.ok_or(ChangeError::NotFound)?;
        announce(Some(&there), None)?;
        self.keep(id, None)
    }

    /// The override of this name, if it is of the API and meets the request's precondition.
    fn there(&self, id: &str, fits: &Precondition) -> Result<Option<Override>, ChangeError> {
        let known = self.known();
        if known.is_of_file(id) {
            return Err(ChangeError::InFile(known.file.display().to_string()));
        }
        let there = known.of_api.iter().find(|rule| rule.id == id);
        let current = there.map(|rule| standing(rule, &known, false));
        if fits(current.as_ref()) { Ok(there.cloned()) } else { Err(ChangeError::PreconditionFailed) }
    }

    /// Keeps this one under the name, or none. For who holds `changing`.
    fn keep(&self, id: &str, rule: Option<&Override>) -> Result<(), ChangeError> {
        let (of_api, expired_of_file) = {
            let known = self.known();
            let beside = known.of_api.iter().filter(|rule| rule.id != id);
            (beside.chain(rule).cloned().collect::<Vec<_>>(), known.expired_of_file.clone())
        };
        let written = bound::write(&self.0.state_file, &of_api, &expired_of_file);
        written.map_err(|error| ChangeError::NotSaved(format!("{error:#}")))?;
        let mut known = self.known();
        // What has ended meanwhile, with its process or by the clock, is not brought back.
        known.of_api.retain(|rule| rule.id != id);
        known.of_api.extend(rule.cloned());
        known.set_aside = None;
        self.apply(&known);
        Ok(())
    }

    /// What was made for a process that has ended is for nobody any more. On the disk it goes with the next change.
    pub(super) fn forget_ended(&self) {
        self.forget(bound::has_ended);
    }

    /// Asks while nobody waits, as that may take its time.
    pub(super) fn forget(&self, has_ended: impl FnMut(&Override) -> bool) {
        let mut ended: Vec<_> =
            self.known().of_api.iter().filter(|rule| rule.selector.pid.is_some()).cloned().collect();
        ended.retain(has_ended);
        if ended.is_empty() {
            return;
        }
        let mut known = self.known();
        // What was put meanwhile, even under the same name, is for another process.
        known.of_api.retain(|rule| {
            let has_ended = ended.contains(rule);
            if has_ended {
                tracing::info!("override {} is deleted: its process has exited", rule.id);
                self.0.audit.write(None, &end_of(rule, "process_exited"));
            }
            !has_ended
        });
        self.apply(&known);
    }
}

//! Overrides of the API: creation and deletion.

use api::{fleet_overrides, rule::Invalid};
use model::Override;
use web::{ChangeError, Precondition, PutOutcome};

use super::{Rules, status, stored};
use crate::audit::Change;

/// Maximum of overrides of the API.
const MAX: usize = 1000;

/// Callback before a change, with the override before and after. An error prevents the change.
pub(crate) type Announce<'a> = &'a dyn Fn(Option<&Override>, Option<&Override>) -> Result<(), ChangeError>;

/// Audit entry for the end of an override.
pub(super) fn end_of(rule: &Override, reason: &'static str) -> Change {
    let etag = web::etag(&api::rule::Override::from(rule));
    Change::OverrideEnd { id: rule.id.clone(), etag_before: Some(etag), reason }
}

impl Rules {
    /// Creates or replaces an override, if `announce` permits. May wait for the disk.
    pub(crate) fn put(
        &self,
        rule: &Override,
        fits: &Precondition,
        announce: Announce<'_>,
    ) -> Result<PutOutcome, ChangeError> {
        fleet_overrides::check_foreign_id(&rule.id).map_err(ChangeError::Invalid)?;
        api::rule::check_parameters(&rule.policy, &rule.parameters).map_err(ChangeError::Invalid)?;
        let rule = &stored::bind(rule).map_err(|error| ChangeError::NoProcess(error.to_string()))?;
        let _changing = self.changing();
        if rule.expires_at.is_some_and(|end| end <= self.now()) {
            let detail = "this time has passed".to_owned();
            return Err(ChangeError::Invalid(Invalid { field: "expires_at".into(), detail }));
        }
        let existing = self.existing(&rule.id, fits)?;
        let is_new = existing.is_none();
        if existing.as_ref() != Some(rule) {
            if is_new && self.known().set.api_overrides().len() >= MAX {
                return Err(ChangeError::TooMany(MAX));
            }
            announce(existing.as_ref(), Some(rule))?;
            self.store(&rule.id, Some(rule))?;
        }
        Ok(PutOutcome { now: status(rule, &self.known(), false), is_new })
    }

    /// Deletes an override, if `announce` permits. May wait for the disk.
    pub(crate) fn remove(&self, id: &str, fits: &Precondition, announce: Announce<'_>) -> Result<(), ChangeError> {
        let _changing = self.changing();
        let existing = self.existing(id, fits)?.ok_or(ChangeError::NotFound)?;
        announce(Some(&existing), None)?;
        self.store(id, None)
    }

    /// Override with this id, if it is of the API and meets the request's precondition.
    fn existing(&self, id: &str, fits: &Precondition) -> Result<Option<Override>, ChangeError> {
        let known = self.known();
        if known.set.is_in_files(id) {
            return Err(ChangeError::InFile(known.file_of(id).display().to_string()));
        }
        let existing = known.set.api_overrides().iter().find(|rule| rule.id == id);
        let current = existing.map(|rule| status(rule, &known, false));
        if fits(current.as_ref()) { Ok(existing.cloned()) } else { Err(ChangeError::PreconditionFailed) }
    }

    /// Stores this override, or none, under the id. The caller holds `changing`.
    fn store(&self, id: &str, rule: Option<&Override>) -> Result<(), ChangeError> {
        let (api_overrides, expired_of_file) = {
            let known = self.known();
            (known.set.api_overrides_with(id, rule), known.set.expired_of_file().clone())
        };
        let written = stored::write(&self.0.state_file, &api_overrides, &expired_of_file);
        written.map_err(|error| ChangeError::NotSaved(format!("{error:#}")))?;
        let mut known = self.known();
        // Overrides that have ended meanwhile, with their process or by expiry, are not restored.
        known.set.change(id, rule);
        known.quarantined = None;
        self.apply(&known);
        Ok(())
    }

    /// Removes overrides whose process has exited. The disk follows with the next change.
    pub(super) fn forget_ended(&self) {
        self.forget(stored::has_ended);
    }

    /// Checks without a lock, as it may take long.
    pub(super) fn forget(&self, has_ended: impl FnMut(&Override) -> bool) {
        let mut ended = self.known().set.api_overrides().to_vec();
        ended.retain(|rule| rule.selector.pid.is_some());
        ended.retain(has_ended);
        if ended.is_empty() {
            return;
        }
        let mut known = self.known();
        // An override put meanwhile, even with the same id, is for another process.
        for rule in known.set.remove(&ended) {
            tracing::info!("override {} is deleted: its process has exited", rule.id);
            self.0.audit.write(None, &end_of(&rule, "process_exited"));
        }
        self.apply(&known);
    }
}

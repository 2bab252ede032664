//! Overrides by source, and their changes.

use std::{collections::BTreeMap, time::SystemTime};

use model::{Mode, Override, text};

use super::{Fallback, Rules, has_passed};

/// Expired overrides of the files: id and expiry. An override with the same id and another expiry is another one.
pub type Expired = BTreeMap<String, String>;

/// Overrides of the files and of the API, with the default. The files are those of the node's administrator and that
/// of the fleet, which has policies of a cluster.
///
/// Expired overrides stay expired, even if the clock is set back: those of the API are removed, and those of the
/// files are remembered as long as the files have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    fallback: Fallback,
    /// Overrides of the files; `None` until these were valid for the first time.
    file_overrides: Option<Vec<Override>>,
    /// Overrides of the fleet's file; `None` if there shall be one and none was valid yet.
    fleet_overrides: Option<Vec<Override>>,
    api_overrides: Vec<Override>,
    expired_of_file: Expired,
    /// Whether the overrides of the API are known: those stored before a restart may be unreadable.
    is_api_known: bool,
}

/// Overrides that have expired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewlyExpired {
    /// Overrides of the files, which stay in them.
    pub file_overrides: Vec<Override>,
    /// Overrides of the API, which are removed.
    pub api_overrides: Vec<Override>,
}

impl NewlyExpired {
    /// Whether no override has expired.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.file_overrides.is_empty() && self.api_overrides.is_empty()
    }
}

impl RuleSet {
    /// Set with this default, and without overrides of the files. `stored` is the content of the state
    /// file: the overrides of the API, and the expired ones of the files; `None` if it is unreadable.
    #[must_use]
    pub fn new(fallback: Fallback, stored: Option<(Vec<Override>, Expired)>) -> Self {
        let is_api_known = stored.is_some();
        let (api_overrides, expired_of_file) = stored.unwrap_or_default();
        let fleet_overrides = Some(Vec::new());
        Self { fallback, file_overrides: None, fleet_overrides, api_overrides, expired_of_file, is_api_known }
    }

    /// The same set, with a file of the fleet that is not known yet.
    #[must_use]
    pub fn with_fleet(self) -> Self {
        Self { fleet_overrides: None, ..self }
    }

    /// Default for processes without a matching override. While the overrides of the files or of the
    /// API are unknown, mode `act` becomes `shadow`: one of them may exempt the process.
    #[must_use]
    pub fn fallback(&self) -> Fallback {
        let mut fallback = self.fallback.clone();
        if !self.is_api_known || self.file_overrides.is_none() || self.fleet_overrides.is_none() {
            fallback.mode = fallback.mode.min(Mode::Shadow);
        }
        fallback
    }

    /// Replaces the default.
    pub fn set_fallback(&mut self, fallback: Fallback) {
        self.fallback = fallback;
    }

    /// Overrides of the files; `None` until these were valid for the first time.
    #[must_use]
    pub fn file_overrides(&self) -> Option<&[Override]> {
        self.file_overrides.as_deref()
    }

    /// Overrides of the fleet's file; `None` until these were valid for the first time.
    #[must_use]
    pub fn fleet_overrides(&self) -> Option<&[Override]> {
        self.fleet_overrides.as_deref()
    }

    /// Overrides of the API.
    #[must_use]
    pub fn api_overrides(&self) -> &[Override] {
        &self.api_overrides
    }

    /// Expired overrides of the files.
    #[must_use]
    pub const fn expired_of_file(&self) -> &Expired {
        &self.expired_of_file
    }

    /// Whether an override of the files has this id.
    #[must_use]
    pub fn is_in_files(&self, id: &str) -> bool {
        self.of_files().any(|rule| rule.id == id)
    }

    /// Whether an override of the fleet's file has this id.
    #[must_use]
    pub fn is_of_fleet(&self, id: &str) -> bool {
        self.fleet_overrides.iter().flatten().any(|rule| rule.id == id)
    }

    /// Overrides of the API that are not in effect, as the files have others with their ids.
    pub fn hidden(&self) -> impl Iterator<Item = &Override> {
        self.api_overrides.iter().filter(|rule| self.is_in_files(&rule.id))
    }

    /// Rules in effect.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let api_overrides = self.api_overrides.iter().filter(|rule| !self.is_in_files(&rule.id));
        let all = self.of_files().chain(api_overrides).cloned().collect();
        let expired = self.expired_now().map(|rule| rule.id.clone()).collect();
        Rules::new(all, self.fallback()).with_expired(expired)
    }

    /// Replaces the overrides of the files. Returns whether that removed records of expired ones, which the files
    /// no longer have, or have with another expiry.
    pub fn replace_file(&mut self, file_overrides: Vec<Override>) -> bool {
        self.file_overrides = Some(file_overrides);
        self.remove_records()
    }

    /// Replaces the overrides of the fleet's file, as [`Self::replace_file`] does.
    pub fn replace_fleet(&mut self, fleet_overrides: Vec<Override>) -> bool {
        self.fleet_overrides = Some(fleet_overrides);
        self.remove_records()
    }

    fn remove_records(&mut self) -> bool {
        // A record may be that of a file that is not known yet.
        if self.file_overrides.is_none() || self.fleet_overrides.is_none() {
            return false;
        }
        let retained: Expired = self.expired_now().filter_map(record).collect();
        let is_removed = retained.len() < self.expired_of_file.len();
        self.expired_of_file = retained;
        is_removed
    }

    /// Overrides of the API, with this one in place of the one with this id; `None` removes it.
    #[must_use]
    pub fn api_overrides_with(&self, id: &str, rule: Option<&Override>) -> Vec<Override> {
        self.api_overrides.iter().filter(|other| other.id != id).chain(rule).cloned().collect()
    }

    /// Puts this override of the API in place of the one with this id; `None` removes it. From then on, all overrides
    /// of the API are known.
    pub fn change(&mut self, id: &str, rule: Option<&Override>) {
        self.api_overrides = self.api_overrides_with(id, rule);
        self.is_api_known = true;
    }

    /// Removes these overrides of the API, except those that have changed meanwhile. Returns the removed ones.
    pub fn remove(&mut self, ended: &[Override]) -> Vec<Override> {
        self.api_overrides.extract_if(.., |rule| ended.contains(rule)).collect()
    }

    /// Expires overrides at this time.
    pub fn expire(&mut self, now: SystemTime) -> NewlyExpired {
        let file_overrides: Vec<Override> =
            self.of_files().filter(|rule| has_passed(rule, now) && !self.has_expired(rule)).cloned().collect();
        self.expired_of_file.extend(file_overrides.iter().filter_map(record));
        let api_overrides = self.api_overrides.extract_if(.., |rule| has_passed(rule, now)).collect();
        NewlyExpired { file_overrides, api_overrides }
    }

    /// Time at which the next override expires.
    #[must_use]
    pub fn next_expiry(&self) -> Option<SystemTime> {
        let file_overrides = self.of_files().filter(|rule| !self.has_expired(rule));
        file_overrides.chain(&self.api_overrides).filter_map(|rule| rule.expires_at).min()
    }

    fn of_files(&self) -> impl Iterator<Item = &Override> {
        self.file_overrides.iter().chain(&self.fleet_overrides).flatten()
    }

    /// Whether this override of the files has expired.
    fn has_expired(&self, rule: &Override) -> bool {
        let expired = self.expired_of_file.get(&rule.id);
        expired.is_some_and(|end| rule.expires_at.is_some_and(|at| text::time(at) == *end))
    }

    /// Expired overrides that the files still have.
    fn expired_now(&self) -> impl Iterator<Item = &Override> {
        self.of_files().filter(|rule| self.has_expired(rule))
    }
}

/// Record of an expired override.
fn record(rule: &Override) -> Option<(String, String)> {
    Some((rule.id.clone(), text::time(rule.expires_at?)))
}

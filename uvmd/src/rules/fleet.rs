//! File of overrides of `uvmd-fleet`: policies of a cluster. It is a claim of a program without
//! privileges, so [`fleet_overrides::check`] limits what it can ask for. It is replaced as a whole,
//! and half of a list is no JSON: one check is enough to apply it.

use std::sync::PoisonError;

use api::{fleet_overrides, rule};
use model::Override;

use super::{
    Rules,
    file::{consequence, loaded},
};
use crate::claimed_file;

impl Rules {
    /// Checks the file once, if there is one to follow. While it is invalid or missing, the overrides
    /// in effect stay.
    pub(super) fn check_fleet(&self) {
        let Some(file) = &self.0.fleet_file else { return };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let read = match file.read() {
            Ok(None) => return,
            Ok(Some(content)) => parse(&content),
            Err(reason) => Err(reason),
        };
        let path = file.path();
        let mut known = self.known();
        let before = known.set.fleet_overrides();
        match read {
            Ok(overrides) => {
                let has_changed = before != Some(&overrides);
                let change = loaded(path, before, Some(&overrides));
                if known.fleet_error.take().is_some() {
                    tracing::info!("{} is valid again", path.display());
                }
                if has_changed {
                    tracing::info!("{} overrides of {} are in effect", overrides.len(), path.display());
                    self.0.audit.write(None, &change);
                    known.is_persist_pending |= known.set.replace_fleet(overrides);
                    self.apply(&known);
                }
            }
            Err(reason) => {
                let error = format!("{}: {}: {reason}", consequence(before), path.display());
                if known.fleet_error.as_ref() != Some(&error) {
                    tracing::warn!("{error}");
                    self.0.audit.failed(None, &loaded(path, before, None), error.clone());
                }
                known.fleet_error = Some(error);
            }
        }
    }
}

fn parse(content: &[u8]) -> Result<Vec<Override>, String> {
    let given: Vec<rule::Override> = serde_json::from_slice(content).map_err(|error| claimed_file::reason(&error))?;
    fleet_overrides::check(given).map_err(|refusal| claimed_file::reason(&refusal))
}

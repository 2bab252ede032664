//! Last read of the configuration, and its result.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use api::Configuration;
use model::text::time;
use serde::Serialize;

use crate::control::etag;

/// Result of the last read of the configuration, at first that of the start. Cheap to clone; all
/// clones share their state.
#[derive(Clone, Debug)]
pub struct Reloads(Arc<Mutex<Last>>);

#[derive(Debug)]
struct Last {
    succeeded_at: SystemTime,
    /// Entity tag of the configuration in effect.
    etag: String,
    /// Error of the last read, if it failed.
    error: Option<String>,
    restart_required: Vec<String>,
}

impl Last {
    fn now(config: &impl Serialize, restart_required: Vec<String>) -> Self {
        Self { succeeded_at: SystemTime::now(), etag: etag(config), error: None, restart_required }
    }
}

impl Default for Reloads {
    /// Result for an empty configuration.
    fn default() -> Self {
        Self::new(&())
    }
}

impl Reloads {
    /// Result for this configuration, which has just been read.
    #[must_use]
    pub fn new(config: &impl Serialize) -> Self {
        Self(Arc::new(Mutex::new(Last::now(config, Vec::new()))))
    }

    /// Records a reload that put this configuration in effect. The new values of these options
    /// require a restart.
    pub fn succeeded(&self, config: &impl Serialize, restart_required: Vec<String>) {
        *self.last() = Last::now(config, restart_required);
    }

    /// Records a failed reload: the former configuration stays in effect.
    pub fn failed(&self, error: String) {
        self.last().error = Some(error);
    }

    pub(crate) fn is_successful(&self) -> bool {
        self.last().error.is_none()
    }

    /// Hash of the configuration in effect: the first 48 bits of its entity tag, which a float holds exactly.
    pub(crate) fn hash(&self) -> u64 {
        let last = self.last();
        let digits = last.etag.get(1..13).unwrap_or_default();
        u64::from_str_radix(digits, 16).unwrap_or_default()
    }

    /// Time of the last successful read.
    pub(crate) fn succeeded_at(&self) -> SystemTime {
        self.last().succeeded_at
    }

    pub(crate) fn configuration(&self) -> Configuration {
        let Last { succeeded_at, etag, error, restart_required } = &*self.last();
        Configuration {
            etag: etag.clone(),
            last_reload_successful: error.is_none(),
            last_reload_success_at: time(*succeeded_at),
            error: error.clone(),
            restart_required: restart_required.clone(),
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

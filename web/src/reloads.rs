//! When the configuration was read last, and what came of it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use model::{api::Configuration, text::time};

/// The last reading of the configuration; the first was that at the start. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Reloads(Arc<Mutex<Last>>);

#[derive(Debug)]
struct Last {
    succeeded_at: SystemTime,
    /// Why the last one failed, if it did.
    error: Option<String>,
    restart_required: Vec<String>,
}

impl Default for Reloads {
    /// It has just been read.
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Last { succeeded_at: SystemTime::now(), error: None, restart_required: Vec::new() })))
    }
}

impl Reloads {
    /// It was read and is in force, but for these options, which need a restart.
    pub fn succeeded(&self, restart_required: Vec<String>) {
        *self.last() = Last { succeeded_at: SystemTime::now(), error: None, restart_required };
    }

    /// It could not be read, or is not in order: what was in force still is.
    pub fn failed(&self, error: String) {
        self.last().error = Some(error);
    }

    pub(crate) fn is_successful(&self) -> bool {
        self.last().error.is_none()
    }

    /// When it was read with success last.
    pub(crate) fn succeeded_at(&self) -> SystemTime {
        self.last().succeeded_at
    }

    pub(crate) fn configuration(&self) -> Configuration {
        let Last { succeeded_at, error, restart_required } = &*self.last();
        Configuration {
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

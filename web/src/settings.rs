//! Settings that may change at run time.

use std::{
    num::NonZeroUsize,
    sync::{Arc, PoisonError, RwLock},
};

use crate::hosts::Hosts;

/// Settings in effect. Cheap to clone; all clones change together.
#[derive(Clone, Debug)]
pub(crate) struct Settings(Arc<RwLock<Current>>);

#[derive(Clone, Debug)]
struct Current {
    hosts: Arc<Hosts>,
    processes_in_metrics: Option<NonZeroUsize>,
}

impl Settings {
    pub(crate) fn new(hosts: Hosts, processes_in_metrics: Option<NonZeroUsize>) -> Self {
        Self(Arc::new(RwLock::new(Current { hosts: Arc::new(hosts), processes_in_metrics })))
    }

    pub(crate) fn change(&self, hosts: Hosts, processes_in_metrics: Option<NonZeroUsize>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) =
            Current { hosts: Arc::new(hosts), processes_in_metrics };
    }

    /// Names of the service over TCP.
    pub(crate) fn hosts(&self) -> Arc<Hosts> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).hosts)
    }

    /// Maximum of processes with series in the metrics.
    pub(crate) fn processes_in_metrics(&self) -> Option<NonZeroUsize> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).processes_in_metrics
    }
}

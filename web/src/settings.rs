//! What may change while the service runs.

use std::{
    num::NonZeroUsize,
    sync::{Arc, PoisonError, RwLock},
};

use crate::hosts::Hosts;

/// What is in force now. Cheap to clone; all clones change together.
#[derive(Clone, Debug)]
pub(crate) struct Settings(Arc<RwLock<Now>>);

#[derive(Clone, Debug)]
struct Now {
    hosts: Arc<Hosts>,
    processes_in_metrics: Option<NonZeroUsize>,
}

impl Settings {
    pub(crate) fn new(hosts: Hosts, processes_in_metrics: Option<NonZeroUsize>) -> Self {
        Self(Arc::new(RwLock::new(Now { hosts: Arc::new(hosts), processes_in_metrics })))
    }

    pub(crate) fn change(&self, hosts: Hosts, processes_in_metrics: Option<NonZeroUsize>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Now { hosts: Arc::new(hosts), processes_in_metrics };
    }

    /// By which names clients may ask over TCP.
    pub(crate) fn hosts(&self) -> Arc<Hosts> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).hosts)
    }

    /// How many processes may have series of their own.
    pub(crate) fn processes_in_metrics(&self) -> Option<NonZeroUsize> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).processes_in_metrics
    }
}

//! Durations of a task that is repeated, for a histogram.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use model::Distribution;

/// Durations in nanoseconds. Cheap to clone; all clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopwatch(Arc<Mutex<Distribution>>);

impl Stopwatch {
    /// Adds a duration.
    pub(crate) fn add(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).record(nanoseconds, 1, nanoseconds);
    }

    /// Distribution of all durations.
    pub(crate) fn durations(&self) -> Distribution {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

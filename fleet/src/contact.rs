//! Contact with the API server: whether the watch works, and the time of the last contact.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use kube::Client;
use tokio::time;

use crate::backoff;

/// Interval of version requests. They show that the API server responds, which a watch without
/// changes does not.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time since the last failure after which the watch counts as working: it retries within the
/// longest pause, and a retry that succeeds without changes yields no event.
const QUIET: Duration = backoff::LONGEST.saturating_add(INTERVAL);

/// Contact with the API server. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Contact(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Last failure of the watch; `None` while it works.
    failed: Option<Instant>,
    has_watched: bool,
    last: Option<SystemTime>,
}

impl Contact {
    /// Records an event of the watch.
    pub fn watched(&self) {
        let mut state = self.state();
        state.has_watched = true;
        state.resume();
    }

    /// Records a failure of the watch, which restarts by itself.
    pub fn interrupted(&self, error: &dyn std::error::Error) {
        let mut state = self.state();
        let report = report(error);
        if state.failed.is_none() {
            tracing::warn!("the watch of the API server failed, and is restarted: {report}");
        } else {
            tracing::debug!("the watch failed again: {report}");
        }
        state.failed = Some(Instant::now());
    }

    /// Time of the last contact. It stays while the watch fails.
    #[must_use]
    pub fn last(&self) -> Option<SystemTime> {
        self.state().last
    }

    /// Requests the version of the API server at an interval, for ever.
    pub async fn follow(self, client: Client) {
        let mut checks = time::interval(INTERVAL);
        checks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            let response = time::timeout(INTERVAL, client.apiserver_version()).await;
            let mut state = self.state();
            let is_quiet = state.failed.is_none_or(|at| at.elapsed() >= QUIET);
            if state.has_watched && is_quiet && matches!(response, Ok(Ok(_))) {
                state.resume();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn resume(&mut self) {
        if self.failed.take().is_some() || self.last.is_none() {
            tracing::info!("the API server is watched");
        }
        self.last = Some(SystemTime::now());
    }
}

/// An error with its causes in one line.
#[must_use]
pub fn report(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let next_text = next.to_string();
        if !text.contains(&next_text) {
            text += ": ";
            text += &next_text;
        }
        cause = next.source();
    }
    text
}

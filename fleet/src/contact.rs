//! Contact with the API server: whether the names are those of the cluster, and since when not.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use kube::Client;
use tokio::time;

use crate::pause;

/// Interval of requests that show that the API server answers. A watch without changes does not.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time without a failure of the watch after which it is taken to work. It tries again within the
/// longest pause, and a success without changes shows in nothing else.
const QUIET: Duration = pause::LONGEST.saturating_add(INTERVAL);

/// Contact with the API server. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Contact(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Last failure of the watch, since which it has brought nothing.
    failed: Option<Instant>,
    has_watched: bool,
    last: Option<SystemTime>,
}

impl Contact {
    /// The watch has brought something.
    pub fn watched(&self) {
        let mut state = self.state();
        state.has_watched = true;
        state.resume();
    }

    /// The watch has failed; it begins again by itself.
    pub fn interrupted(&self, error: &dyn std::error::Error) {
        let mut state = self.state();
        let report = report(error);
        if state.failed.is_none() {
            tracing::warn!("the watch of the API server failed, and begins again: {report}");
        } else {
            tracing::debug!("the watch failed again: {report}");
        }
        state.failed = Some(Instant::now());
    }

    /// Time of the last contact while the watch works.
    #[must_use]
    pub fn last(&self) -> Option<SystemTime> {
        self.state().last
    }

    /// Asks the API server for its version again and again.
    pub async fn follow(self, client: Client) {
        let mut checks = time::interval(INTERVAL);
        checks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            let answer = time::timeout(INTERVAL, client.apiserver_version()).await;
            let mut state = self.state();
            let is_quiet = state.failed.is_none_or(|at| at.elapsed() >= QUIET);
            if state.has_watched && is_quiet && matches!(answer, Ok(Ok(_))) {
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

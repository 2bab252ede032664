//! Retries after failures for temporary reasons: of a planning, for time, memory, or a planner process that
//! died; of a follower, for memory.

use std::time::Duration;

/// First delay, which doubles with each further failure.
const DELAY_MIN: Duration = Duration::from_secs(10);
const DELAY_MAX: Duration = Duration::from_mins(10);

/// Delay of the next attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    /// Delay after the last failure; `None` before the first.
    last: Option<Duration>,
    /// Time of the next attempt; `None` without one.
    due_at: Option<Duration>,
}

impl Backoff {
    /// Records a failure, which is temporary or final.
    pub(crate) fn record_failure(&mut self, is_temporary: bool, now: Duration) {
        let delay = self.last.map_or(DELAY_MIN, |last| last.saturating_mul(2).min(DELAY_MAX));
        *self = if is_temporary {
            Self { last: Some(delay), due_at: Some(now.saturating_add(delay)) }
        } else {
            Self::default()
        };
    }

    /// Time from the last failure to the next attempt; `None` without one.
    pub(crate) fn delay(self) -> Option<Duration> {
        self.last.filter(|_| self.due_at.is_some())
    }

    /// Whether the time of the next attempt has come.
    pub(crate) fn is_due(self, now: Duration) -> bool {
        self.due_at.is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NOW: Duration = Duration::from_secs(1000);

    #[test]
    fn delay_doubles_with_each_failure_up_to_ten_minutes() {
        let mut backoff = Backoff::default();
        assert!(!backoff.is_due(NOW));
        for seconds in [10, 20, 40, 80, 160, 320, 600, 600] {
            backoff.record_failure(true, NOW);
            assert_eq!(backoff.delay(), Some(seconds * SECOND));
            assert!(!backoff.is_due(NOW + (seconds - 1) * SECOND) && backoff.is_due(NOW + seconds * SECOND));
        }
    }

    #[test]
    fn final_failure_is_not_retried() {
        let mut backoff = Backoff::default();
        backoff.record_failure(true, NOW);
        backoff.record_failure(false, NOW);
        assert!(backoff.delay().is_none() && !backoff.is_due(Duration::MAX));
    }
}

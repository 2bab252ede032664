//! Retries of operations that may have failed for a transient reason.

use std::time::Duration;

// Clock of the event loop, which tests can advance.
use tokio::time::Instant;

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Pause from which a failure counts as lasting.
const LASTING: Duration = Duration::from_secs(4);

/// Time and pause of a retry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    at: Instant,
    pause: Duration,
}

impl Retry {
    /// Retry after another failure: a second after the first, then twice as long each time, up to a
    /// minute.
    pub(super) fn after(earlier: Option<Self>, now: Instant) -> Self {
        let pause = earlier.map_or(PAUSE_MIN, |earlier| (earlier.pause * 2).min(PAUSE_MAX));
        Self { at: now + pause, pause }
    }

    /// Whether the failure of this retry is a lasting one.
    pub(super) fn is_last(self) -> bool {
        self.pause >= LASTING
    }

    pub(super) fn is_due(self, now: Instant) -> bool {
        now >= self.at
    }

    /// Seconds left, rounded up, so that 0 means due.
    pub(super) fn seconds_left(self, now: Instant) -> u64 {
        let left = self.at.saturating_duration_since(now);
        left.as_secs() + u64::from(left.subsec_nanos() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_pauses_double_from_a_second_up_to_a_minute() {
        let now = Instant::now();
        let mut retry = None;
        let pauses: Vec<_> = (0..8)
            .map(|_| {
                retry = Some(Retry::after(retry, now));
                retry.unwrap().seconds_left(now)
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn failure_lasts_after_three_retries() {
        let mut retry = Retry::after(None, Instant::now());
        let mut number = 1;
        while !retry.is_last() {
            retry = Retry::after(Some(retry), Instant::now());
            number += 1;
        }
        assert_eq!(number, 3);
    }

    #[test]
    fn retry_is_due_when_no_second_is_left() {
        let now = Instant::now();
        let retry = Retry::after(None, now);
        let almost = now + Duration::from_millis(999);
        assert!(!retry.is_due(almost));
        assert_eq!(retry.seconds_left(almost), 1);
        assert!(retry.is_due(now + PAUSE_MIN));
        assert_eq!(retry.seconds_left(now + PAUSE_MIN), 0);
    }
}

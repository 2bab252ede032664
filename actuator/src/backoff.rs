//! Back-off of targets whose orders waited long: all other orders for that GPU waited as long.
//! Withdrawals do not pause.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use model::{CallResult, ProcessId};

/// Duration of an order's wait from which on its target pauses.
pub(crate) const SLOW: Duration = Duration::from_secs(10);
/// First pause; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(30);
/// Longest pause. After this time without a slow order, the next pause is [`FIRST`] again.
const LONGEST: Duration = Duration::from_mins(30);

/// Targets in a pause, or with a recent one. There are few: each has cost its GPU's worker [`SLOW`]
/// within the last hour.
#[derive(Debug, Default)]
pub(crate) struct Backoff(BTreeMap<ProcessId, Pause>);

#[derive(Debug)]
struct Pause {
    length: Duration,
    end: Instant,
}

impl Backoff {
    /// Records a long wait for this target, and returns the pause.
    pub(crate) fn begin(&mut self, target: ProcessId, now: Instant) -> Duration {
        self.0.retain(|_, pause| now < pause.end + LONGEST);
        let length = self.0.get(&target).map_or(FIRST, |former| (former.length * 2).min(LONGEST));
        self.0.insert(target, Pause { length, end: now + length });
        length
    }

    /// Result of an order for a target in a pause.
    pub(crate) fn denial(&self, target: ProcessId, now: Instant) -> Option<CallResult> {
        let left = self.0.get(&target)?.end.checked_duration_since(now).filter(|left| !left.is_zero())?;
        let seconds = left.as_millis().div_ceil(1000);
        Some(CallResult::Denied(format!("its calls took too long: the next are made in {seconds} s at the earliest")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: ProcessId = ProcessId { pid: 7, start_ticks: 1 };

    #[test]
    fn pauses_double_up_to_half_an_hour() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        let mut next = || {
            let pause = backoff.begin(TARGET, now);
            now += pause;
            pause.as_secs()
        };
        assert_eq!([(); 8].map(|()| next()), [30, 60, 120, 240, 480, 960, 1800, 1800]);
    }

    #[test]
    fn backoff_is_per_target() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        assert_eq!(backoff.denial(TARGET, now), None);
        backoff.begin(TARGET, now);
        let at = |passed_ms| backoff.denial(TARGET, now + Duration::from_millis(passed_ms));
        let reason = "its calls took too long: the next are made in 1 s at the earliest";
        assert_eq!(at(29_001), Some(CallResult::Denied(reason.to_owned())));
        assert_eq!(at(30_000), None);
        let next_of_its_id = ProcessId { start_ticks: 2, ..TARGET };
        assert_eq!(backoff.denial(next_of_its_id, now), None);
    }

    #[test]
    fn backoff_expires_after_quiet_time() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        backoff.begin(TARGET, now);
        backoff.begin(TARGET, now);
        let later = now + Duration::from_mins(1) + LONGEST;
        backoff.begin(ProcessId { pid: 8, ..TARGET }, later);
        assert_eq!(backoff.0.len(), 1);
        assert_eq!(backoff.begin(TARGET, later), FIRST);
    }
}

//! Rates between two responses, by the daemon's clock.

use std::time::{Duration, SystemTime};

use api::Counts;
pub(crate) use model::text::{Formatter, per_second};

/// Earlier counts and their age in seconds; `None` before the second reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline(Option<(Counts, f64)>);

/// Monotonic counters: a decrease shows that counting restarted.
const MONOTONIC: [fn(&Counts) -> Option<u64>; 5] = [
    |counts| Some(counts.fault_entries),
    |counts| Some(counts.cpu_faults),
    |counts| Some(counts.bytes_htod),
    |counts| Some(counts.bytes_dtoh),
    |counts| counts.evicted_bytes,
];

impl Baseline {
    /// Creates the earlier counts of `now`, `seconds` old. A decrease means that counting
    /// restarted, so nothing earlier is known.
    pub(crate) fn new(counts: &Counts, seconds: f64, now: &Counts) -> Self {
        let has_decreased = MONOTONIC.iter().any(|counter| counter(now) < counter(counts));
        Self((!has_decreased).then(|| (counts.clone(), seconds)))
    }

    /// Rate of a counter per second. `None` also where the driver does not count it.
    pub(crate) fn rate(&self, now: &Counts, counter: impl Fn(&Counts) -> Option<u64>) -> Option<f64> {
        let (before, seconds) = self.0.as_ref()?;
        // A new process has no earlier counts.
        let before = counter(before).unwrap_or(0);
        Some(counter(now)?.checked_sub(before)? as f64 / seconds)
    }
}

/// Times of a response, between which rates are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) taken: Option<SystemTime>,
    pub(crate) counting_started_at: Option<SystemTime>,
}

impl Moment {
    /// Seconds since `earlier`. `None` if rates are meaningless: the daemon restarted, or its clock
    /// did not advance.
    pub(crate) fn seconds_since(self, earlier: Self) -> Option<f64> {
        if self.counting_started_at != earlier.counting_started_at {
            return None;
        }
        let seconds = self.taken?.duration_since(earlier.taken?).ok()?.as_secs_f64();
        (seconds > 0.0).then_some(seconds)
    }
}

/// Parses an interval in seconds.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("expected 0.1 to 3600 seconds".to_owned())
    }
}

/// History of a rate over the last minute.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Times by the daemon's clock with their values, oldest first.
    points: Vec<(SystemTime, f64)>,
}

/// Length of a history in seconds.
const HISTORY_S: f64 = 60.0;

impl History {
    pub(crate) fn record(&mut self, now: SystemTime, value: f64) {
        // Points later than `now` precede a clock set back, and are dropped.
        self.points.retain(|(then, _)| now.duration_since(*then).is_ok_and(|age| age.as_secs_f64() < HISTORY_S));
        self.points.push((now, value));
    }

    /// Mean rates of `columns` equal parts of the minute, oldest first. A part without points
    /// repeats the part before.
    pub(crate) fn columns(&self, columns: usize) -> Vec<Option<f64>> {
        let Some((newest, _)) = self.points.last() else { return vec![None; columns] };
        let part_s = HISTORY_S / columns.max(1) as f64;
        let age = |then: &SystemTime| newest.duration_since(*then).unwrap_or_default().as_secs_f64();
        let mut last = None;
        let part = |at: usize| {
            let from = (columns - at) as f64 * part_s;
            let within: Vec<_> = (self.points.iter())
                .filter(|(then, _)| age(then) < from && age(then) >= from - part_s)
                .map(|(_, value)| *value)
                .collect();
            if !within.is_empty() {
                last = Some(within.iter().sum::<f64>() / within.len() as f64);
            }
            last
        };
        (0..columns).map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(fault_entries: u64, bytes_htod: u64) -> Counts {
        Counts { fault_entries, bytes_htod, ..Counts::default() }
    }

    fn at(seconds: f64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs_f64(1_000_000.0 + seconds)
    }

    fn moment(taken: f64, since: f64) -> Moment {
        Moment { taken: Some(at(taken)), counting_started_at: Some(at(since)) }
    }

    #[test]
    fn a_rate_is_the_increase_over_the_elapsed_time() {
        let now = counts(300, 4096);
        let before = Baseline::new(&counts(100, 4096), 4.0, &now);
        assert_eq!(before.rate(&now, |counts| Some(counts.fault_entries)), Some(50.0));
        assert_eq!(before.rate(&now, |counts| Some(counts.bytes_htod)), Some(0.0));
    }

    #[test]
    fn one_value_has_no_rate() {
        assert_eq!(Baseline::default().rate(&counts(300, 0), |counts| Some(counts.fault_entries)), None);
    }

    #[test]
    fn one_decreased_counter_invalidates_all_rates() {
        let now = counts(300, 1);
        assert_eq!(Baseline::new(&counts(100, 2), 1.0, &now).rate(&now, |counts| Some(counts.fault_entries)), None);
    }

    #[test]
    fn a_restart_or_a_clock_that_does_not_advance_yields_no_interval() {
        assert_eq!(moment(10.0, 0.0).seconds_since(moment(8.0, 0.0)), Some(2.0));
        assert_eq!(moment(10.0, 9.0).seconds_since(moment(8.0, 0.0)), None);
        assert_eq!(moment(8.0, 0.0).seconds_since(moment(8.0, 0.0)), None);
        assert_eq!(moment(7.0, 0.0).seconds_since(moment(8.0, 0.0)), None);
    }

    #[test]
    fn a_history_is_the_last_minute_newest_at_the_right() {
        let mut history = History::default();
        assert_eq!(history.columns(2), [None, None]);
        history.record(at(0.0), 8.0);
        assert_eq!(history.columns(3), [None, None, Some(8.0)]);
        for second in (10..=70).step_by(20) {
            history.record(at(second.into()), second.into());
        }
        // Points at 0 and 10 are a minute old by then and dropped; 30, 50 and 70 remain.
        assert_eq!(history.columns(3), [Some(30.0), Some(50.0), Some(70.0)]);
        assert_eq!(history.columns(6), [None, Some(30.0), Some(30.0), Some(50.0), Some(50.0), Some(70.0)]);
    }

    #[test]
    fn a_clock_set_back_starts_a_new_history() {
        let mut history = History::default();
        history.record(at(100.0), 1.0);
        history.record(at(50.0), 2.0);
        assert_eq!(history.columns(1), [Some(2.0)]);
    }
}

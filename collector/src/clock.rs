//! Clock of the probes: time since boot, suspended time included. Clock of the ledger: a calendar
//! that is never set.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use sys::Roots;
use tokio::time::Instant;

/// Granularity of /proc: hundredths of a second, rounded down.
const GRANULARITY: Duration = Duration::from_millis(10);

/// Difference from which the calendar counts as set; less is the drift of a clock.
const SET: Duration = Duration::from_secs(1);

/// Calendar at its start, and the time that has passed since: ages are right, whatever the
/// calendar is set to.
#[derive(Debug)]
pub(crate) struct SteadyClock {
    start: SystemTime,
    begun: Instant,
    /// A moment, and the same by the calendar as it is set now.
    same: (SystemTime, SystemTime),
}

impl SteadyClock {
    pub(crate) fn new(calendar: SystemTime) -> Self {
        Self { start: calendar, begun: Instant::now(), same: (calendar, calendar) }
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.start + self.elapsed()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Follows the calendar, if it was set.
    pub(crate) fn follow(&mut self, calendar: SystemTime) {
        let now = self.now();
        let expected = self.shown(now);
        if calendar.duration_since(expected).unwrap_or_else(|earlier| earlier.duration()) >= SET {
            self.same = (now, calendar);
        }
    }

    /// Time of this clock by the calendar as it is set now.
    pub(crate) fn shown(&self, at: SystemTime) -> SystemTime {
        let (moment, calendar) = self.same;
        let shown = match at.duration_since(moment) {
            Ok(later) => calendar.checked_add(later),
            Err(earlier) => calendar.checked_sub(earlier.duration()),
        };
        shown.unwrap_or(calendar)
    }
}

/// Time since boot, or a little less; `None` if /proc cannot be read.
pub(crate) fn since_boot(roots: &Roots) -> Option<Duration> {
    let text = fs::read_to_string(roots.proc.join("uptime")).ok()?;
    Duration::try_from_secs_f64(text.split_whitespace().next()?.parse().ok()?).ok()
}

/// Time since boot in ns, or a little more, even if /proc cannot be read.
pub(crate) fn not_before_now(roots: &Roots) -> u64 {
    since_boot(roots).map_or(u64::MAX, |uptime| nanoseconds(uptime + 2 * GRANULARITY))
}

/// Nanoseconds, as in a record.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Calendar time of a time since boot in ns, by the clock as it is set now.
pub(crate) fn wall(roots: &Roots) -> impl Fn(u64) -> SystemTime {
    let (now, uptime) = (SystemTime::now(), since_boot(roots));
    move |boottime_ns| {
        let age = uptime.and_then(|uptime| uptime.checked_sub(Duration::from_nanos(boottime_ns))).unwrap_or_default();
        now.checked_sub(age).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const YEAR: Duration = Duration::from_hours(24 * 365);

    #[tokio::test(start_paused = true)]
    async fn ages_are_right_whatever_the_calendar_is_set_to() {
        let start = SystemTime::UNIX_EPOCH + 50 * YEAR;
        let mut clock = SteadyClock::new(start);
        for calendar in [start + HOUR, start - HOUR, start + YEAR, start - 49 * YEAR] {
            let before = clock.now();
            clock.follow(calendar);
            tokio::time::advance(HOUR).await;
            assert_eq!(clock.now().duration_since(before).unwrap(), HOUR);
            assert_eq!((clock.shown(before), clock.shown(clock.now())), (calendar, calendar + HOUR));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn drift_of_the_calendar_moves_no_time() {
        let start = SystemTime::UNIX_EPOCH + YEAR;
        let mut clock = SteadyClock::new(start);
        clock.follow(start + Duration::from_millis(999));
        assert_eq!(clock.shown(start), start);
    }
}

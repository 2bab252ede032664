//! Checks of the filters of system calls of a followed process, which take time for each of its threads.
//!
//! The follower of the process makes them, at the expense of its user, before the first table and
//! repeatedly while there is a table. The loop that acts publishes by the result of the last check.

use std::{sync::Arc, time::Duration};

use actuator::FilterCheck;
use sys::{clock, cpu_time};

/// Minimum interval of checks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum share of the time for checks: 1 / this.
const TIME_DIVISOR: u32 = 200;

/// Checks of the filters of a process.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    /// `None` before the plan of the helper is found.
    check: Option<Arc<FilterCheck>>,
    timer: Timer,
}

impl Filters {
    /// Sets the check of the helper's plan.
    pub(crate) fn set(&mut self, check: Arc<FilterCheck>) {
        *self = Self { check: Some(check), timer: Timer::default() };
    }

    /// Checks the filters, if the last check is too long ago.
    pub(crate) fn check(&mut self) {
        let Some(check) = &self.check else { return };
        if self.timer.is_due(clock::monotonic()) {
            let begun = cpu_time::of_this_thread();
            check.run();
            let spent = cpu_time::of_this_thread().saturating_sub(begun);
            self.timer.restart(clock::monotonic(), spent);
        }
    }
}

/// Time of the next check.
#[derive(Debug, Default)]
struct Timer(Duration);

impl Timer {
    fn is_due(&self, now: Duration) -> bool {
        now >= self.0
    }

    /// Waits after a check that took this long.
    fn restart(&mut self, now: Duration, spent: Duration) {
        self.0 = now.saturating_add(INTERVAL.max(spent.saturating_mul(TIME_DIVISOR)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn first_check_is_due_at_once_and_the_next_one_after_a_second() {
        let mut timer = Timer::default();
        assert!(timer.is_due(Duration::ZERO));
        timer.restart(10 * MS, 2 * MS);
        assert!(!timer.is_due(1009 * MS) && timer.is_due(1010 * MS));
    }

    proptest! {
        /// For any number of tables that a program causes, and any number of its threads.
        #[test]
        fn checks_after_the_first_one_take_a_share_of_the_time(
            turns in prop::collection::vec((1_u32..200, 0_u32..100), 1..500),
        ) {
            let (mut timer, mut now, mut checks) = (Timer::default(), Duration::ZERO, Vec::new());
            for (passed, cost) in turns {
                now += passed * MS;
                if timer.is_due(now) {
                    timer.restart(now, cost * MS);
                    checks.push(cost * MS);
                }
            }
            let last = checks.pop().unwrap_or_default();
            prop_assert!(last <= 100 * MS && TIME_DIVISOR * checks.iter().sum::<Duration>() <= now);
        }
    }
}

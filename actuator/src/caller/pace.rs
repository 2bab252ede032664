//! Pauses between calls, so that the target can take its locks.

use std::{thread, time::Duration};

use model::{Action, Call};

/// Total duration of calls after which a pause of the same length follows, so that they hold the
/// target's locks at most half of the time. The locks are not fair: a woken waiter has to run
/// first. Until then, a new reader, such as the next call, gets the lock before it
/// (`rwsem_down_read_slowpath` in the kernel).
const PAUSE_THRESHOLD: Duration = Duration::from_micros(100);
/// Maximum pause for a call: a longer call has waited for others.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Pause after a renewal of a block, or a quarter of its duration if that is longer. It suffices
/// for a woken waiter: a renewal of a resident block moves nothing, and late renewals lose blocks.
const PAUSE_RENEWAL: Duration = Duration::from_millis(1);

/// Sum of the pauses required by the calls since the last pause.
#[derive(Debug, Default)]
pub(super) struct Pace(Duration);

impl Pace {
    pub(super) fn pause_if_due(&mut self) {
        if self.0 >= PAUSE_THRESHOLD {
            thread::sleep(self.0);
            self.0 = Duration::ZERO;
        }
    }

    pub(super) fn add(&mut self, call: &Call) {
        self.0 = self.0.saturating_add(pause_for(call));
    }
}

/// Pause required by a call, in which others can run.
fn pause_for(call: &Call) -> Duration {
    let took = Duration::from_nanos(call.duration_ns);
    let pause = match call.step.action {
        Action::Touch(_) => took.min((took / 4).max(PAUSE_RENEWAL)),
        Action::Migrate(_) | Action::Advise(_) | Action::Withdraw(_) => took,
    };
    pause.min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use model::{Advice, CallResult, GpuUuid, Place, Step};

    use super::*;

    #[test]
    fn pause_lasts_as_long_as_the_locks_were_held() {
        let pause_after = |due| {
            let mut pace = Pace(due);
            let begun = Instant::now();
            pace.pause_if_due();
            (begun.elapsed(), pace.0)
        };
        let (pause, left) = pause_after(Duration::from_millis(20));
        assert!(pause >= Duration::from_millis(20));
        assert_eq!(left, Duration::ZERO);
        // Short calls share a pause.
        let short = PAUSE_THRESHOLD / 2;
        assert_eq!(pause_after(short).1, short);
    }

    #[test]
    fn pause_is_bounded_and_shorter_after_a_renewal() {
        let pause = |action, took: Duration| {
            let step = Step { begin: 0, end: 2 << 20, action };
            let duration_ns = u64::try_from(took.as_nanos()).unwrap();
            pause_for(&Call { step, result: CallResult::Done, duration_ns })
        };
        let gpu = GpuUuid([1; 16]);
        let (move_back, short, long) =
            (Action::Migrate(Place::Host), Duration::from_micros(200), Duration::from_mins(1));
        assert_eq!((pause(move_back, short), pause(move_back, long)), (short, PAUSE_MAX));
        let renewal = |took_ms| pause(Action::Touch(gpu), Duration::from_millis(took_ms));
        assert_eq!(pause(Action::Touch(gpu), short), short);
        assert_eq!([2, 8, 60_000].map(renewal), [1, 2, 50].map(Duration::from_millis));
        assert_eq!(pause(Action::Advise(Advice::AccessedBy(gpu)), long), PAUSE_MAX);
    }
}

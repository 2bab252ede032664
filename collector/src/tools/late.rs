//! Processes that were counted late: their VA space may have been created long before.

use std::time::Duration;

use model::{Degradation, DegradedReason};

use super::{finder::Opener, named::NamedProcesses};

/// Longest time from the creation of a VA space to its first count that is no delay: two looks of the
/// search, one of the collector, and the start of a holder. CUDA initialises meanwhile.
const USUAL: Duration = Duration::from_millis(500);

/// Processes that were counted late, and the longest time that they can have been uncounted.
#[derive(Default)]
pub(super) struct Late(NamedProcesses<Duration>);

impl Late {
    /// Records that a VA space of a process is counted from now on. `created_after`: time since boot
    /// after which it was created.
    pub(super) fn counted(&mut self, opener: &Opener, created_after: Duration, now: Duration) {
        let uncounted = now.saturating_sub(created_after);
        if uncounted > USUAL {
            self.0.add(opener, uncounted, now);
        }
    }

    /// Forgets those of more than a minute ago.
    pub(super) fn settle(&mut self, now: Duration) {
        self.0.settle(now);
    }

    /// The processes as states. `user`: name of a user.
    pub(super) fn degradations(&self, user: &dyn Fn(u32) -> Option<String>) -> Vec<Degradation> {
        self.0.degradations(DegradedReason::AttachedLate, user, |pid, uncounted| {
            format!(
                "process {pid} may have used the driver for up to {:.1} s before it was counted: GPU faults and copies of that time are \
                 not counted; `counted_from` is the time of the first count",
                uncounted.as_secs_f64()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_named_when_its_va_space_may_be_older_than_the_usual_moment() {
        let opener = |pid| Opener { pid, start_ticks: 1, uid: 1000, comm: [0; 16] };
        let mut late = Late::default();
        let at = Duration::from_millis;
        late.counted(&opener(1), at(9_500), at(10_000));
        late.counted(&opener(2), at(9_400), at(10_000));
        let states = late.degradations(&|_| Some("anna".to_owned()));
        let [state] = states.as_slice() else { panic!("{states:?}") };
        assert_eq!(
            (state.reason, state.pid, state.user.as_deref()),
            (DegradedReason::AttachedLate, Some(2), Some("anna"))
        );
        assert!(state.description.contains("up to 0.6 s before"), "{}", state.description);
        late.settle(at(70_000));
        assert!(late.degradations(&|_| None).is_empty());
    }
}

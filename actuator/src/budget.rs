//! Waiting time of one order for its target. A target that holds locks that calls need, or limits
//! an actor's processor time, blocks the worker of a GPU, and with it all other orders there. All
//! waits of an order therefore come out of one budget.

use std::{
    fmt,
    time::{Duration, Instant},
};

use model::{CallResult, Interrupt};

/// Time budget of an order for its inspections, actors and calls together. Pauses between calls are
/// not included; they are no longer than the calls.
pub(crate) const ORDER_BUDGET: Duration = Duration::from_secs(30);
/// Duration of a wait that does not yield to a withdrawal.
const MIN_SLICE: Duration = Duration::from_millis(500);
/// Interval of checks for reasons to end a wait.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waiting time of one order: its limit, and how much of that is spent.
pub(crate) struct TimeBudget<'a> {
    total: Duration,
    spent: Duration,
    interrupt: &'a dyn Interrupt,
}

/// Reason why a wait ended without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// The time limit of the wait, or of the order, is reached.
    Time,
    /// A withdrawal about another process waits for the worker.
    Withdrawal,
}

impl fmt::Debug for TimeBudget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { total, spent, interrupt: _ } = self;
        f.debug_struct("TimeBudget").field("total", total).field("spent", spent).finish_non_exhaustive()
    }
}

impl<'a> TimeBudget<'a> {
    pub(crate) const fn new(total: Duration, interrupt: &'a dyn Interrupt) -> Self {
        Self { total, spent: Duration::ZERO, interrupt }
    }

    pub(crate) const fn total(&self) -> Duration {
        self.total
    }

    pub(crate) const fn spent(&self) -> Duration {
        self.spent
    }

    pub(crate) const fn left(&self) -> Duration {
        self.total.saturating_sub(self.spent)
    }

    pub(crate) const fn is_spent(&self) -> bool {
        self.left().is_zero()
    }

    pub(crate) const fn spend(&mut self, waited: Duration) {
        self.spent = self.spent.saturating_add(waited);
    }

    /// Waits for a reply: at most this long, within the budget, and no longer than [`MIN_SLICE`]
    /// while a withdrawal about another process waits. `poll` waits as long as its argument, and
    /// returns `None` without a reply.
    pub(crate) fn wait<T, E: From<Expired>>(
        &mut self,
        at_most: Duration,
        now: impl Fn() -> Instant,
        mut poll: impl FnMut(Duration) -> Result<Option<T>, E>,
    ) -> Result<T, E> {
        let mut waited = Duration::ZERO;
        loop {
            let begun = now();
            let polled = poll(self.left().min(at_most.saturating_sub(waited)).min(POLL_INTERVAL));
            let took = now().saturating_duration_since(begun);
            self.spend(took);
            waited = waited.saturating_add(took);
            if let Some(reply) = polled? {
                return Ok(reply);
            }
            if self.is_spent() || waited >= at_most {
                return Err(Expired::Time.into());
            }
            if waited >= MIN_SLICE && self.interrupt.should_yield() {
                return Err(Expired::Withdrawal.into());
            }
        }
    }

    /// Result of the rest of an order after a call without a reply.
    pub(crate) fn expiry_result(&self, expired: Expired) -> CallResult {
        let why = match expired {
            Expired::Time => format!("its calls took more than {} s in total", self.total.as_secs()),
            Expired::Withdrawal => format!("a call hangs, and {expired}"),
        };
        CallResult::Failed(format!("gave up: {why}"))
    }
}

impl fmt::Display for Expired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "the time limit is reached",
            Self::Withdrawal => "a withdrawal for another process waits",
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    const NEVER: fn() -> bool = || false;
    const LONG: Duration = Duration::from_hours(1);

    /// Interrupt with a withdrawal about another process that waits all the time.
    pub(crate) struct AlwaysYields;

    impl Interrupt for AlwaysYields {
        fn is_cancelled(&self) -> bool {
            false
        }

        fn should_yield(&self) -> bool {
            true
        }
    }

    #[derive(Debug, PartialEq, Eq)]
    enum Failed {
        Expired(Expired),
        Ended,
    }

    impl From<Expired> for Failed {
        fn from(expired: Expired) -> Self {
            Self::Expired(expired)
        }
    }

    /// Wait of at most this long for a reply that takes this long, with a separate clock.
    fn wait(
        budget: &mut TimeBudget<'_>,
        clock: &Cell<Instant>,
        at_most: Duration,
        takes: Duration,
    ) -> Result<(), Failed> {
        let replied = clock.get() + takes;
        budget.wait(
            at_most,
            || clock.get(),
            |at_most| {
                let until = (clock.get() + at_most).min(replied);
                clock.set(until);
                Ok((until == replied).then_some(()))
            },
        )
    }

    #[test]
    fn total_time_limit_covers_all_calls() {
        let (mut budget, clock) = (TimeBudget::new(ORDER_BUDGET, &NEVER), Cell::new(Instant::now()));
        let begun = clock.get();
        let late = Err(Failed::Expired(Expired::Time));
        let waits = [14, 14, 14].map(|takes| wait(&mut budget, &clock, LONG, Duration::from_secs(takes)));
        assert_eq!(waits, [Ok(()), Ok(()), late]);
        assert_eq!(clock.get() - begun, ORDER_BUDGET);
        assert!(budget.is_spent());
        let expected = CallResult::Failed("gave up: its calls took more than 30 s in total".to_owned());
        assert_eq!(budget.expiry_result(Expired::Time), expected);
    }

    #[test]
    fn single_call_has_the_whole_budget() {
        let (mut budget, clock) = (TimeBudget::new(ORDER_BUDGET, &NEVER), Cell::new(Instant::now()));
        assert_eq!(wait(&mut budget, &clock, LONG, Duration::from_secs(29)), Ok(()));
        assert_eq!(budget.left(), Duration::from_secs(1));
        assert_eq!(budget.wait(LONG, || clock.get(), |_| Err::<Option<()>, _>(Failed::Ended)), Err(Failed::Ended));
        assert_eq!(wait(&mut budget, &clock, LONG, Duration::from_mins(10)), Err(Failed::Expired(Expired::Time)));
    }

    #[test]
    fn waits_have_their_own_limit() {
        let (mut budget, clock) = (TimeBudget::new(ORDER_BUDGET, &NEVER), Cell::new(Instant::now()));
        let limit = Duration::from_secs(10);
        assert_eq!(wait(&mut budget, &clock, limit, LONG), Err(Failed::Expired(Expired::Time)));
        assert_eq!(budget.left(), Duration::from_secs(20));
    }

    #[test]
    fn withdrawal_preempts_hung_calls_only() {
        let (mut budget, clock) = (TimeBudget::new(ORDER_BUDGET, &AlwaysYields), Cell::new(Instant::now()));
        assert_eq!(wait(&mut budget, &clock, LONG, MIN_SLICE), Ok(()));
        assert_eq!(wait(&mut budget, &clock, LONG, LONG), Err(Failed::Expired(Expired::Withdrawal)));
        assert_eq!(budget.spent(), 2 * MIN_SLICE);
    }
}

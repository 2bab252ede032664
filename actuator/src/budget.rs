//! The time that one order may wait for its target. Whoever holds locks that calls need, or lets an actor have little of a processor, holds up the worker of
//! a GPU, and with it the orders of all others there: so all that an order waits for comes out of one budget.

use std::time::{Duration, Instant};

use model::Answer;

/// For the inspections, actors and calls of an order, all together. Pauses between calls come on top, and are no longer than the calls.
pub(crate) const ORDER_BUDGET: Duration = Duration::from_secs(30);
/// Time without a reply after which a wait looks around.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What an order may wait, and has waited.
#[derive(Debug)]
pub(crate) struct TimeBudget {
    total: Duration,
    spent: Duration,
}

impl TimeBudget {
    pub(crate) const fn new(total: Duration) -> Self {
        Self { total, spent: Duration::ZERO }
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

    /// Polls until there is something, which is waited for as long as `poll` is told; `None` once the budget is spent.
    pub(crate) fn wait<T, E>(
        &mut self,
        now: impl Fn() -> Instant,
        mut poll: impl FnMut(Duration) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let mut begun = now();
        loop {
            let polled = poll(self.left().min(POLL_INTERVAL));
            let ended = now();
            self.spend(ended.saturating_duration_since(begun));
            begun = ended;
            match polled {
                Ok(None) if !self.is_spent() => {}
                ended => return ended,
            }
        }
    }

    /// The answer to what is left of an order whose budget is spent.
    pub(crate) fn gave_up(&self) -> Answer {
        Answer::Refused(format!("gave up: its calls took more than {} s together", self.total.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A call that takes so long, on a clock of its own: whether there was a reply.
    fn call(budget: &mut TimeBudget, clock: &Cell<Instant>, takes: Duration) -> bool {
        let replied = clock.get() + takes;
        let reply = budget.wait(
            || clock.get(),
            |at_most| {
                let until = (clock.get() + at_most).min(replied);
                clock.set(until);
                Ok::<_, ()>((until == replied).then_some(()))
            },
        );
        reply.unwrap().is_some()
    }

    #[test]
    fn calls_that_are_each_in_time_are_given_up_together() {
        let (mut budget, clock) = (TimeBudget::new(ORDER_BUDGET), Cell::new(Instant::now()));
        let begun = clock.get();
        let long = Duration::from_secs(14);
        assert_eq!([long; 3].map(|takes| call(&mut budget, &clock, takes)), [true, true, false]);
        assert_eq!(clock.get() - begun, ORDER_BUDGET);
        assert!(budget.is_spent());
        assert_eq!(budget.gave_up(), Answer::Refused("gave up: its calls took more than 30 s together".to_owned()));
    }

    #[test]
    fn one_call_has_all_of_the_budget_and_an_error_ends_it() {
        let (mut budget, clock) = (TimeBudget::new(ORDER_BUDGET), Cell::new(Instant::now()));
        assert!(call(&mut budget, &clock, Duration::from_secs(29)));
        assert_eq!(budget.left(), Duration::from_secs(1));
        assert_eq!(budget.wait(|| clock.get(), |_| Err::<Option<()>, _>("ended")), Err("ended"));
        assert!(!call(&mut budget, &clock, Duration::from_mins(10)));
    }
}

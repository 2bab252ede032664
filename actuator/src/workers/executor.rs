//! Thread of one worker.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc::Sender},
    time::{Duration, Instant},
};

use model::{Actuator, CallResult, GpuUuid, Interrupt, Order, Outcome};

use super::{
    Make, Off,
    queue::{Queue, gives_advice},
};
use crate::{
    journal::{Intent, Journal, JournalError},
    uniform_outcome,
};

pub(super) struct Executor {
    pub(super) gpu: GpuUuid,
    pub(super) make: Make,
    pub(super) off: Off,
    pub(super) journal: Option<Journal>,
    pub(super) orders: Arc<Queue>,
    pub(super) outcome_sender: Sender<Outcome>,
    /// Actuator, made when first needed, and again after a panic.
    pub(super) actuator: Option<Box<dyn Actuator>>,
}

impl Executor {
    /// Runs until the queue ends.
    pub(super) fn run(mut self) {
        while let Some(taken) = self.orders.next() {
            let order = taken.order;
            let outcome = if taken.is_cancelled {
                uniform_outcome(&order, &CallResult::Cancelled)
            } else if let Some(journal) = self.journal.clone().filter(|_| gives_advice(&order)) {
                self.execute_advice(&journal, &order)
            } else {
                self.execute(&order)
            };
            self.send(outcome);
        }
    }

    /// Executes an order that gives advice, which has to be in the journal before.
    fn execute_advice(&mut self, journal: &Journal, order: &Order) -> Outcome {
        // An order cancelled before its start leaves no trace, even if it is cancelled at the same
        // moment.
        if self.is_off(order) {
            return uniform_outcome(order, &CallResult::Cancelled);
        }
        let orders = Arc::clone(&self.orders);
        let intent = match Intent::begin(journal, (order.process, order.gpu), &order.steps, move || orders.wake()) {
            Ok(intent) => intent,
            Err(error @ JournalError::Full(_)) => {
                return uniform_outcome(order, &CallResult::Denied(error.to_string()));
            }
            Err(error) => return uniform_outcome(order, &CallResult::Failed(error.to_string())),
        };
        let is_ready = || intent.result().is_some();
        while let Some(withdrawal) = self.orders.next_withdrawal(is_ready, intent.deadline()) {
            let outcome = self.execute(&withdrawal);
            self.send(outcome);
        }
        let result = match intent.result() {
            _ if self.is_off(order) => CallResult::Cancelled,
            Some(Ok(())) => {
                let outcome = self.call(order);
                intent.record_outcome(&outcome);
                return outcome;
            }
            Some(Err(error)) => CallResult::Failed(error.to_string()),
            None => CallResult::Failed(intent.timeout_error().to_string()),
        };
        intent.cancel();
        uniform_outcome(order, &result)
    }

    /// Executes an order that gives no advice.
    fn execute(&mut self, order: &Order) -> Outcome {
        let outcome = self.call(order);
        if let Some(journal) = &self.journal {
            journal.record_outcome(&outcome);
        }
        outcome
    }

    fn call(&mut self, order: &Order) -> Outcome {
        let Self { gpu, make, off, orders, actuator, .. } = self;
        let pid = order.process.pid;
        let min_slice = if order.is_rollback { min_slice(orders.yields(pid)) } else { Duration::ZERO };
        let interrupt =
            OrderInterrupt { off, orders, pid, begun: Instant::now(), min_slice, has_yielded: Cell::new(false) };
        let outcome =
            catch_unwind(AssertUnwindSafe(|| actuator.get_or_insert_with(|| make(*gpu)).execute(order, &interrupt)));
        if order.is_rollback {
            orders.record_yield(pid, interrupt.has_yielded.get());
        }
        outcome.unwrap_or_else(|panic| {
            *actuator = None;
            let message =
                panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref().cloned());
            let why = format!("the worker panicked: {}", message.unwrap_or_default());
            tracing::error!("an order of decision {} for {gpu}: {why}", order.decision);
            uniform_outcome(order, &CallResult::Failed(why))
        })
    }

    /// Whether acting is off for an order: never for a rollback.
    fn is_off(&self, order: &Order) -> bool {
        !order.is_rollback && ((self.off)() || self.orders.is_cancelled())
    }

    fn send(&self, outcome: Outcome) {
        // The receiver may be gone.
        let _ = self.outcome_sender.send(outcome);
    }
}

/// Time for which a withdrawal does not give way, after having given way this often: it doubles
/// each time. Otherwise slow withdrawals would give way to each other for ever.
fn min_slice(yields: u32) -> Duration {
    const DOUBLED_MAX: u32 = 5;
    if yields == 0 { Duration::ZERO } else { Duration::from_secs(1 << (yields - 1).min(DOUBLED_MAX)) }
}

/// Reasons to stop the executing order, which is about this process.
struct OrderInterrupt<'a> {
    off: &'a Off,
    orders: &'a Queue,
    pid: u32,
    begun: Instant,
    /// Time in which it does not give way.
    min_slice: Duration,
    has_yielded: Cell<bool>,
}

impl Interrupt for OrderInterrupt<'_> {
    fn is_cancelled(&self) -> bool {
        (self.off)() || self.orders.is_cancelled()
    }

    fn should_yield(&self) -> bool {
        let has_yielded = self.begun.elapsed() >= self.min_slice && self.orders.has_other_withdrawal(self.pid);
        self.has_yielded.set(has_yielded);
        has_yielded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_slice_of_a_withdrawal_doubles_up_to_the_budget_of_an_order() {
        let seconds = [0, 1, 2, 3, 4, 5, 6, 60].map(|times| min_slice(times).as_secs());
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 32]);
    }
}

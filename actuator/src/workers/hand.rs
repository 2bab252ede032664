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
    queue::{Queue, advises},
};
use crate::{
    all_answered,
    journal::{Intent, Journal, JournalError},
};

pub(super) struct Hand {
    pub(super) gpu: GpuUuid,
    pub(super) make: Make,
    pub(super) off: Off,
    pub(super) journal: Option<Journal>,
    pub(super) orders: Arc<Queue>,
    pub(super) outcome_sender: Sender<Outcome>,
    /// Actuator, made when first needed, and again after a panic.
    pub(super) actuator: Option<Box<dyn Actuator>>,
}

impl Hand {
    /// Runs until the queue ends.
    pub(super) fn work(mut self) {
        while let Some(taken) = self.orders.next() {
            let order = taken.order;
            let outcome = if taken.is_cancelled {
                all_answered(&order, &CallResult::Cancelled)
            } else if let Some(journal) = self.journal.clone().filter(|_| advises(&order)) {
                self.advise(&journal, &order)
            } else {
                self.carry_out(&order)
            };
            self.send(outcome);
        }
    }

    /// Executes an order that gives advice, which has to be in the journal before.
    fn advise(&mut self, journal: &Journal, order: &Order) -> Outcome {
        // An order cancelled before its start leaves no trace, even if it is cancelled at the same
        // moment.
        if self.is_off(order) {
            return all_answered(order, &CallResult::Cancelled);
        }
        let orders = Arc::clone(&self.orders);
        let intent = match Intent::begin(journal, (order.process, order.gpu), &order.steps, move || orders.wake()) {
            Ok(intent) => intent,
            Err(error @ JournalError::Full(_)) => return all_answered(order, &CallResult::Denied(error.to_string())),
            Err(error) => return all_answered(order, &CallResult::Failed(error.to_string())),
        };
        let is_ready = || intent.result().is_some();
        while let Some(withdrawal) = self.orders.next_withdrawal(is_ready, intent.deadline()) {
            let outcome = self.carry_out(&withdrawal);
            self.send(outcome);
        }
        let answer = match intent.result() {
            _ if self.is_off(order) => CallResult::Cancelled,
            Some(Ok(())) => {
                let outcome = self.call(order);
                intent.carried_out(&outcome);
                return outcome;
            }
            Some(Err(error)) => CallResult::Failed(error.to_string()),
            None => CallResult::Failed(intent.late().to_string()),
        };
        intent.cancel();
        all_answered(order, &answer)
    }

    /// Executes an order that gives no advice.
    fn carry_out(&mut self, order: &Order) -> Outcome {
        let outcome = self.call(order);
        if let Some(journal) = &self.journal {
            journal.carried_out(&outcome);
        }
        outcome
    }

    fn call(&mut self, order: &Order) -> Outcome {
        let Self { gpu, make, off, orders, actuator, .. } = self;
        let pid = order.process.pid;
        let undisturbed = if order.is_rollback { undisturbed(orders.times_given_way(pid)) } else { Duration::ZERO };
        let turn = Turn { off, orders, pid, begun: Instant::now(), undisturbed, gives_way: Cell::new(false) };
        let carried_out =
            catch_unwind(AssertUnwindSafe(|| actuator.get_or_insert_with(|| make(*gpu)).carry_out(order, &turn)));
        if order.is_rollback {
            orders.note_given_way(pid, turn.gives_way.get());
        }
        carried_out.unwrap_or_else(|panic| {
            *actuator = None;
            let message =
                panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref().cloned());
            let why = format!("it failed in the middle: {}", message.unwrap_or_default());
            tracing::error!("an order of decision {} for {gpu}: {why}", order.decision);
            all_answered(order, &CallResult::Failed(why))
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
fn undisturbed(times_given_way: u32) -> Duration {
    const DOUBLED_MAX: u32 = 5;
    if times_given_way == 0 { Duration::ZERO } else { Duration::from_secs(1 << (times_given_way - 1).min(DOUBLED_MAX)) }
}

/// Reasons to stop the executing order, which is about this process.
struct Turn<'a> {
    off: &'a Off,
    orders: &'a Queue,
    pid: u32,
    begun: Instant,
    /// Time in which it does not give way.
    undisturbed: Duration,
    gives_way: Cell<bool>,
}

impl Interrupt for Turn<'_> {
    fn is_cancelled(&self) -> bool {
        (self.off)() || self.orders.is_cancelled()
    }

    fn is_awaited(&self) -> bool {
        let gives_way = self.begun.elapsed() >= self.undisturbed && self.orders.has_withdrawal_beside(self.pid);
        self.gives_way.set(gives_way);
        gives_way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undisturbed_time_of_a_withdrawal_doubles_up_to_the_budget_of_an_order() {
        let seconds = [0, 1, 2, 3, 4, 5, 6, 60].map(|times| undisturbed(times).as_secs());
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 32]);
    }
}

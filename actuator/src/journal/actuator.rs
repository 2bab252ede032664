//! An actuator that writes down what advice it is about to give.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Action, Actuator, Answer, Order, Outcome};

use super::{InForce, Journal};
use crate::all_answered;

/// Carries out orders by another, and keeps the journal, which those of all GPUs share. Where it cannot be written no advice is given.
pub struct Journalled<A> {
    pub(super) inner: A,
    journal: Arc<Mutex<Journal>>,
}

impl<A> Journalled<A> {
    /// This actuator's advice is in this journal.
    pub const fn new(inner: A, journal: Arc<Mutex<Journal>>) -> Self {
        Self { inner, journal }
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: Actuator> Actuator for Journalled<A> {
    fn carry_out(&mut self, order: &Order, off: &dyn Fn() -> bool) -> Outcome {
        // What is called off before it begins leaves no trace, whatever is said a moment later.
        if !order.is_undoing && off() {
            return all_answered(order, &Answer::CalledOff);
        }
        let mut journal = self.journal();
        let advises = order.steps.iter().any(|step| matches!(step.action, Action::Advise(_)));
        let mut before = if advises { journal.in_force.of(order.process) } else { InForce::default() };
        let intended = journal.intend(order.process, order.gpu, &order.steps);
        drop(journal);
        if let Err(error) = intended {
            return all_answered(order, &Answer::Refused(error.to_string()));
        }
        let outcome = self.inner.carry_out(order, off);
        let mut journal = self.journal();
        for call in &outcome.calls {
            match (&call.answer, call.step.action) {
                (Answer::Ended, _) => journal.ended(order.process),
                // With the mapping its advice is gone.
                (Answer::Done | Answer::NotMapped, Action::Withdraw(_)) | (Answer::NotMapped, Action::Advise(_)) => {
                    journal.withdrawn(order.process, order.gpu, &call.step);
                }
                // For these the driver was never called; and there may be advice of an earlier order.
                (Answer::CalledOff | Answer::HeldBack(_) | Answer::Shadow | Answer::HostMemory, Action::Advise(_)) => {
                    journal.not_given(order.process, order.gpu, &call.step, &before);
                }
                // What was refused may have been done in part, and a later step of the same memory must not take its place in the journal.
                (_, Action::Advise(advice)) => {
                    before.add(order.process, order.gpu, (call.step.begin, call.step.end), advice);
                }
                _ => {}
            }
        }
        drop(journal);
        outcome
    }
}

//! The orders that wait for one worker.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use model::{DecisionId, Order};

/// So many wait for one GPU at most, beside those that put something back.
pub(super) const WAITING_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    undoing: VecDeque<Order>,
    others: VecDeque<Order>,
    is_closed: bool,
    /// Whose order is being carried out, if it is one that can be put back, and whether it is.
    at_work: Option<(DecisionId, bool)>,
}

/// Why an order does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// What it does was put back before it began.
    PutBack,
    /// There is no room.
    Full,
}

/// What to do next.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) order: Order,
    /// It is not to be done: all ends.
    pub(super) is_called_off: bool,
}

impl Queue {
    /// Says which orders do not wait, or no longer.
    pub(super) fn push(&self, order: Order) -> Vec<(Order, Left)> {
        let mut waiting = self.lock();
        let mut left = Vec::new();
        if order.is_undoing {
            let decision = order.decision;
            let (put_back, others): (VecDeque<Order>, _) =
                waiting.others.drain(..).partition(|other| other.decision == decision);
            waiting.others = others;
            left.extend(put_back.into_iter().map(|order| (order, Left::PutBack)));
            if let Some((at_work, is_put_back)) = &mut waiting.at_work {
                *is_put_back |= *at_work == decision;
            }
            waiting.undoing.push_back(order);
        } else if waiting.others.len() < WAITING_MAX {
            waiting.others.push_back(order);
        } else {
            left.push((order, Left::Full));
        }
        self.changed.notify_one();
        left
    }

    /// The next order, waiting for it; `None` once all is done that is to be done before the end.
    pub(super) fn next(&self) -> Option<Taken> {
        let mut waiting = self.lock();
        waiting.at_work = None;
        loop {
            if let Some(order) = waiting.undoing.pop_front() {
                return Some(Taken { order, is_called_off: false });
            }
            if let Some(order) = waiting.others.pop_front() {
                waiting.at_work = Some((order.decision, false));
                return Some(Taken { order, is_called_off: waiting.is_closed });
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether what is at work is to stop after the call it makes.
    pub(super) fn is_called_off(&self) -> bool {
        let waiting = self.lock();
        waiting.is_closed || waiting.at_work.is_some_and(|(_, is_put_back)| is_put_back)
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

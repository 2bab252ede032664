//! Queue of orders for one worker.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use model::{Action, DecisionId, Order};

/// Maximum orders that wait for one GPU, without rollbacks.
pub(super) const QUEUE_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

/// Maximum number of processes for which give-ways of withdrawals are counted. Further ones give
/// way as for the first time.
const YIELD_COUNTS_MAX: usize = 1024;

#[derive(Debug, Default)]
struct QueueState {
    withdrawals: VecDeque<Order>,
    others: VecDeque<Order>,
    is_closed: bool,
    /// Decision of the executing order, if it can be rolled back, and whether it is a rollback.
    executing: Option<(DecisionId, bool)>,
    /// Consecutive times that the withdrawal about a process gave way to others, by process id.
    yield_counts: BTreeMap<u32, u32>,
}

/// Reason why an order is not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Its decision was rolled back before its start.
    RolledBack,
    /// The queue is full.
    Full,
}

/// Order that the worker takes next.
#[derive(Debug)]
pub(super) struct NextOrder {
    pub(super) order: Order,
    /// Whether it is cancelled, as the workers end.
    pub(super) is_cancelled: bool,
}

/// Whether it gives advice.
pub(super) fn gives_advice(order: &Order) -> bool {
    order.steps.iter().any(|step| matches!(step.action, Action::Advise(_)))
}

impl QueueState {
    fn is_cancelled(&self) -> bool {
        self.is_closed || self.executing.is_some_and(|(_, is_rolled_back)| is_rolled_back)
    }
}

impl Queue {
    /// Adds an order. Returns the orders that are not queued, or no longer.
    pub(super) fn push(&self, order: Order) -> Vec<(Order, Rejection)> {
        let mut state = self.lock();
        let mut rejected = Vec::new();
        if order.is_rollback {
            let decision = order.decision;
            let (rolled_back, others): (VecDeque<Order>, _) =
                state.others.drain(..).partition(|other| other.decision == decision);
            state.others = others;
            rejected.extend(rolled_back.into_iter().map(|order| (order, Rejection::RolledBack)));
            if let Some((executing, is_rolled_back)) = &mut state.executing {
                *is_rolled_back |= *executing == decision;
            }
            state.withdrawals.push_back(order);
        } else if state.others.len() < QUEUE_MAX {
            state.others.push_back(order);
        } else {
            rejected.push((order, Rejection::Full));
        }
        self.changed.notify_one();
        rejected
    }

    /// Next order, with a wait; `None` once all orders before the end are executed.
    pub(super) fn next(&self) -> Option<NextOrder> {
        let mut state = self.lock();
        state.executing = None;
        loop {
            if let Some(order) = state.withdrawals.pop_front() {
                return Some(NextOrder { order, is_cancelled: false });
            }
            if let Some(order) = state.others.pop_front() {
                state.executing = Some((order.decision, false));
                return Some(NextOrder { order, is_cancelled: state.is_closed });
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Next withdrawal to be executed while the executing order waits. `None` once its wait is
    /// over, it is cancelled, or the deadline has passed.
    pub(super) fn next_withdrawal(&self, is_ready: impl Fn() -> bool, deadline: Instant) -> Option<Order> {
        let mut state = self.lock();
        loop {
            // The withdrawal of the executing order comes after it.
            if is_ready() || state.is_cancelled() {
                return None;
            }
            // An order that gives advice would have to wait itself.
            if let Some(order) = state.withdrawals.pop_front_if(|order| !gives_advice(order)) {
                return Some(order);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a withdrawal about another process waits. An order without steps only cancels, and
    /// does not count.
    pub(super) fn has_other_withdrawal(&self, pid: u32) -> bool {
        self.lock().withdrawals.iter().any(|order| order.process.pid != pid && !order.steps.is_empty())
    }

    /// Consecutive times that the withdrawal about this process gave way to others.
    pub(super) fn yields(&self, pid: u32) -> u32 {
        self.lock().yield_counts.get(&pid).copied().unwrap_or_default()
    }

    /// Records whether the withdrawal about this process gave way now.
    pub(super) fn record_yield(&self, pid: u32, has_yielded: bool) {
        let mut state = self.lock();
        if !has_yielded {
            state.yield_counts.remove(&pid);
        } else if state.yield_counts.len() < YIELD_COUNTS_MAX || state.yield_counts.contains_key(&pid) {
            *state.yield_counts.entry(pid).or_default() += 1;
        }
    }

    /// Wakes the executing order, whose wait may be over.
    pub(super) fn wake(&self) {
        // A waiter has checked before this, or checks after it.
        let _waiting = self.lock();
        self.changed.notify_one();
    }

    /// Whether the executing order is to stop after its current call.
    pub(super) fn is_cancelled(&self) -> bool {
        self.lock().is_cancelled()
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

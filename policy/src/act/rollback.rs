//! Advice being withdrawn. No other action on a process's memory at a GPU starts before the
//! withdrawal has succeeded, or failed too often.
//!
//! Attempts continue for the life of the process, with growing pauses: a cause of failure may pass,
//! such as a process without a free descriptor.

use std::collections::{BTreeMap, BTreeSet};

use model::{CallResult, DecisionId, GpuUuid, Order, Outcome, ProcessId, Step};

use super::{
    ledger::Ledger,
    limits::{WITHDRAWALS_REPORTED, WITHDRAWALS_REST_MAX},
};

/// Advice that may be in force because of a decision, by a former run's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Decision.
    pub decision: DecisionId,
    /// Process.
    pub process: ProcessId,
    /// GPU.
    pub gpu: GpuUuid,
    /// Steps that gave it.
    pub steps: Vec<Step>,
}

/// All withdrawals, by decision.
#[derive(Debug, Default)]
pub(crate) struct Rollback(BTreeMap<DecisionId, Left>);

#[derive(Debug)]
struct Left {
    process: ProcessId,
    gpu: GpuUuid,
    ledger: Ledger,
    tries: u32,
    /// Intervals until the next attempt.
    remaining: u32,
    /// Whether an outcome is pending.
    waits: bool,
}

/// Result of an order of withdrawals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawn {
    /// No advice is in force any more; `after_failure`: after [`Withdrawn::Failed`].
    All { after_failure: bool },
    /// Some advice is in force, and is withdrawn again.
    Pending,
    /// Some advice is in force after so many failures that an operator is informed; the attempts
    /// continue less often.
    Failed(CallResult),
}

impl Rollback {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Starts to withdraw, with this order, unless there is no advice.
    pub(crate) fn begin(
        &mut self,
        decision: DecisionId,
        process: ProcessId,
        gpu: GpuUuid,
        ledger: Ledger,
    ) -> Option<Order> {
        if ledger.is_empty() {
            return None;
        }
        let left = Left { process, gpu, ledger, tries: 0, remaining: 0, waits: false };
        Some(self.0.entry(decision).or_insert(left).order(decision))
    }

    /// Whether any withdrawal for this process at this GPU is in progress, and may end soon.
    pub(crate) fn concerns(&self, process: ProcessId, gpu: GpuUuid) -> bool {
        self.0.values().any(|left| left.process == process && left.gpu == gpu && left.may_soon_be())
    }

    /// Whether any withdrawal for this process has failed too often.
    pub(crate) fn has_failed(&self, process: ProcessId) -> bool {
        self.0.values().any(|left| left.process == process && !left.may_soon_be())
    }

    /// Orders for failed withdrawals whose pause is over. To be called at each interval.
    pub(crate) fn due_orders(&mut self) -> Vec<Order> {
        let idle = self.0.iter_mut().filter(|(_, left)| !left.waits);
        let due = idle.filter_map(|(decision, left)| {
            let is_due = left.remaining == 0;
            left.remaining = left.remaining.saturating_sub(1);
            is_due.then(|| left.order(*decision))
        });
        due.collect()
    }

    /// Orders for all of them, whatever their pauses: for the end.
    pub(crate) fn all_orders(&mut self) -> Vec<Order> {
        self.0.values_mut().for_each(|left| left.remaining = 0);
        self.due_orders()
    }

    /// Orders for all of them, once the last attempts have outcomes; none before.
    pub(crate) fn orders_if_idle(&mut self) -> Vec<Order> {
        if self.0.values().any(|left| left.waits) { Vec::new() } else { self.all_orders() }
    }

    /// Processes of all withdrawals.
    pub(crate) fn processes(&self) -> BTreeSet<ProcessId> {
        self.0.values().map(|left| left.process).collect()
    }

    /// Processes an outcome; `None` if it is not about a withdrawal.
    pub(crate) fn carried_out(&mut self, outcome: &Outcome) -> Option<Withdrawn> {
        let left = self.0.get_mut(&outcome.decision)?;
        for call in &outcome.calls {
            left.ledger.answered(call);
        }
        if outcome.is_rollback {
            left.waits = false;
        }
        if left.ledger.is_empty() {
            let after_failure = left.tries > WITHDRAWALS_REPORTED;
            self.0.remove(&outcome.decision);
            return Some(Withdrawn::All { after_failure });
        }
        if !outcome.is_rollback {
            return Some(Withdrawn::Pending);
        }
        left.remaining = 1_u32.checked_shl(left.tries).unwrap_or(u32::MAX).min(WITHDRAWALS_REST_MAX);
        if left.tries != WITHDRAWALS_REPORTED {
            return Some(Withdrawn::Pending);
        }
        let answer = outcome.calls.iter().rev().find(|call| call.result != CallResult::Done);
        Some(Withdrawn::Failed(answer.map_or(CallResult::Cancelled, |call| call.result.clone())))
    }
}

impl Left {
    /// The last of the first attempts counts until its outcome.
    const fn may_soon_be(&self) -> bool {
        self.tries < WITHDRAWALS_REPORTED || self.waits && self.tries == WITHDRAWALS_REPORTED
    }

    fn order(&mut self, decision: DecisionId) -> Order {
        self.tries = self.tries.saturating_add(1);
        self.waits = true;
        Order { decision, process: self.process, gpu: self.gpu, steps: self.ledger.withdrawals(), is_rollback: true }
    }
}

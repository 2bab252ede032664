//! Withdrawals of advice. No other action on the memory of a process at a GPU starts until they
//! have succeeded, or failed too often.
//!
//! Attempts continue for the life of the process, with growing pauses: the cause of a failure may
//! be temporary, such as a process without a free descriptor.

use std::collections::{BTreeMap, BTreeSet};

use model::{CallResult, DecisionId, GpuUuid, Order, Outcome, ProcessId, Step};

use super::ledger::Ledger;
use crate::act::limits::{WITHDRAWAL_ATTEMPTS_REPORTED, WITHDRAWAL_PAUSE_MAX};

/// Advice that may be in force because of a decision, from the journal of a former run.
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
pub(crate) struct Rollback(BTreeMap<DecisionId, Withdrawal>);

/// Withdrawal of a decision's advice.
#[derive(Debug)]
struct Withdrawal {
    process: ProcessId,
    gpu: GpuUuid,
    ledger: Ledger,
    attempts: u32,
    /// Intervals until the next attempt.
    remaining_pause: u32,
    /// Whether an outcome is pending.
    is_pending: bool,
}

/// Result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawn {
    /// All advice is withdrawn; `after_failure`: [`Withdrawn::Failed`] was reported before.
    All { after_failure: bool },
    /// Some advice is still in force; the attempts continue.
    Pending,
    /// Some advice is still in force after [`WITHDRAWAL_ATTEMPTS_REPORTED`] attempts. The result is
    /// reported to an operator, and the attempts continue less often.
    Failed(CallResult),
}

impl Rollback {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Starts a withdrawal and returns its first order; `None` without advice.
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
        let withdrawal = Withdrawal { process, gpu, ledger, attempts: 0, remaining_pause: 0, is_pending: false };
        Some(self.0.entry(decision).or_insert(withdrawal).order(decision))
    }

    /// Whether a withdrawal for this process at this GPU is in progress, and may succeed soon.
    pub(crate) fn is_withdrawing(&self, process: ProcessId, gpu: GpuUuid) -> bool {
        self.0
            .values()
            .any(|withdrawal| withdrawal.process == process && withdrawal.gpu == gpu && withdrawal.may_soon_succeed())
    }

    /// Whether a withdrawal for this process has failed too often.
    pub(crate) fn has_failed(&self, process: ProcessId) -> bool {
        self.0.values().any(|withdrawal| withdrawal.process == process && !withdrawal.may_soon_succeed())
    }

    /// Orders for failed withdrawals whose pause has ended. Called at each interval.
    pub(crate) fn due_orders(&mut self) -> Vec<Order> {
        let idle = self.0.iter_mut().filter(|(_, withdrawal)| !withdrawal.is_pending);
        let due = idle.filter_map(|(decision, withdrawal)| {
            let is_due = withdrawal.remaining_pause == 0;
            withdrawal.remaining_pause = withdrawal.remaining_pause.saturating_sub(1);
            is_due.then(|| withdrawal.order(*decision))
        });
        due.collect()
    }

    /// Orders for all withdrawals without a pending outcome, regardless of pauses.
    pub(crate) fn all_orders(&mut self) -> Vec<Order> {
        self.0.values_mut().for_each(|withdrawal| withdrawal.remaining_pause = 0);
        self.due_orders()
    }

    /// Orders for all withdrawals, regardless of pauses; none while any outcome is pending.
    pub(crate) fn orders_if_idle(&mut self) -> Vec<Order> {
        if self.0.values().any(|withdrawal| withdrawal.is_pending) { Vec::new() } else { self.all_orders() }
    }

    /// Processes with withdrawals.
    pub(crate) fn processes(&self) -> BTreeSet<ProcessId> {
        self.0.values().map(|withdrawal| withdrawal.process).collect()
    }

    /// Processes an outcome; `None` if it is not about a withdrawal.
    pub(crate) fn record_outcome(&mut self, outcome: &Outcome) -> Option<Withdrawn> {
        let withdrawal = self.0.get_mut(&outcome.decision)?;
        for call in &outcome.calls {
            withdrawal.ledger.record_result(call);
        }
        if outcome.is_rollback {
            withdrawal.is_pending = false;
        }
        if withdrawal.ledger.is_empty() {
            let after_failure = withdrawal.attempts > WITHDRAWAL_ATTEMPTS_REPORTED;
            self.0.remove(&outcome.decision);
            return Some(Withdrawn::All { after_failure });
        }
        if !outcome.is_rollback {
            return Some(Withdrawn::Pending);
        }
        withdrawal.remaining_pause =
            1_u32.checked_shl(withdrawal.attempts).unwrap_or(u32::MAX).min(WITHDRAWAL_PAUSE_MAX);
        if withdrawal.attempts != WITHDRAWAL_ATTEMPTS_REPORTED {
            return Some(Withdrawn::Pending);
        }
        let result = outcome.calls.iter().rev().find(|call| call.result != CallResult::Done);
        Some(Withdrawn::Failed(result.map_or(CallResult::Cancelled, |call| call.result.clone())))
    }
}

impl Withdrawal {
    /// Whether fewer than [`WITHDRAWAL_ATTEMPTS_REPORTED`] attempts have failed.
    const fn may_soon_succeed(&self) -> bool {
        self.attempts < WITHDRAWAL_ATTEMPTS_REPORTED || self.is_pending && self.attempts == WITHDRAWAL_ATTEMPTS_REPORTED
    }

    fn order(&mut self, decision: DecisionId) -> Order {
        self.attempts = self.attempts.saturating_add(1);
        self.is_pending = true;
        Order { decision, process: self.process, gpu: self.gpu, steps: self.ledger.withdrawals(), is_rollback: true }
    }
}

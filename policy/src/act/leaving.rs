//! Advice that is being withdrawn. Nothing else is done to a process's memory at a GPU before that is done.

use std::collections::BTreeMap;

use model::{Answer, DecisionId, GpuUuid, Order, Outcome, ProcessId, Step};

use super::{ledger::Ledger, limits::WITHDRAWALS_MAX};

/// Advice that may be in force because of a decision, as a journal of a former run tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Which decision.
    pub decision: DecisionId,
    /// Whose memory.
    pub process: ProcessId,
    /// At which GPU.
    pub gpu: GpuUuid,
    /// The steps that gave it.
    pub steps: Vec<Step>,
}

/// All of it, by decision.
#[derive(Debug, Default)]
pub(crate) struct Leaving(BTreeMap<DecisionId, Left>);

#[derive(Debug)]
struct Left {
    process: ProcessId,
    gpu: GpuUuid,
    ledger: Ledger,
    tries: u32,
    waits: bool,
}

/// What came of an order that withdraws.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawn {
    /// Nothing is in force any more.
    All,
    /// Something is, and it is tried again.
    NotYet,
    /// Something is, for good.
    GivenUp(Answer),
}

impl Leaving {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins to withdraw: with this order, unless there is nothing to withdraw.
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
        let left = Left { process, gpu, ledger, tries: 0, waits: false };
        Some(self.0.entry(decision).or_insert(left).order(decision))
    }

    /// Whether anything of this process at this GPU is being withdrawn.
    pub(crate) fn concerns(&self, process: ProcessId, gpu: GpuUuid) -> bool {
        self.0.values().any(|left| left.process == process && left.gpu == gpu)
    }

    /// Orders for what was not withdrawn at the last try.
    pub(crate) fn again(&mut self) -> Vec<Order> {
        self.0.iter_mut().filter(|(_, left)| !left.waits).map(|(decision, left)| left.order(*decision)).collect()
    }

    /// `None` if it is about none of these.
    pub(crate) fn carried_out(&mut self, outcome: &Outcome) -> Option<Withdrawn> {
        let left = self.0.get_mut(&outcome.decision)?;
        for call in &outcome.calls {
            left.ledger.answered(call);
        }
        if outcome.is_undoing {
            left.waits = false;
        }
        if left.ledger.is_empty() {
            self.0.remove(&outcome.decision);
            return Some(Withdrawn::All);
        }
        if outcome.is_undoing && left.tries >= WITHDRAWALS_MAX {
            self.0.remove(&outcome.decision);
            let answer = outcome.calls.iter().rev().find(|call| call.answer != Answer::Done);
            return Some(Withdrawn::GivenUp(answer.map_or(Answer::CalledOff, |call| call.answer.clone())));
        }
        Some(Withdrawn::NotYet)
    }
}

impl Left {
    fn order(&mut self, decision: DecisionId) -> Order {
        self.tries = self.tries.saturating_add(1);
        self.waits = true;
        Order { decision, process: self.process, gpu: self.gpu, steps: self.ledger.withdrawals(), is_undoing: true }
    }
}

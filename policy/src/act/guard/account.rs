//! Account of the migrations and advice of one process.

use std::{collections::BTreeMap, time::SystemTime};

use model::{Action, ActuatorKind, Advice, AdviceCalls, Call, CallResult, GpuUuid, Outcome, Place};

use super::{bucket::Bucket, permitted::OwnCalls};
use crate::act::intervals::Intervals;

#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) bucket: Bucket,
    /// Total bytes of ordered migrations.
    pub(super) moved_bytes: u64,
    /// Bytes of migrations to the host whose outcome is pending.
    pub(super) pending_to_host_bytes: u64,
    /// Memory with preferred location host, which migrates there at its next eviction or host
    /// access.
    pub(super) host_preferred: Intervals,
    /// Number of orders whose outcome is pending.
    pub(super) pending_orders: u64,
    /// Advice calls of uvmd.
    own_advice_calls: AdviceCalls,
    /// Whether its helper has executed an order.
    is_acted_on_by_helper: bool,
    /// Error of a failed withdrawal.
    pub(super) withdrawal_error: Option<String>,
    /// Blocks reserved by the open decision, by GPU, with the time of their last renewal.
    pub(super) reserved_blocks: BTreeMap<GpuUuid, BTreeMap<u64, SystemTime>>,
    /// Time at which the process was last seen.
    pub(super) seen_at: SystemTime,
}

impl Account {
    pub(super) fn new(bytes_per_second: u64, now: SystemTime) -> Self {
        Self {
            bucket: Bucket::full(bytes_per_second, now),
            moved_bytes: 0,
            pending_to_host_bytes: 0,
            host_preferred: Intervals::default(),
            pending_orders: 0,
            own_advice_calls: AdviceCalls::default(),
            is_acted_on_by_helper: false,
            withdrawal_error: None,
            reserved_blocks: BTreeMap::new(),
            seen_at: now,
        }
    }

    /// Records the outcome of an order.
    pub(super) fn record_outcome(&mut self, outcome: &Outcome) {
        self.pending_orders = self.pending_orders.saturating_sub(1);
        let AdviceCalls { by_ioctl, by_helper } = &mut self.own_advice_calls;
        *by_ioctl = by_ioctl.saturating_add(outcome.advice_calls.by_ioctl);
        *by_helper = by_helper.saturating_add(outcome.advice_calls.by_helper);
        // The first order of a helper is denied, because its thread has not been started.
        self.is_acted_on_by_helper |=
            outcome.actuator == Some(ActuatorKind::Helper) || outcome.advice_calls.by_helper > 0;
        for Call { step, result, .. } in &outcome.calls {
            match step.action {
                Action::Migrate(Place::Host) => {
                    self.pending_to_host_bytes = self.pending_to_host_bytes.saturating_sub(step.bytes());
                }
                Action::Migrate(_) | Action::Touch(_) => {}
                Action::Advise(_) | Action::Withdraw(_) => {
                    if !keeps_host_preference(step.action, result) {
                        self.host_preferred.remove(step.begin, step.end);
                    }
                }
            }
        }
    }

    /// Advice calls of uvmd so far; `None` where they are unknown. The probes count a call before
    /// its outcome arrives.
    pub(super) fn own_calls(&self) -> OwnCalls {
        let AdviceCalls { by_ioctl, by_helper } = self.own_advice_calls;
        let is_idle = self.pending_orders == 0;
        OwnCalls {
            by_tool: is_idle.then_some(by_ioctl),
            by_program: (is_idle || !self.is_acted_on_by_helper).then_some(by_helper),
        }
    }
}

/// Whether the preferred location may still be the host after this result.
const fn keeps_host_preference(action: Action, result: &CallResult) -> bool {
    match action {
        // A failed call may have taken effect in part.
        Action::Advise(Advice::PreferredLocation(Place::Host)) => {
            matches!(result, CallResult::Done | CallResult::Failed(_))
        }
        Action::Advise(Advice::PreferredLocation(_)) | Action::Withdraw(Advice::PreferredLocation(_)) => {
            !result.leaves_no_advice()
        }
        _ => true,
    }
}

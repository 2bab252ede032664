//! Account of moves and advice of one process.

use std::{collections::BTreeMap, time::SystemTime};

use model::{Action, ActuatorKind, Advice, Call, CallResult, GpuUuid, Outcome, Place};

use super::{bucket::Bucket, intervals::Intervals, permitted::OwnCalls};

#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) bucket: Bucket,
    /// Total bytes of ordered migrations.
    pub(super) moved_bytes: u64,
    /// Bytes ordered to the host without an outcome yet.
    pub(super) on_its_way_to_host_bytes: u64,
    /// Memory with preferred location host, which migrates there at its next eviction or host
    /// access.
    pub(super) bound_for_host: Intervals,
    /// Orders without an outcome.
    pub(super) awaited: u64,
    /// Advice calls of uvmd.
    pub(super) own_advice_calls: OwnCalls,
    /// Reason of a failed withdrawal.
    pub(super) spoiled: Option<String>,
    /// Blocks that the open decision retains, by GPU, with the time of the last renewal, however
    /// rarely it is due.
    pub(super) reserved_blocks: BTreeMap<GpuUuid, BTreeMap<u64, SystemTime>>,
    /// Time at which the process was last seen.
    pub(super) seen: SystemTime,
}

impl Account {
    pub(super) fn new(bytes_per_second: u64, now: SystemTime) -> Self {
        Self {
            bucket: Bucket::full(bytes_per_second, now),
            moved_bytes: 0,
            on_its_way_to_host_bytes: 0,
            bound_for_host: Intervals::default(),
            awaited: 0,
            own_advice_calls: OwnCalls::default(),
            spoiled: None,
            reserved_blocks: BTreeMap::new(),
            seen: now,
        }
    }

    /// Books the outcome of an order.
    pub(super) fn carried_out(&mut self, outcome: &Outcome) {
        self.awaited = self.awaited.saturating_sub(1);
        for Call { step, result: answer, duration_ns } in &outcome.calls {
            match step.action {
                Action::Migrate(Place::Host) => {
                    self.on_its_way_to_host_bytes = self.on_its_way_to_host_bytes.saturating_sub(step.bytes());
                }
                Action::Migrate(_) | Action::Touch(_) => {}
                Action::Advise(_) | Action::Withdraw(_) => {
                    let (is_done, requests) = (*answer == CallResult::Done, requests(step.action));
                    let OwnCalls { by_tool, by_program } = &mut self.own_advice_calls;
                    match outcome.actuator {
                        // CUDA may fail a call without one of the driver.
                        Some(ActuatorKind::Helper) if is_done => *by_program = by_program.saturating_add(requests),
                        Some(ActuatorKind::Helper) => {}
                        // A call that was never made has no duration, and the probes have not
                        // counted it either.
                        _ if is_done || *duration_ns > 0 => *by_tool = by_tool.saturating_add(requests),
                        _ => {}
                    }
                    if !stays_bound_for_host(step.action, answer) {
                        self.bound_for_host.remove(step.begin, step.end);
                    }
                }
            }
        }
    }
}

/// Driver calls of one advice call: a preference for the host is withdrawn by one for the GPU
/// first.
const fn requests(action: Action) -> u64 {
    if matches!(action, Action::Withdraw(Advice::PreferredLocation(Place::Host))) { 2 } else { 1 }
}

/// Whether memory that may have been preferred at the host still may be, after this result.
const fn stays_bound_for_host(action: Action, answer: &CallResult) -> bool {
    match action {
        // A failed call may have taken effect in part.
        Action::Advise(Advice::PreferredLocation(Place::Host)) => {
            matches!(answer, CallResult::Done | CallResult::Failed(_))
        }
        Action::Advise(Advice::PreferredLocation(_)) | Action::Withdraw(Advice::PreferredLocation(_)) => {
            !answer.leaves_no_advice()
        }
        _ => true,
    }
}

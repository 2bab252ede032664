//! Account of moves and advice of one process.

use std::{collections::BTreeMap, time::SystemTime};

use model::{Action, Advice, Call, CallResult, GpuUuid, Outcome, Place};

use super::{bucket::Bucket, intervals::Intervals};

#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) bucket: Bucket,
    /// Ordered to be moved, ever.
    pub(super) moved_bytes: u64,
    /// Ordered to be moved to the host, and not answered yet.
    pub(super) on_its_way_to_host_bytes: u64,
    /// Preferred at the host: goes there when it is next evicted or touched there.
    pub(super) bound_for_host: Intervals,
    /// Orders that are not answered yet.
    pub(super) awaited: u64,
    /// Calls that gave or took advice, of ours.
    pub(super) own_advice_calls: u64,
    /// Advice that could not be withdrawn: why.
    pub(super) spoiled: Option<String>,
    /// At GPUs at which the decision that stands keeps memory of it, however rarely that has to be renewed: blocks that were asked to stay, and when last.
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
            own_advice_calls: 0,
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
                    // What was never called took no time, and the probes have not counted it either.
                    if *answer == CallResult::Done || *duration_ns > 0 {
                        self.own_advice_calls = self.own_advice_calls.saturating_add(requests(step.action));
                    }
                    if !stays_bound_for_host(step.action, answer) {
                        self.bound_for_host.remove(step.begin, step.end);
                    }
                }
            }
        }
    }
}

/// Driver calls of one advice call: a preference for the host is withdrawn by one for the GPU first.
const fn requests(action: Action) -> u64 {
    if matches!(action, Action::Withdraw(Advice::PreferredLocation(Place::Host))) { 2 } else { 1 }
}

/// Whether memory that may have been preferred at the host still may be, after this answer.
const fn stays_bound_for_host(action: Action, answer: &CallResult) -> bool {
    match action {
        // What was refused may have been done in part.
        Action::Advise(Advice::PreferredLocation(Place::Host)) => {
            matches!(answer, CallResult::Done | CallResult::Failed(_))
        }
        Action::Advise(Advice::PreferredLocation(_)) | Action::Withdraw(Advice::PreferredLocation(_)) => {
            !matches!(answer, CallResult::Done | CallResult::NotMapped | CallResult::Exited)
        }
        _ => true,
    }
}

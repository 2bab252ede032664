//! Processes whose queues were full: the driver dropped records of theirs.

use std::time::Duration;

use abi::count::RecordLosses;
use model::{Degradation, DegradedReason};

use super::{finder::Opener, named::Named};

/// Processes of which records were dropped of late.
#[derive(Default)]
pub(super) struct FullQueues(Named<RecordLosses>);

impl FullQueues {
    /// Records that records of a process were dropped. `losses`: all of its VA space.
    pub(super) fn add(&mut self, opener: &Opener, losses: RecordLosses, now: Duration) {
        self.0.add(opener, losses, now);
    }

    /// Forgets those of more than a minute ago.
    pub(super) fn settle(&mut self, now: Duration) {
        self.0.settle(now);
    }

    /// The processes as states. `user`: name of a user.
    pub(super) fn degradations(&self, user: &dyn Fn(u32) -> Option<String>) -> Vec<Degradation> {
        self.0.degradations(DegradedReason::QueueFull, user, |pid, RecordLosses { sampled_out, dropped, .. }| {
            format!(
                "process {pid}: {sampled_out} records of GPU faults and {dropped} of copies and others were dropped, as they came faster than \
                 they were read; their access types, causes, blocks and evictors are unknown"
            )
        })
    }
}

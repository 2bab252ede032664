//! Processes whose queues were full: the driver dropped records of theirs.

use std::time::Duration;

use abi::count::RecordLosses;
use model::{Degradation, DegradedReason};

use super::{
    finder::Opener,
    named::NamedProcesses,
    timeline::{self, Unordered},
};

/// Processes of which records were dropped of late, and those whose records filled the timeline.
#[derive(Default)]
pub(super) struct FullQueues {
    dropped: NamedProcesses<RecordLosses>,
    /// Events of all VA spaces that were not put in order, by the process with most of them. Each has
    /// the sum of the time for which it is named.
    unordered: NamedProcesses<u64>,
}

impl FullQueues {
    /// Records that records of a process were dropped. `losses`: all of its VA space.
    pub(super) fn add(&mut self, opener: &Opener, losses: RecordLosses, now: Duration) {
        self.dropped.add(opener, losses, now);
    }

    /// Records that events were not put in order, and the process with most of them.
    pub(super) fn add_unordered(&mut self, opener: &Opener, Unordered { events, .. }: Unordered, now: Duration) {
        let before = self.unordered.get(opener.pid).copied().unwrap_or_default();
        self.unordered.add(opener, before.saturating_add(events), now);
    }

    /// Forgets those of more than a minute ago.
    pub(super) fn settle(&mut self, now: Duration) {
        self.dropped.settle(now);
        self.unordered.settle(now);
    }

    /// The processes as states. `user`: name of a user.
    pub(super) fn degradations(&self, user: &dyn Fn(u32) -> Option<String>) -> Vec<Degradation> {
        let reason = DegradedReason::QueueFull;
        let mut states = self.dropped.degradations(reason, user, |pid, RecordLosses { sampled_out, dropped, .. }| {
            format!(
                "process {pid}: {sampled_out} records of GPU faults and {dropped} of copies and others were dropped, as they came faster than \
                 they were read; their access types, causes, blocks and evictors are unknown"
            )
        });
        states.extend(self.unordered.degradations(reason, user, |pid, events| {
            format!(
                "process {pid}: {events} records of all processes were not put in order, as {} were waiting, most of them of this process; \
                 evictors and batches of that time are unknown",
                timeline::WAITING_MAX
            )
        }));
        states
    }
}

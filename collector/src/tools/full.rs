//! Processes whose queues were full: the driver dropped records of theirs.

use std::{collections::BTreeMap, time::Duration};

use abi::count::RecordLosses;
use model::{Degradation, DegradedReason};

use super::finder::Opener;

/// Time after its last dropped record for which a process is named, also when it has exited.
const NAMED: Duration = Duration::from_mins(1);
/// Maximum of processes that are named.
const NAMED_MAX: usize = 16;
/// The same of one user.
const NAMED_OF_USER_MAX: usize = 4;

/// Processes of which records were dropped of late.
#[derive(Default)]
pub(super) struct FullQueues(BTreeMap<u32, Full>);

struct Full {
    uid: u32,
    /// Time since boot at which dropped records were found last.
    at: Duration,
    losses: RecordLosses,
}

impl FullQueues {
    /// Records that records of a process were dropped. `losses`: all of its VA space.
    pub(super) fn add(&mut self, opener: &Opener, losses: RecordLosses, now: Duration) {
        let Opener { pid, uid, .. } = *opener;
        let of_user = self.0.values().filter(|full| full.uid == uid).count();
        if self.0.contains_key(&pid) || (self.0.len() < NAMED_MAX && of_user < NAMED_OF_USER_MAX) {
            self.0.insert(pid, Full { uid, at: now, losses });
        }
    }

    /// Forgets those of more than a minute ago.
    pub(super) fn settle(&mut self, now: Duration) {
        self.0.retain(|_, full| now.saturating_sub(full.at) < NAMED);
    }

    /// The processes as states. `user`: name of a user.
    pub(super) fn degradations(&self, user: &dyn Fn(u32) -> Option<String>) -> Vec<Degradation> {
        let state = |(pid, Full { uid, losses: RecordLosses { sampled_out, dropped, .. }, .. }): (&u32, &Full)| {
            Degradation {
                reason: DegradedReason::QueueFull,
                uid: Some(*uid),
                user: user(*uid),
                pid: Some(*pid),
                description: format!(
                    "process {pid}: {sampled_out} records of GPU faults and {dropped} of copies and others were dropped, as they came faster than \
                 they were read; their access types, causes, blocks and evictors are unknown"
                ),
            }
        };
        self.0.iter().map(state).collect()
    }
}

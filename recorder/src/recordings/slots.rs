//! Slots of recordings: quotas of users and of the node, and eviction of recordings for others.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use model::ProcessId;

use super::recording::Holder;

/// Time without calls after which a recording may be evicted for a user with fewer.
const IDLE_TIME: Duration = Duration::from_mins(1);
/// Minimum tenure, after which a recording of a user with several may be evicted for a user with none, even if
/// it is active: a program can stay active by a call from time to time.
pub(super) const MIN_TENURE: Duration = Duration::from_mins(10);

/// Quotas of recordings.
#[derive(Clone, Copy, Debug)]
pub struct Quotas {
    /// Bytes of calls of a process.
    pub window_bytes: usize,
    /// Maximum recordings of a user's processes.
    pub user_max: usize,
    /// Maximum recordings of the node. A quarter of them is a reserve for users with few
    /// recordings.
    pub node_max: usize,
}

impl Quotas {
    /// Maximum recordings of a user that may be in the reserve.
    fn reserved_per_user(self) -> usize {
        (self.user_max / 4).max(1)
    }
}

/// Recording that holds memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) process: ProcessId,
    pub(super) uid: u32,
    /// Sequence number of the process's exit among all exits; 0 before it.
    pub(super) exit_number: u64,
    pub(super) admitted_at: Duration,
    /// Time of the last calls read.
    pub(super) active_at: Duration,
}

/// Recordings that hold memory: [`Quotas::node_max`] at most.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    quotas: Quotas,
    held: Vec<Slot>,
    /// Counts of recordings.
    of_users: BTreeMap<u32, usize>,
    of_node: usize,
}

impl Slots {
    pub(super) fn new(quotas: Quotas, held: Vec<Slot>) -> Self {
        let (mut of_users, of_node) = (BTreeMap::new(), held.len());
        for slot in &held {
            *of_users.entry(slot.uid).or_insert(0) += 1;
        }
        Self { quotas, held, of_users, of_node }
    }

    /// Number of recordings of a user.
    pub(super) fn of_user(&self, uid: u32) -> usize {
        self.of_users.get(&uid).copied().unwrap_or(0)
    }

    /// Whether the quotas permit a further recording of a user.
    pub(super) fn has_room(&self, uid: u32) -> bool {
        let Quotas { user_max, node_max, .. } = self.quotas;
        let own = self.of_user(uid);
        let reserve = if own < self.quotas.reserved_per_user() { 0 } else { node_max / 4 };
        own < user_max && self.of_node < node_max - reserve
    }

    /// Counts a further recording of a user.
    pub(super) fn reserve(&mut self, uid: u32) {
        *self.of_users.entry(uid).or_insert(0) += 1;
        self.of_node += 1;
    }

    pub(super) fn remove(&mut self, process: ProcessId) {
        let Some(at) = self.held.iter().position(|slot| slot.process == process) else { return };
        let Slot { uid, .. } = self.held.swap_remove(at);
        self.of_node -= 1;
        if let Some(count) = self.of_users.get_mut(&uid) {
            *count -= 1;
        }
    }

    /// Holder of the slots that a user lacks: the user itself if it has reached its own quota,
    /// otherwise the user with the most recordings.
    pub(super) fn holder(&self, uid: u32) -> Holder {
        let Quotas { user_max, node_max, .. } = self.quotas;
        let own = self.of_user(uid);
        if own >= user_max {
            return Holder { uid, recordings: own, max: user_max };
        }
        let most = self.of_users.iter().max_by_key(|(_, recordings)| **recordings);
        let (uid, recordings) = most.map_or((uid, own), |(uid, recordings)| (*uid, *recordings));
        Holder { uid, recordings, max: node_max }
    }

    /// Recording to evict for a new recording of a user, the first that exists of:
    /// * the ended recording that ended first, of the user itself, otherwise of users with more
    ///   recordings
    /// * the recording that has been idle for the longest time, of users with at least two
    ///   recordings more
    /// * for a user without recordings, a recording past its minimum tenure, of the user with the
    ///   most recordings
    pub(super) fn eviction_candidate(&self, uid: u32, now: Duration) -> Option<ProcessId> {
        let own = self.of_user(uid);
        let is_user_full = own >= self.quotas.user_max;
        let ended = || {
            let candidates = self.held.iter().filter(|slot| {
                let holds_more = !is_user_full && self.of_user(slot.uid) > own;
                slot.exit_number != 0 && (slot.uid == uid || holds_more)
            });
            candidates.min_by_key(|slot| (slot.uid != uid, slot.exit_number))
        };
        let idle = || {
            let candidates = self.held.iter().filter(|slot| {
                let holds_more = !is_user_full && self.of_user(slot.uid) > own + 1;
                holds_more && now.saturating_sub(slot.active_at) >= IDLE_TIME
            });
            candidates.min_by_key(|slot| slot.active_at)
        };
        let past_tenure = || {
            let candidates = self.held.iter().filter(|slot| {
                own == 0 && self.of_user(slot.uid) > 1 && now.saturating_sub(slot.admitted_at) >= MIN_TENURE
            });
            candidates.min_by_key(|slot| (Reverse(self.of_user(slot.uid)), slot.active_at))
        };
        ended().or_else(idle).or_else(past_tenure).map(|slot| slot.process)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUOTAS: Quotas = Quotas { window_bytes: 0, user_max: 3, node_max: 8 };
    const NOW: Duration = Duration::from_hours(1);

    /// Recordings of few users: user, whether it has ended, and whether it is idle and past its
    /// minimum tenure.
    fn any_slots() -> impl Strategy<Value = Vec<(u32, bool, bool)>> {
        prop::collection::vec((0..5_u32, any::<bool>(), any::<bool>()), 1..60)
    }

    proptest! {
        #[test]
        fn no_user_exceeds_its_quota_or_evicts_one_with_fewer(slots in any_slots()) {
            let mut held: Vec<Slot> = Vec::new();
            for (pid, (uid, has_ended, is_old)) in (1..).zip(slots) {
                let mut slots = Slots::new(QUOTAS, held.clone());
                while !slots.has_room(uid) {
                    let Some(process) = slots.eviction_candidate(uid, NOW) else { break };
                    let evicted = *held.iter().find(|slot| slot.process == process).unwrap();
                    prop_assert!(evicted.exit_number != 0 || evicted.admitted_at != NOW, "it is in use");
                    prop_assert!(evicted.uid == uid || slots.of_user(evicted.uid) > slots.of_user(uid));
                    slots.remove(process);
                    held.retain(|slot| slot.process != process);
                }
                if slots.has_room(uid) {
                    let time = if is_old { Duration::ZERO } else { NOW };
                    let process = ProcessId { pid, start_ticks: 1 };
                    let exit_number = if has_ended { pid.into() } else { 0 };
                    held.push(Slot { process, uid, exit_number, admitted_at: time, active_at: time });
                }
                let of = |uid| held.iter().filter(|slot| slot.uid == uid).count();
                prop_assert!(held.len() <= QUOTAS.node_max && (0..5).all(|uid| of(uid) <= QUOTAS.user_max));
            }
        }
    }
}

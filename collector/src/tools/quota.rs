//! Limits of VA spaces by process, user and node. Each tracker takes memory of the driver that
//! nobody is charged for, and its attachment stops the fault handling of all processes for a
//! moment.

use std::{collections::BTreeMap, time::Duration};

use model::{Degradation, DegradedReason};

use super::finder::Opener;

/// Maximum of VA spaces of a process; CUDA creates one.
const OF_PROCESS_MAX: usize = 4;
/// Maximum of VA spaces of a user.
const OF_USER_MAX: usize = 128;
/// Maximum of VA spaces of the node. A quarter is a reserve for users with few.
const OF_NODE_MAX: usize = 512;
/// VA spaces, and queues, of a user that may be in the reserve.
const RESERVED_OF_USER: usize = 8;
/// Maximum attachments of a process in a second.
const PROCESS_RATE_MAX: usize = 8;
/// Maximum attachments of a user in a second.
const USER_RATE_MAX: usize = 64;
/// Maximum of a user's queues of records, of 1 MiB each. Further VA spaces are counted without.
const QUEUES_OF_USER_MAX: usize = 64;
/// Maximum of queues of the node. A quarter is a reserve for users with few.
const QUEUES_OF_NODE_MAX: usize = 256;
/// Time after its last refusal for which a user is named.
const NAMED: Duration = Duration::from_mins(1);
/// Maximum of users that are named.
const USERS_NAMED_MAX: usize = 16;

/// Held VA spaces, and attachments in the current second.
#[derive(Debug, Default)]
pub(super) struct Quota {
    of_processes: BTreeMap<u32, usize>,
    of_users: BTreeMap<u32, usize>,
    queues: BTreeMap<u32, usize>,
    second: Duration,
    attached_processes: BTreeMap<u32, usize>,
    attached_users: BTreeMap<u32, usize>,
    /// Users with refusals.
    refused: BTreeMap<u32, Refusals>,
}

/// Refusals of a user of late.
#[derive(Debug, Default)]
struct Refusals {
    /// When the last one was.
    at: Duration,
    va_spaces: u64,
    queues: u64,
}

/// Whether a user has room for one more, given its own and those of the node.
const fn has_room(of_user: usize, of_user_max: usize, of_node: usize, of_node_max: usize) -> bool {
    let reserve = if of_user < RESERVED_OF_USER { 0 } else { of_node_max / 4 };
    of_user < of_user_max && of_node < of_node_max - reserve
}

impl Quota {
    /// Takes room for one more VA space of a process, at this time since boot. `false` if there is
    /// none.
    pub(super) fn take(&mut self, opener: &Opener, now: Duration) -> bool {
        if now.saturating_sub(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.attached_processes.clear();
            self.attached_users.clear();
        }
        let Opener { pid, uid, .. } = opener;
        let of = |counts: &BTreeMap<u32, usize>, key| counts.get(key).copied().unwrap_or_default();
        let has_room = of(&self.of_processes, pid) < OF_PROCESS_MAX
            && has_room(of(&self.of_users, uid), OF_USER_MAX, self.of_users.values().sum(), OF_NODE_MAX)
            && of(&self.attached_processes, pid) < PROCESS_RATE_MAX
            && of(&self.attached_users, uid) < USER_RATE_MAX;
        if has_room {
            *self.of_processes.entry(*pid).or_default() += 1;
            *self.of_users.entry(*uid).or_default() += 1;
            *self.attached_processes.entry(*pid).or_default() += 1;
            *self.attached_users.entry(*uid).or_default() += 1;
        } else {
            self.deny(*uid, now);
        }
        has_room
    }

    /// Records the denial of a VA space of a user.
    pub(super) fn deny(&mut self, uid: u32, now: Duration) {
        if let Some(refusals) = self.refusals(uid, now) {
            refusals.va_spaces = refusals.va_spaces.saturating_add(1);
        }
    }

    /// Refusals of a user, if it is among those that are named.
    fn refusals(&mut self, uid: u32, now: Duration) -> Option<&mut Refusals> {
        let is_named = self.refused.contains_key(&uid) || self.refused.len() < USERS_NAMED_MAX;
        let refusals = is_named.then(|| self.refused.entry(uid).or_default())?;
        refusals.at = now;
        Some(refusals)
    }

    /// Takes room for queues of records of a user, at most this many, at this time since boot. Returns
    /// how many.
    pub(super) fn take_queues(&mut self, uid: u32, wanted: usize, now: Duration) -> usize {
        let of_node = self.queues.values().sum::<usize>();
        let own = self.queues.get(&uid).copied().unwrap_or_default();
        let fits = |taken| has_room(own + taken, QUEUES_OF_USER_MAX, of_node + taken, QUEUES_OF_NODE_MAX);
        let taken = (0..wanted).take_while(|taken| fits(*taken)).count();
        if taken > 0 {
            *self.queues.entry(uid).or_default() += taken;
        }
        if let Some(refusals) = (taken < wanted).then(|| self.refusals(uid, now)).flatten() {
            refusals.queues = refusals.queues.saturating_add((wanted - taken) as u64);
        }
        taken
    }

    /// Returns the room of a VA space, and of its queues.
    pub(super) fn give_back(&mut self, opener: &Opener, queues: usize) {
        for (counts, key, number) in [
            (&mut self.of_processes, opener.pid, 1),
            (&mut self.of_users, opener.uid, 1),
            (&mut self.queues, opener.uid, queues),
        ] {
            if let Some(count) = counts.get_mut(&key) {
                *count = count.saturating_sub(number);
                if *count == 0 {
                    counts.remove(&key);
                }
            }
        }
    }

    /// Forgets denials that are more than a minute old, at this time since boot.
    pub(super) fn settle(&mut self, now: Duration) {
        self.refused.retain(|_, refusals| now.saturating_sub(refusals.at) < NAMED);
    }

    /// Whether a VA space or a queue was denied of late.
    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Users that were refused a VA space or a queue of late.
    pub(super) fn degradations(&self, user: &dyn Fn(u32) -> Option<String>) -> Vec<Degradation> {
        let recent = self.refused.iter();
        recent
            .map(|(uid, refusals)| {
                let name = user(*uid);
                let who = name.as_ref().map_or_else(|| format!("uid {uid}"), |name| format!("user {name} (uid {uid})"));
                Degradation {
                    reason: DegradedReason::ToolsQuota,
                    uid: Some(*uid),
                    user: name,
                    pid: None,
                    description: format!("{who}: {}", refusals.description()),
                }
            })
            .collect()
    }
}

impl Refusals {
    fn description(&self) -> String {
        let Self { va_spaces, queues, .. } = self;
        let of_va_spaces = (*va_spaces > 0).then(|| {
            format!(
                "VA spaces denied, and not counted: {va_spaces}. Limits: {OF_PROCESS_MAX} per process, {OF_USER_MAX} per user, {OF_NODE_MAX} per \
                 node, of which a quarter is reserved for users with fewer than {RESERVED_OF_USER}; {PROCESS_RATE_MAX} attempts per second and \
                 process, {USER_RATE_MAX} per second and user"
            )
        });
        let of_queues = (*queues > 0).then(|| {
            format!(
                "queues of records denied: {queues}. Copies have no cause and size, or GPU faults no access type. Limits: {QUEUES_OF_USER_MAX} per \
                 user, {QUEUES_OF_NODE_MAX} per node, of which a quarter is reserved for users with fewer than {RESERVED_OF_USER}"
            )
        });
        of_va_spaces.into_iter().chain(of_queues).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opener(pid: u32, uid: u32) -> Opener {
        Opener { pid, start_ticks: 1, uid, comm: [0; 16] }
    }

    #[test]
    fn process_holds_four_va_spaces_at_most() {
        let mut quota = Quota::default();
        let one = opener(7, 1000);
        let taken = (0..6).map(|second| quota.take(&one, Duration::from_secs(second))).filter(|taken| *taken).count();
        assert_eq!(taken, 4);
        assert_eq!(quota.degradations(&|_| None)[0].uid, Some(1000));
        quota.give_back(&one, 0);
        assert!(quota.take(&one, Duration::from_secs(6)));
    }

    #[test]
    fn process_that_opens_and_closes_is_attached_to_eight_times_a_second() {
        let mut quota = Quota::default();
        let one = opener(7, 1000);
        let attach = |quota: &mut Quota, at| {
            let taken = quota.take(&one, at);
            if taken {
                quota.give_back(&one, 0);
            }
            taken
        };
        let now = Duration::from_secs(9);
        assert_eq!((0..100).filter(|_| attach(&mut quota, now)).count(), 8);
        assert!(attach(&mut quota, now + Duration::from_secs(1)));
        // Another user's process has its own.
        assert!(quota.take(&opener(8, 1001), now));
    }

    #[test]
    fn queues_of_a_user_take_64_mib_at_most() {
        let mut quota = Quota::default();
        let mut take = |wanted| quota.take_queues(1000, wanted, Duration::ZERO);
        assert_eq!(take(1), 1);
        assert_eq!((0..100).map(|_| take(2)).sum::<usize>(), QUEUES_OF_USER_MAX - 1);
        quota.give_back(&opener(7, 1000), 2);
        assert_eq!([2, 2].map(|wanted| quota.take_queues(1000, wanted, Duration::ZERO)), [2, 0]);
    }

    #[test]
    fn user_without_a_queue_is_named() {
        let mut quota = Quota::default();
        while quota.take_queues(1000, 1, Duration::ZERO) > 0 {}
        let [named] = quota.degradations(&|_| None).try_into().unwrap();
        assert_eq!((named.reason, named.uid), (DegradedReason::ToolsQuota, Some(1000)));
        assert!(named.description.contains("queues of records denied: 1."), "{named:?}");
        assert!(!named.description.contains("not counted"), "{named:?}");
        quota.settle(NAMED);
        assert!(quota.degradations(&|_| None).is_empty());
    }

    #[test]
    fn users_at_their_quotas_leave_a_reserve_to_users_with_few() {
        let mut quota = Quota::default();
        for process in 0..1000 {
            quota.take(&opener(process, 1000 + process % 6), Duration::from_secs(process.into()));
            quota.take_queues(1000 + process % 6, 1, Duration::ZERO);
        }
        let held = quota.of_users.values().sum::<usize>();
        assert_eq!((held, quota.queues.values().sum()), (OF_NODE_MAX / 4 * 3, QUEUES_OF_NODE_MAX / 4 * 3));
        let mut of_newcomer = 0;
        while quota.take(&opener(2000 + of_newcomer, 7), Duration::from_secs(u64::from(2000 + of_newcomer))) {
            assert_eq!(quota.take_queues(7, 1, Duration::ZERO), 1);
            of_newcomer += 1;
        }
        assert_eq!(of_newcomer as usize, RESERVED_OF_USER);
    }

    #[test]
    fn user_holds_a_quarter_of_the_node() {
        let mut quota = Quota::default();
        let mut taken = BTreeMap::new();
        for process in 0..1000 {
            let of = opener(process, 1000 + process % 2);
            if quota.take(&of, Duration::from_secs(process.into())) {
                *taken.entry(of.uid).or_insert(0) += 1;
            }
        }
        assert_eq!(taken, [(1000, OF_USER_MAX), (1001, OF_USER_MAX)].into());
    }
}

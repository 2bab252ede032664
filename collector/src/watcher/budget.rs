//! Budget of processor time for each user's new processes: a burst, and then a small share of the
//! time. For users that create processes faster, /proc is read for fewer of them, and then none are
//! distinguished until the budget recovers.
//!
//! A user that starts and ends processes without end causes work here for each: this bounds it.

use std::time::Duration;

use sys::cpu_budget::{Account, Accounts, Allowance};

/// Cost of the follow-up of a record, as a multiple of the cost of its read: the command line,
/// checks of the process, its end, and its entry in every snapshot.
const FOLLOW_UP: u32 = 16;
/// Maximum cost of a record. A record that is slow for other reasons, as the first after the start,
/// must not use up its user's budget: 31 are always distinguished at once, on any machine.
const RECORD_MAX: Duration = Duration::from_millis(2);
/// Budget of one user: a hundredth of a processor, and a burst of one second.
const OF_USER: Allowance = Allowance { part: 100, burst: Duration::from_secs(1), credit_part: None };
/// Budget of all users together.
const OF_NODE: Allowance = Allowance { part: 10, burst: Duration::from_secs(4), credit_part: None };

/// Budgets of all users. Times are since boot, as in the probes.
#[derive(Debug)]
pub(super) struct Budget {
    users: Accounts,
    node: Account,
}

impl Default for Budget {
    fn default() -> Self {
        Self { users: Accounts::new(OF_USER), node: Account::default() }
    }
}

/// Whether half of the burst is left.
fn is_low(account: Account, allowance: Allowance, now: Duration) -> bool {
    account.debt(allowance, now) < allowance.burst / 2
}

/// Whether nearly all of it is left.
fn is_quiet(account: Account, allowance: Allowance, now: Duration) -> bool {
    account.debt(allowance, now) < allowance.burst / 8
}

impl Budget {
    /// Charges a user for a record that took this much processor time.
    pub(super) fn charge(&mut self, uid: u32, took: Duration, now: Duration) {
        let used = took.min(RECORD_MAX).saturating_mul(FOLLOW_UP);
        self.users.charge(uid, used, now);
        self.node.charge(used, OF_NODE, now);
    }

    /// Whether /proc is to be read for a new process of this user: while half of its budget is
    /// left, and half of the node's. Users with little use do not pay for the excess of all.
    pub(super) fn may_look(&self, uid: u32, now: Duration) -> bool {
        let user = self.users.of(uid);
        is_low(user, OF_USER, now) && (is_low(self.node, OF_NODE, now) || is_quiet(user, OF_USER, now))
    }

    /// Time until which processes of this user are not distinguished; `None` if they are.
    pub(super) fn over_until(&self, uid: u32, now: Duration) -> Option<Duration> {
        let user = self.users.of(uid);
        let until = user.over_until(OF_USER);
        // Users with little use do not pay for the excess of all.
        let until = if is_low(user, OF_USER, now) { until } else { until.max(self.node.over_until(OF_NODE)) };
        (until > now).then_some(until)
    }

    /// The same time for the users that the probes do not distinguish.
    pub(super) fn others_over_until(&self, now: Duration) -> Option<Duration> {
        let until = self.node.over_until(OF_NODE);
        (until > now).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    const MS: Duration = Duration::from_millis(1);

    /// Budget with this many records of each user, of two milliseconds each: 32 with the follow-up.
    fn charged(uids: std::ops::Range<u32>, records: u32) -> Budget {
        let mut budget = Budget::default();
        for uid in uids {
            for _ in 0..records {
                budget.charge(uid, 2 * MS, NOW);
            }
        }
        budget
    }

    #[test]
    fn burst_of_processes_is_inspected_completely() {
        let budget = charged(1..2, 15);
        assert!(budget.may_look(1, NOW));
        assert_eq!(budget.over_until(1, NOW), None);
    }

    #[test]
    fn excess_processes_are_not_inspected_and_then_not_distinguished() {
        let budget = charged(1..2, 20);
        assert!(!budget.may_look(1, NOW) && budget.may_look(2, NOW));
        assert_eq!(budget.over_until(1, NOW), None);
        let budget = charged(1..2, 40);
        // 1.28 s were used with a burst of one second.
        let until = budget.over_until(1, NOW).unwrap();
        assert_eq!(until, NOW + 280 * MS * 100);
        assert_eq!(budget.over_until(1, until), None);
        assert_eq!(budget.over_until(2, NOW), None);
    }

    #[test]
    fn node_limit_does_not_affect_users_with_little_use() {
        let mut budget = charged(1..11, 20);
        budget.charge(20, 2 * MS, NOW);
        let until = NOW + (10 * 20 * 32 + 32 - 4000) * MS * 10;
        assert_eq!((budget.over_until(7, NOW), budget.over_until(20, NOW)), (Some(until), None));
        assert!(!budget.may_look(7, NOW) && budget.may_look(20, NOW));
        assert_eq!(budget.others_over_until(NOW), Some(until));
    }

    #[test]
    fn charge_for_a_single_slow_record_is_bounded() {
        let mut budget = Budget::default();
        for _ in 0..15 {
            budget.charge(1, 3600 * 1000 * MS, NOW);
        }
        assert!(budget.may_look(1, NOW));
        assert_eq!(budget.over_until(1, NOW), None);
    }
}

//! Budgets of the processor time that uvmd spends for a tenant: a burst, and then a small share of
//! the time.
//!
//! A program causes work in uvmd by its actions and by the data that it writes. The work is charged
//! to an [`Account`] after it was done. Where an [`Allowance`] is used up, uvmd does no further
//! work for the account until the debt is paid. Debts are paid by time that passes, and by
//! [credits](Account::credit). [`Accounts`] has one for each user.

use std::{collections::BTreeMap, time::Duration};

/// Share of a processor that may be spent.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Share of the time: 1 / this.
    pub part: u32,
    /// Time that may be spent at once, above the share.
    pub burst: Duration,
    /// Share of the processor time of a user's own processes that may be spent as well: 1 / this.
    pub credit_part: Option<u32>,
}

/// Spent time, as the time at which the share has paid for all of it. Times are of one monotonic
/// clock of the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account(Duration);

impl Account {
    /// Account without debts.
    #[must_use]
    pub const fn new() -> Self {
        Self(Duration::ZERO)
    }

    /// Charges spent time, which takes [`Allowance::part`] times as long to recover.
    pub fn charge(&mut self, spent: Duration, allowance: Allowance, now: Duration) {
        let Self(paid_at) = self;
        *paid_at = (*paid_at).max(now).saturating_add(spent.saturating_mul(allowance.part));
    }

    /// Reduces the debt by a share of the processor time that the user's processes have used
    /// themselves. A credit larger than the debt is lost.
    pub fn credit(&mut self, used: Duration, allowance: Allowance) {
        let Self(paid_at) = self;
        if let Some(earned) = allowance.credit_part.and_then(|part| used.checked_div(part)) {
            *paid_at = paid_at.saturating_sub(earned.saturating_mul(allowance.part));
        }
    }

    /// Spent time that is not paid for yet.
    #[must_use]
    pub fn debt(self, allowance: Allowance, now: Duration) -> Duration {
        let Self(paid_at) = self;
        paid_at.saturating_sub(now) / allowance.part
    }

    /// Time at which the debt is within the burst again; in the past if it is now.
    #[must_use]
    pub fn over_until(self, allowance: Allowance) -> Duration {
        let Self(paid_at) = self;
        paid_at.saturating_sub(allowance.burst.saturating_mul(allowance.part))
    }

    /// Whether the burst is used up.
    #[must_use]
    pub fn is_over(self, allowance: Allowance, now: Duration) -> bool {
        self.over_until(allowance) > now
    }
}

/// Minimum number of users that are retained without debts.
const USERS_MAX: usize = 1024;

/// Accounts of users for one kind of work.
#[derive(Debug)]
pub struct Accounts {
    allowance: Allowance,
    of_users: BTreeMap<u32, Account>,
    /// Number of users beyond which those without debts are forgotten.
    users_max: usize,
}

impl Accounts {
    /// Accounts without debts, of which each has this allowance.
    #[must_use]
    pub const fn new(allowance: Allowance) -> Self {
        Self { allowance, of_users: BTreeMap::new(), users_max: USERS_MAX }
    }

    /// Charges time that was spent for a user.
    pub fn charge(&mut self, uid: u32, spent: Duration, now: Duration) {
        self.of_users.entry(uid).or_default().charge(spent, self.allowance, now);
        if self.of_users.len() > self.users_max {
            self.of_users.retain(|_, account| !account.debt(self.allowance, now).is_zero());
            // The number of users has to double, at least, before all are scanned again.
            self.users_max = USERS_MAX.max(2 * self.of_users.len());
        }
    }

    /// Credits a user with a share of the time that its processes have used themselves.
    pub fn credit(&mut self, uid: u32, used: Duration) {
        if let Some(account) = self.of_users.get_mut(&uid) {
            account.credit(used, self.allowance);
        }
    }

    /// Account of a user.
    #[must_use]
    pub fn of(&self, uid: u32) -> Account {
        self.of_users.get(&uid).copied().unwrap_or_default()
    }

    /// Spent time of a user that is not paid for yet.
    #[must_use]
    pub fn debt(&self, uid: u32, now: Duration) -> Duration {
        self.of(uid).debt(self.allowance, now)
    }

    /// Whether the burst of a user is used up.
    #[must_use]
    pub fn is_over(&self, uid: u32, now: Duration) -> bool {
        self.of(uid).is_over(self.allowance, now)
    }

    /// Users whose burst is used up.
    pub fn over(&self, now: Duration) -> impl Iterator<Item = u32> {
        let is_over = move |(_, account): &(&u32, &Account)| account.is_over(self.allowance, now);
        self.of_users.iter().filter(is_over).map(|(uid, _)| *uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);
    const ALLOWANCE: Allowance = Allowance { part: 10, burst: Duration::from_millis(100), credit_part: Some(2) };

    fn charged(spent: Duration) -> Account {
        let mut account = Account::default();
        account.charge(spent, ALLOWANCE, NOW);
        account
    }

    #[test]
    fn burst_may_be_spent_at_once() {
        assert!(!charged(100 * MS).is_over(ALLOWANCE, NOW));
        assert!(charged(101 * MS).is_over(ALLOWANCE, NOW));
    }

    #[test]
    fn debt_is_paid_by_the_share_of_the_time_that_passes() {
        let account = charged(150 * MS);
        assert_eq!(account.debt(ALLOWANCE, NOW), 150 * MS);
        assert_eq!(account.debt(ALLOWANCE, NOW + 500 * MS), 100 * MS);
        assert_eq!(account.over_until(ALLOWANCE), NOW + 500 * MS);
        assert_eq!(account.debt(ALLOWANCE, NOW + Duration::from_secs(9)), Duration::ZERO);
    }

    #[test]
    fn credit_pays_debt_and_is_not_saved_for_later() {
        let mut account = charged(150 * MS);
        account.credit(99 * MS, ALLOWANCE);
        assert!(account.is_over(ALLOWANCE, NOW), "half of it counts");
        account.credit(MS, ALLOWANCE);
        assert!(!account.is_over(ALLOWANCE, NOW));
        account.credit(Duration::MAX, ALLOWANCE);
        account.charge(101 * MS, ALLOWANCE, NOW);
        assert!(account.is_over(ALLOWANCE, NOW));
    }

    #[test]
    fn debt_is_paid_by_time_alone_without_credit() {
        let mut account = charged(150 * MS);
        account.credit(Duration::MAX, Allowance { credit_part: None, ..ALLOWANCE });
        assert_eq!(account.debt(ALLOWANCE, NOW), 150 * MS);
    }

    #[test]
    fn each_user_pays_for_its_own_processes_alone() {
        let mut accounts = Accounts::new(ALLOWANCE);
        accounts.charge(1, 150 * MS, NOW);
        assert_eq!([1, 2].map(|uid| accounts.is_over(uid, NOW)), [true, false]);
        assert_eq!(accounts.over(NOW).collect::<Vec<_>>(), [1]);
        // The time that its processes use pays the debt, and so does time that passes.
        accounts.credit(1, 60 * MS);
        assert!(accounts.is_over(1, NOW));
        accounts.credit(1, 40 * MS);
        assert!(!accounts.is_over(1, NOW));
        accounts.charge(1, 50 * MS, NOW);
        assert!(accounts.is_over(1, NOW) && !accounts.is_over(1, NOW + 500 * MS));
    }

    #[test]
    fn users_without_debts_are_forgotten() {
        let mut accounts = Accounts::new(ALLOWANCE);
        (0..=1024).for_each(|uid| accounts.charge(uid, MS, NOW));
        assert_eq!(accounts.of_users.len(), 1025);
        (1025..=2050).for_each(|uid| accounts.charge(uid, MS, NOW + SECOND));
        assert_eq!(accounts.of_users.keys().copied().collect::<Vec<_>>(), (1025..=2050).collect::<Vec<_>>());
    }

    #[test]
    fn users_are_at_most_twice_those_with_debts_and_seldom_looked_at() {
        let (mut accounts, mut looks) = (Accounts::new(ALLOWANCE), 0);
        // Each is in debt for 10 s: 10,000 of them at a time.
        for uid in 0..100_000 {
            let (users, users_max) = (accounts.of_users.len(), accounts.users_max);
            accounts.charge(uid, SECOND, NOW + uid * MS);
            looks += if accounts.users_max == users_max { 0 } else { users };
            assert!(accounts.of_users.len() <= 20_000);
        }
        assert!(looks <= 200_000, "{looks} looks for 100,000 charges");
    }
}

//! Budgets of the processor time that uvmd spends for a tenant: a burst, and then a small share of
//! the time.
//!
//! A program causes work in uvmd by what it does and by what it writes. The work is charged to an
//! [`Account`] after it was done. Where an [`Allowance`] is used up, uvmd does no further work for
//! the account until the debt is paid. Debts are paid by time that passes, and by
//! [credits](Account::credit).

use std::time::Duration;

/// Share of a processor that may be spent.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Share of the time: 1 / this.
    pub part: u32,
    /// Time that may be spent at once, above the share.
    pub burst: Duration,
}

/// Spent time, as the time at which the share has paid for all of it. Times are of one monotonic
/// clock of the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account(Duration);

impl Account {
    /// Charges spent time, which takes [`Allowance::part`] times as long to recover.
    pub fn charge(&mut self, spent: Duration, allowance: Allowance, now: Duration) {
        let Self(paid_at) = self;
        *paid_at = (*paid_at).max(now).saturating_add(spent.saturating_mul(allowance.part));
    }

    /// Forgives spent time: the program has used processor time of its own that pays for it. What
    /// exceeds the debt is lost.
    pub fn credit(&mut self, earned: Duration, allowance: Allowance) {
        let Self(paid_at) = self;
        *paid_at = paid_at.saturating_sub(earned.saturating_mul(allowance.part));
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    const MS: Duration = Duration::from_millis(1);
    const ALLOWANCE: Allowance = Allowance { part: 10, burst: Duration::from_millis(100) };

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
        account.credit(50 * MS, ALLOWANCE);
        assert!(!account.is_over(ALLOWANCE, NOW));
        account.credit(Duration::MAX, ALLOWANCE);
        account.charge(101 * MS, ALLOWANCE, NOW);
        assert!(account.is_over(ALLOWANCE, NOW));
    }
}

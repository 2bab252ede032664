//! Reader time: processor time that uvmd spends on reading the rings of a user's processes.

use std::{collections::BTreeSet, time::Duration};

use sys::cpu_budget::{Accounts, Allowance};

/// Allowance of a user for the reading of its rings.
const ALLOWANCE: Allowance = Allowance { part: 100, burst: Duration::from_secs(1), credit_part: Some(CREDIT_PART) };
/// Debt below which throttling ends. If it ended at the burst itself, a user slightly above its
/// share would be throttled again immediately.
const RECOVERED: Duration = Duration::from_millis(500);
/// Divisor of the processor time of a user's recorded processes, for an additional allowance: a
/// program that makes many calls uses processor time itself.
pub const CREDIT_PART: u32 = 20;

/// Reader time of all users.
#[derive(Debug)]
pub(crate) struct Budgets {
    accounts: Accounts,
    throttled: BTreeSet<u32>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self { accounts: Accounts::new(ALLOWANCE), throttled: BTreeSet::new() }
    }
}

impl Budgets {
    /// Charges time that was spent for a user. Returns whether that starts to throttle the user.
    pub(crate) fn charge(&mut self, uid: u32, spent: Duration, now: Duration) -> bool {
        self.accounts.charge(uid, spent, now);
        self.accounts.is_over(uid, now) && self.throttled.insert(uid)
    }

    /// Credits processor time used by recorded processes of a user.
    pub(crate) fn credit(&mut self, uid: u32, used: Duration) {
        self.accounts.credit(uid, used);
    }

    /// Whether the reading of a user's rings is paused.
    pub(crate) fn is_throttled(&self, uid: u32) -> bool {
        self.throttled.contains(&uid)
    }

    /// Ends the throttling of users whose time has recovered, and returns them.
    pub(crate) fn recover(&mut self, now: Duration) -> Vec<u32> {
        let Self { accounts, throttled } = self;
        throttled.extract_if(.., |uid| accounts.debt(*uid, now) <= RECOVERED).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn user_slightly_above_its_share_is_rarely_throttled() {
        let (mut budgets, mut throttlings) = (Budgets::default(), 0);
        // Uses 2 % instead of 1 %, for an hour in intervals of 50 ms.
        for interval in 0..72_000 {
            let now = interval * 50 * MS;
            if !budgets.is_throttled(7) {
                throttlings += u32::from(budgets.charge(7, MS, now));
            }
            if interval % 20 == 0 {
                budgets.recover(now);
            }
        }
        // Each cycle takes 50 s until half of the burst is used up, and 50 s of recovery.
        assert!((34..=38).contains(&throttlings), "{throttlings}");
    }
}

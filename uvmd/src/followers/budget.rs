//! Processor time that uvmd spends on plans for the processes of each user.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use model::ProcessId;
use sys::{
    Roots,
    cpu_budget::{Account, Allowance},
    processes::{self, Usage},
};

/// Users that are retained without debts.
const USERS_MAX: usize = 1024;
/// Interval of readings of a process's own processor time.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Accounts of all users for one kind of work.
#[derive(Debug)]
pub(super) struct Accounts {
    allowance: Allowance,
    /// Share of the time that a process uses itself, which pays for work: 1 / this.
    credit_part: u32,
    of_users: BTreeMap<u32, Account>,
}

impl Accounts {
    pub(super) const fn new(allowance: Allowance, credit_part: u32) -> Self {
        Self { allowance, credit_part, of_users: BTreeMap::new() }
    }

    /// Charges time that was spent for a process of this user.
    pub(super) fn charge(&mut self, user: u32, spent: Duration, now: Duration) {
        self.of_users.entry(user).or_default().charge(spent, self.allowance, now);
        if self.of_users.len() > USERS_MAX {
            self.of_users.retain(|_, account| !account.debt(self.allowance, now).is_zero());
        }
    }

    /// Credits time that a process of this user has used itself.
    pub(super) fn credit(&mut self, user: u32, cpu: Duration) {
        if let Some(account) = self.of_users.get_mut(&user) {
            account.credit(cpu / self.credit_part, self.allowance);
        }
    }

    /// Whether more than half of the burst is used up: optional work is skipped.
    pub(super) fn is_short(&self, user: u32, now: Duration) -> bool {
        let debt = self.of_users.get(&user).map(|account| account.debt(self.allowance, now));
        debt.is_some_and(|debt| debt > self.allowance.burst / 2)
    }

    /// Whether nothing may be spent for a user now.
    pub(super) fn is_over(&self, user: u32, now: Duration) -> bool {
        self.of_users.get(&user).is_some_and(|account| account.is_over(self.allowance, now))
    }
}

/// Reader of the processor time that a process uses.
#[derive(Debug)]
pub(super) struct Meter {
    process: ProcessId,
    read: Option<(Instant, Duration)>,
}

impl Meter {
    pub(super) const fn new(process: ProcessId) -> Self {
        Self { process, read: None }
    }

    /// Time used since the last reading; `None` before the next one is due.
    pub(super) fn used(&mut self) -> Option<Duration> {
        if self.read.is_some_and(|(at, _)| at.elapsed() < READ_INTERVAL) {
            return None;
        }
        let cpu = cpu_of(self.process)?;
        let (_, before) = self.read.replace((Instant::now(), cpu)).unwrap_or((Instant::now(), cpu));
        Some(cpu.saturating_sub(before))
    }
}

/// Processor time that a process has used so far; `None` if it is gone.
pub(super) fn cpu_of(process: ProcessId) -> Option<Duration> {
    let usage = processes::usage(&Roots::default(), process.pid).ok().flatten();
    usage.filter(|usage| usage.start_ticks == process.start_ticks).map(|Usage { cpu, .. }| cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const NOW: Duration = Duration::from_secs(1000);

    #[test]
    fn each_user_pays_for_its_own_processes_alone() {
        let mut accounts = Accounts::new(Allowance { part: 50, burst: 100 * MS }, 10);
        accounts.charge(1, 50 * MS, NOW);
        assert_eq!([1, 2].map(|user| accounts.is_short(user, NOW)), [false; 2]);
        accounts.charge(1, 10 * MS, NOW);
        assert_eq!([1, 2].map(|user| accounts.is_short(user, NOW)), [true, false]);
        accounts.charge(1, 90 * MS, NOW);
        assert_eq!([1, 2].map(|user| accounts.is_over(user, NOW)), [true, false]);
        // A tenth of what its processes use pays for it, and so does time.
        accounts.credit(1, 300 * MS);
        assert!(accounts.is_over(1, NOW));
        accounts.credit(1, 200 * MS);
        assert!(!accounts.is_over(1, NOW));
        accounts.charge(1, 50 * MS, NOW);
        assert!(accounts.is_over(1, NOW) && !accounts.is_over(1, NOW + Duration::from_millis(2500)));
    }

    #[test]
    fn users_without_debts_are_forgotten() {
        let mut accounts = Accounts::new(Allowance { part: 50, burst: MS }, 10);
        (0..=1024).for_each(|user| accounts.charge(user, MS, NOW));
        assert_eq!(accounts.of_users.len(), 1025);
        accounts.charge(7, MS, NOW + Duration::from_secs(1));
        assert_eq!(accounts.of_users.keys().collect::<Vec<_>>(), [&7]);
    }
}

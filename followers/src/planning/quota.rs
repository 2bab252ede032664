//! Turns of planner processes: few at a time, one for each user, and none for a user whose
//! processor time is used up.

use std::{collections::BTreeMap, time::Duration};

use model::ProcessId;
use sys::cpu_budget::{Accounts, Allowance};

/// Planner processes of the node at a time.
const RUNNING_MAX: usize = 2;
/// Processor time of planner processes for a user.
const ALLOWANCE: Allowance = Allowance { part: 50, burst: Duration::from_secs(1), credit_part: Some(CREDIT_PART) };
/// Share of a process's own processor time that its user's planners may use in addition: 1 / this.
pub(crate) const CREDIT_PART: u32 = 80;
/// Age of a user's last planning up to which it leaves one slot to others.
const RECENT_MAX: Duration = Duration::from_mins(1);
/// Age of the last request from which on a process no longer waits.
const REQUEST_AGE_MAX: Duration = Duration::from_secs(5);

/// Reason why a planner process does not start yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Another process of the user computes.
    User,
    /// Processes of other users compute, or come first.
    Node,
    /// The user's processor time is used up.
    Budget,
}

/// Process that waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    user: u32,
    /// Number of its first request.
    number: u64,
    requested_at: Duration,
}

/// Planner processes that run and wait.
#[derive(Debug)]
pub(super) struct Quota {
    accounts: Accounts,
    /// Users of the planner processes that run.
    running: Vec<u32>,
    waiting: BTreeMap<ProcessId, Waiting>,
    /// Number of the last start for each user that waits or runs: the one with the lowest is next.
    last_starts: BTreeMap<u32, u64>,
    number: u64,
    /// End of the last planning for each user, if it is recent.
    last_ends: BTreeMap<u32, Duration>,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            accounts: Accounts::new(ALLOWANCE),
            running: Vec::new(),
            waiting: BTreeMap::new(),
            last_starts: BTreeMap::new(),
            number: 0,
            last_ends: BTreeMap::new(),
        }
    }
}

impl Quota {
    /// Starts a planner process for a process, if it is its turn. Repeat this until it is: a
    /// process without a request for a while no longer waits.
    pub(super) fn start(&mut self, process: ProcessId, user: u32, now: Duration) -> Result<(), Wait> {
        self.number += 1;
        let number = self.number;
        let waiting = self.waiting.entry(process).or_insert(Waiting { user, number, requested_at: now });
        (waiting.user, waiting.requested_at) = (user, now);
        self.waiting.retain(|_, waiting| now.saturating_sub(waiting.requested_at) <= REQUEST_AGE_MAX);
        self.last_ends.retain(|_, at| now.saturating_sub(*at) <= RECENT_MAX);
        let Self { accounts, running, waiting, last_starts, last_ends, .. } = self;
        if running.contains(&user) {
            return Err(Wait::User);
        }
        if accounts.is_over(user, now) {
            return Err(Wait::Budget);
        }
        let has_slot = |user: u32| running.len() + usize::from(last_ends.contains_key(&user)) < RUNNING_MAX;
        let may_run = |waiting: &&Waiting| {
            let Waiting { user, .. } = **waiting;
            has_slot(user) && !running.contains(&user) && !accounts.is_over(user, now)
        };
        let turn = |waiting: &&Waiting| (last_starts.get(&waiting.user).copied().unwrap_or(0), waiting.number);
        let next = waiting.values().filter(may_run).min_by_key(turn).map(|waiting| waiting.user);
        let is_first_of_user = |this: &Waiting| {
            let others = waiting.values().filter(|other| other.user == user);
            others.map(|other| other.number).min() == Some(this.number)
        };
        if next != Some(user) || !waiting.get(&process).is_some_and(is_first_of_user) {
            return Err(Wait::Node);
        }
        self.waiting.remove(&process);
        self.running.push(user);
        self.last_starts.insert(user, number);
        Ok(())
    }

    /// Whether processes of other users wait for a turn that this user has.
    pub(super) fn is_contended(&self, user: u32, now: Duration) -> bool {
        let Self { accounts, running, waiting, .. } = self;
        let waits = |waiting: &Waiting| {
            let is_present = now.saturating_sub(waiting.requested_at) <= REQUEST_AGE_MAX;
            is_present && !running.contains(&waiting.user) && !accounts.is_over(waiting.user, now)
        };
        waiting.values().any(|waiting| waiting.user != user && waits(waiting))
    }

    /// Ends the wait of a process.
    pub(super) fn cancel(&mut self, process: ProcessId) {
        self.waiting.remove(&process);
    }

    /// Ends a planner process of this user, which has used this much.
    pub(super) fn finish(&mut self, user: u32, spent: Duration, now: Duration) {
        if let Some(at) = self.running.iter().position(|running| *running == user) {
            self.running.swap_remove(at);
        }
        self.accounts.charge(user, spent, now);
        self.last_ends.insert(user, now);
        let Self { running, waiting, last_starts, .. } = self;
        // Users that had a turn are remembered while others wait.
        if waiting.is_empty() {
            last_starts.retain(|user, _| running.contains(user));
        }
    }

    /// Credits time that a process of this user has used itself.
    pub(super) fn credit(&mut self, user: u32, cpu: Duration) {
        self.accounts.credit(user, cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NOW: Duration = Duration::from_secs(1000);

    const fn process(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 1 }
    }

    #[test]
    fn one_planner_runs_for_a_user_and_two_on_the_node() {
        let mut quota = Quota::default();
        assert_eq!(quota.start(process(1), 1, NOW), Ok(()));
        assert_eq!(quota.start(process(2), 1, NOW), Err(Wait::User));
        assert_eq!(quota.start(process(3), 2, NOW), Ok(()));
        assert_eq!(quota.start(process(4), 3, NOW), Err(Wait::Node));
        quota.finish(1, Duration::ZERO, NOW);
        // The first process that waits belongs to the user that had a turn.
        assert_eq!(quota.start(process(2), 1, NOW), Err(Wait::Node));
        assert_eq!(quota.start(process(4), 3, NOW), Ok(()));
        quota.finish(2, Duration::ZERO, NOW);
        assert_eq!(quota.start(process(2), 1, NOW + 61 * SECOND), Ok(()));
    }

    #[test]
    fn user_with_a_recent_planning_leaves_one_place_to_others() {
        let mut quota = Quota::default();
        for (pid, user) in [(1, 1), (2, 2)] {
            assert_eq!(quota.start(process(pid), user, NOW), Ok(()));
            quota.finish(user, Duration::ZERO, NOW);
        }
        assert_eq!(quota.start(process(1), 1, NOW), Ok(()));
        assert_eq!(quota.start(process(2), 2, NOW), Err(Wait::Node));
        // This process does not come before a user without a turn, however long it has waited.
        assert_eq!(quota.start(process(3), 3, NOW), Ok(()));
        quota.finish(1, Duration::ZERO, NOW);
        quota.finish(3, Duration::ZERO, NOW);
        assert_eq!(quota.start(process(2), 2, NOW), Ok(()));
    }

    #[test]
    fn turn_is_contended_while_processes_of_others_could_run() {
        let mut quota = Quota::default();
        assert_eq!(quota.start(process(1), 1, NOW), Ok(()));
        assert_eq!(quota.start(process(2), 2, NOW), Ok(()));
        assert_eq!(quota.start(process(3), 1, NOW), Err(Wait::User));
        assert!(!quota.is_contended(1, NOW));
        assert_eq!(quota.start(process(4), 3, NOW), Err(Wait::Node));
        assert!(quota.is_contended(1, NOW) && !quota.is_contended(1, NOW + 6 * SECOND));
        quota.accounts.charge(3, 3 * SECOND, NOW);
        assert!(!quota.is_contended(1, NOW));
    }

    #[test]
    fn users_take_turns_regardless_of_their_number_of_processes() {
        let mut quota = Quota::default();
        // A hundred processes of the first user came before.
        for pid in 1..=100 {
            let _ = quota.start(process(pid), 1, NOW);
        }
        assert_eq!(quota.start(process(201), 2, NOW), Ok(()));
        let mut starts = Vec::new();
        for pid in 202..=206 {
            let _ = quota.start(process(pid), 2, NOW);
            let _ = quota.start(process(pid + 100), 3, NOW);
        }
        for _ in 0..6 {
            let running = quota.running[0];
            quota.finish(running, Duration::ZERO, NOW);
            // No planning is recent.
            quota.last_ends.clear();
            let all = (1..=100).map(|pid| (pid, 1)).chain((202..=206).flat_map(|pid| [(pid, 2), (pid + 100, 3)]));
            let waiting: Vec<_> = all.filter(|(pid, _)| quota.waiting.contains_key(&process(*pid))).collect();
            let started = waiting.into_iter().find(|(pid, user)| quota.start(process(*pid), *user, NOW).is_ok());
            starts.extend(started.map(|(_, user)| user));
        }
        assert_eq!(starts, [3, 1, 2, 3, 1, 2]);
    }

    #[test]
    fn user_in_debt_waits_for_time_or_credit() {
        let mut quota = Quota::default();
        assert_eq!(quota.start(process(1), 1, NOW), Ok(()));
        quota.finish(1, 2 * SECOND, NOW);
        assert_eq!(quota.start(process(1), 1, NOW), Err(Wait::Budget));
        // Other users do not wait for it.
        assert_eq!(quota.start(process(2), 2, NOW), Ok(()));
        assert_eq!(quota.start(process(1), 1, NOW + 49 * SECOND), Err(Wait::Budget));
        quota.finish(2, Duration::ZERO, NOW);
        let mut with_credit = NOW;
        quota.credit(1, 80 * SECOND);
        with_credit += SECOND;
        assert_eq!(quota.start(process(1), 1, with_credit), Ok(()));
    }

    #[test]
    fn process_without_recent_requests_no_longer_waits() {
        let mut quota = Quota::default();
        assert_eq!(quota.start(process(1), 1, NOW), Ok(()));
        assert_eq!(quota.start(process(2), 2, NOW), Ok(()));
        assert_eq!(quota.start(process(3), 3, NOW), Err(Wait::Node));
        assert_eq!(quota.start(process(4), 4, NOW + SECOND), Err(Wait::Node));
        quota.finish(1, Duration::ZERO, NOW + SECOND);
        assert_eq!(quota.start(process(4), 4, NOW + SECOND), Err(Wait::Node));
        assert_eq!(quota.start(process(4), 4, NOW + 6 * SECOND), Ok(()));
        quota.cancel(process(3));
        assert!(quota.waiting.is_empty());
    }
}

//! Schedule of searches: the next one to be read a slice of, within the limits of users and node.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use model::ProcessId;
use sys::cpu_budget::{Account, Allowance};

/// Processor time for the searches of a user.
pub(super) const ALLOWANCE: Allowance = Allowance { part: 100, burst: Duration::from_secs(1) };
/// Part of the processor time of a user's processes that their searches may take as well.
const CREDIT_PART: u32 = 40;
/// Slices that are read at a time, of all processes and of those of a user.
const RUNNING_MAX: usize = 4;
const RUNNING_OF_USER_MAX: usize = 2;
/// Time after which the read of a slice counts as hung, and those of other users no longer wait for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Slices that are read or hang at a time: those of 32 users at their limit.
pub(super) const THREADS_MAX: usize = 64;

/// Reason why the search in a process's memory map is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Its turn comes.
    Turn,
    /// Its user has used up the processor time for searches.
    Budget,
    /// The process holds the lock of its memory map.
    Lock,
    /// Other processes of its user hold the locks of theirs.
    LocksOfUser,
}

/// Slice that is being read.
#[derive(Clone, Copy, Debug)]
struct Running {
    uid: u32,
    since: Duration,
}

impl Running {
    fn is_hung(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) > PATIENCE
    }
}

/// Schedule of searches. Times are of one monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Processes to be searched, with their users.
    wanted: BTreeMap<ProcessId, u32>,
    /// Slices that are read, also of processes that are no longer wanted.
    running: BTreeMap<ProcessId, Running>,
    /// Processes whose search has begun: those go on before others of their user begin, so that few are
    /// paused.
    begun: BTreeSet<ProcessId>,
    accounts: BTreeMap<u32, Account>,
    /// User of the last slice.
    last_uid: u32,
}

impl Schedule {
    pub(super) fn want(&mut self, process: ProcessId, uid: u32) {
        self.wanted.insert(process, uid);
    }

    pub(super) fn retain(&mut self, is_wanted: impl Fn(&ProcessId) -> bool) {
        self.wanted.retain(|process, _| is_wanted(process));
        self.begun.retain(is_wanted);
    }

    pub(super) fn is_wanted(&self, process: ProcessId) -> bool {
        self.wanted.contains_key(&process)
    }

    /// Process whose next slice is to be read now: of the users in turn.
    pub(super) fn next(&mut self, now: Duration) -> Option<ProcessId> {
        let hung = self.running.values().filter(|running| running.is_hung(now)).count();
        if self.running.len() >= THREADS_MAX || self.running.len() - hung >= RUNNING_MAX {
            return None;
        }
        let due = self.wanted.iter().filter(|(process, _)| self.delay_of(**process, now) == Some(Delay::Turn));
        let (process, uid) =
            due.min_by_key(|(process, uid)| (**uid <= self.last_uid, **uid, !self.begun.contains(process)))?;
        let (process, uid) = (*process, *uid);
        self.last_uid = uid;
        self.begun.insert(process);
        self.running.insert(process, Running { uid, since: now });
        Some(process)
    }

    /// Charges a slice to its user; returns the user. The search is over if it is complete.
    pub(super) fn end(&mut self, process: ProcessId, spent: Duration, is_complete: bool, now: Duration) -> Option<u32> {
        let Running { uid, .. } = self.running.remove(&process)?;
        self.charge(uid, spent, now);
        if is_complete {
            self.wanted.remove(&process);
            self.begun.remove(&process);
        }
        Some(uid)
    }

    pub(super) fn charge(&mut self, uid: u32, spent: Duration, now: Duration) {
        self.accounts.entry(uid).or_default().charge(spent, ALLOWANCE, now);
    }

    /// Credits a user for processor time of its processes.
    pub(super) fn credit(&mut self, uid: u32, used: Duration) {
        if let Some(account) = self.accounts.get_mut(&uid) {
            account.credit(used / CREDIT_PART, ALLOWANCE);
        }
    }

    /// Users whose searches wait for their budget.
    pub(super) fn over_budget(&self, now: Duration) -> impl Iterator<Item = u32> {
        let is_over = move |(_, account): &(&u32, &Account)| account.is_over(ALLOWANCE, now);
        self.accounts.iter().filter(is_over).map(|(uid, _)| *uid)
    }

    /// Forgets users without debt.
    pub(super) fn forget(&mut self, now: Duration) {
        self.accounts.retain(|_, account| account.debt(ALLOWANCE, now) > Duration::ZERO);
    }

    /// What a process's search waits for; `None` if none is wanted, or a slice is being read.
    pub(super) fn delay_of(&self, process: ProcessId, now: Duration) -> Option<Delay> {
        let uid = self.wanted.get(&process)?;
        if let Some(running) = self.running.get(&process) {
            return running.is_hung(now).then_some(Delay::Lock);
        }
        let of_user = || self.running.values().filter(|running| running.uid == *uid);
        if self.accounts.get(uid).is_some_and(|account| account.is_over(ALLOWANCE, now)) {
            return Some(Delay::Budget);
        }
        if of_user().count() < RUNNING_OF_USER_MAX {
            return Some(Delay::Turn);
        }
        of_user().all(|running| running.is_hung(now)).then_some(Delay::LocksOfUser)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    const fn process(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 1 }
    }

    /// Slices of all searches in a time, each of which takes this long: spent time by user.
    fn run(
        schedule: &mut Schedule,
        time: std::ops::Range<Duration>,
        slice: Duration,
        is_complete: impl Fn(ProcessId) -> bool,
    ) -> BTreeMap<u32, Duration> {
        let (mut spent, mut now) = (BTreeMap::new(), time.start);
        while now < time.end {
            let begun: Vec<ProcessId> = std::iter::from_fn(|| schedule.next(now)).collect();
            for process in begun {
                let uid = schedule.end(process, slice, is_complete(process), now).unwrap();
                *spent.entry(uid).or_default() += slice;
            }
            now += 50 * MS;
        }
        spent
    }

    #[test]
    fn searches_without_end_take_the_burst_and_a_hundredth_of_the_time() {
        let mut schedule = Schedule::default();
        (0..8).for_each(|pid| schedule.want(process(pid), 7));
        let spent = run(&mut schedule, SECOND..601 * SECOND, 10 * MS, |_| false)[&7];
        assert!((6900 * MS..=7040 * MS).contains(&spent), "{spent:?}");
        schedule.charge(7, 100 * MS, 601 * SECOND);
        assert_eq!(schedule.delay_of(process(0), 601 * SECOND), Some(Delay::Budget));
        // The refusal ends.
        assert_eq!(schedule.delay_of(process(0), 613 * SECOND), Some(Delay::Turn));
    }

    #[test]
    fn searches_take_at_most_a_fortieth_of_what_the_processes_use_beyond_that() {
        let mut schedule = Schedule::default();
        (0..8).for_each(|pid| schedule.want(process(pid), 7));
        let mut spent = Duration::ZERO;
        for second in 1..=600 {
            let now = second * SECOND;
            spent += run(&mut schedule, now..now + SECOND, 10 * MS, |_| false).get(&7).copied().unwrap_or_default();
            schedule.credit(7, SECOND / 2);
        }
        let allowed = SECOND + 600 * SECOND / 100 + 600 * SECOND / 2 / 40 + 50 * MS;
        assert!(spent <= allowed && spent + SECOND >= allowed, "{spent:?} of {allowed:?}");
    }

    #[test]
    fn user_without_debt_waits_for_no_other() {
        let mut schedule = Schedule::default();
        (0..100).for_each(|pid| schedule.want(process(pid), 7));
        run(&mut schedule, SECOND..9 * SECOND, 10 * MS, |_| false);
        schedule.want(process(100), 8);
        schedule.want(process(101), 6);
        let spent = run(&mut schedule, 9 * SECOND..9 * SECOND + 50 * MS, 10 * MS, |process| process.pid >= 100);
        assert_eq!((spent.get(&6), spent.get(&8)), (Some(&(10 * MS)), Some(&(10 * MS))));
    }

    #[test]
    fn hung_searches_delay_their_own_user_alone() {
        let (mut schedule, mut now) = (Schedule::default(), SECOND);
        // Eight processes of four users hold their memory maps.
        (0..8).for_each(|pid| schedule.want(process(pid), 10 + pid % 4));
        let mut hung = Vec::new();
        for _ in 0..3 {
            hung.extend(std::iter::from_fn(|| schedule.next(now)));
            now += 3 * SECOND;
        }
        assert_eq!(hung.len(), 8);
        schedule.want(process(100), 9);
        schedule.want(process(101), 10);
        assert_eq!((schedule.next(now), schedule.next(now)), (Some(process(100)), None));
        assert_eq!(schedule.delay_of(process(0), now), Some(Delay::Lock));
        assert_eq!(schedule.delay_of(process(101), now), Some(Delay::LocksOfUser));
        // It ends with the lock.
        schedule.end(process(0), MS, true, now);
        assert_eq!(schedule.next(now), Some(process(101)));
    }

    #[test]
    fn threads_are_bounded_whatever_hangs() {
        let (mut schedule, mut now) = (Schedule::default(), SECOND);
        for pid in 0..1000 {
            schedule.want(process(pid), pid);
        }
        let mut begun = 0;
        for _ in 0..1000 {
            begun += std::iter::from_fn(|| schedule.next(now)).count();
            now += 3 * SECOND;
        }
        assert_eq!(begun, THREADS_MAX);
    }

    #[test]
    fn user_without_debt_is_forgotten() {
        let mut schedule = Schedule::default();
        schedule.charge(7, MS, SECOND);
        schedule.forget(SECOND);
        assert_eq!(schedule.accounts.len(), 1);
        schedule.forget(2 * SECOND);
        assert!(schedule.accounts.is_empty());
    }
}

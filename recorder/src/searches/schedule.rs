//! Schedule of searches: order of the slices of processes, within the limits of users and of the
//! node.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    time::Duration,
};

use model::ProcessId;
use sys::cpu_budget::{Accounts, Allowance};
use thiserror::Error;

/// Processor time allowance for the searches of a user.
const ALLOWANCE: Allowance = Allowance { part: 100, burst: Duration::from_millis(250), credit_part: Some(CREDIT_PART) };
/// Divisor of the processor time of a user's processes, for an additional allowance.
pub const CREDIT_PART: u32 = 80;
/// Maximum slices read at a time, of all processes and of those of a user.
const RUNNING_MAX: usize = 4;
const RUNNING_OF_USER_MAX: usize = 2;
/// Time after which the read of a slice counts as hung, and no longer delays reads for other users.
const HUNG_AFTER: Duration = Duration::from_secs(2);
/// Time after which the read of a slice counts as slow. Its user then counts as slow for a while,
/// and leaves one of the slots and a quarter of the threads to others.
const SLOW_AFTER: Duration = Duration::from_millis(200);
const SLOW_FOR: Duration = Duration::from_mins(10);
const RUNNING_OF_SLOW_MAX: usize = RUNNING_MAX - 1;
/// Maximum slices read or hung at a time: 32 users at their limit, of whom 24 may be slow.
pub(super) const THREADS_MAX: usize = 64;
const THREADS_OF_SLOW_MAX: usize = THREADS_MAX / 4 * 3;

/// Reason why the search in a process's memory map is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Delay {
    /// The search waits for its turn.
    #[error("its memory map is being searched for the helper")]
    Turn,
    /// The user has used up the processor time for searches.
    #[error("its memory map is not searched for the helper until its user has processor time for searches again")]
    Budget,
    /// The process holds the lock of its memory map.
    #[error("the search for the helper waits for the lock of its memory map, which the process holds")]
    Lock,
    /// Other processes of the user hold the locks of theirs.
    #[error("the search for the helper waits: processes of its user hold their memory maps")]
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
        now.saturating_sub(self.since) > HUNG_AFTER
    }

    fn is_slow(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) > SLOW_AFTER
    }
}

/// Schedule of searches. Times are of one monotonic clock.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Processes to search, with their users.
    requested: BTreeMap<ProcessId, u32>,
    /// Processes to search by user. Searches in progress come first, so that few are paused.
    queues: BTreeMap<u32, BTreeSet<(Stage, ProcessId)>>,
    /// Slices being read, including those of processes no longer requested.
    running: BTreeMap<ProcessId, Running>,
    accounts: Accounts,
    /// Users that count as slow, with the end of that time.
    slow: BTreeMap<u32, Duration>,
    /// User of the last slice.
    last_uid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Begun,
    New,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            requested: BTreeMap::new(),
            queues: BTreeMap::new(),
            running: BTreeMap::new(),
            accounts: Accounts::new(ALLOWANCE),
            slow: BTreeMap::new(),
            last_uid: 0,
        }
    }
}

impl Schedule {
    pub(super) fn request(&mut self, process: ProcessId, uid: u32) {
        if self.requested.get(&process) != Some(&uid) {
            self.remove(process);
            self.requested.insert(process, uid);
            self.queues.entry(uid).or_default().insert((Stage::New, process));
        }
    }

    fn remove(&mut self, process: ProcessId) {
        let Some(uid) = self.requested.remove(&process) else { return };
        let Some(queue) = self.queues.get_mut(&uid) else { return };
        for stage in [Stage::Begun, Stage::New] {
            queue.remove(&(stage, process));
        }
        if queue.is_empty() {
            self.queues.remove(&uid);
        }
    }

    pub(super) fn retain(&mut self, is_requested: impl Fn(&ProcessId) -> bool) {
        self.requested.retain(|process, _| is_requested(process));
        self.queues.retain(|_, queue| {
            queue.retain(|(_, process)| is_requested(process));
            !queue.is_empty()
        });
    }

    /// Slices that are being read.
    #[cfg(test)]
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    pub(super) fn is_requested(&self, process: ProcessId) -> bool {
        self.requested.contains_key(&process)
    }

    /// Process whose slice is read next; users take turns. `None` at a limit.
    pub(super) fn next(&mut self, now: Duration) -> Option<ProcessId> {
        let threads = self.running.len();
        let active: Vec<u32> =
            self.running.values().filter(|slice| !slice.is_hung(now)).map(|slice| slice.uid).collect();
        if threads >= THREADS_MAX || active.len() >= RUNNING_MAX {
            return None;
        }
        let of_slow = active.iter().filter(|uid| self.is_slow(**uid, now)).count();
        let has_slot_for_slow = threads < THREADS_OF_SLOW_MAX && of_slow < RUNNING_OF_SLOW_MAX;
        let others = self.queues.range((Bound::Excluded(self.last_uid), Bound::Unbounded));
        let users = others.chain(self.queues.range(..=self.last_uid));
        let (uid, stage, process) = users
            .filter(|(uid, _)| {
                let has_room = self.of_user(**uid).count() < RUNNING_OF_USER_MAX;
                has_room && !self.is_over_budget(**uid, now) && (has_slot_for_slow || !self.is_slow(**uid, now))
            })
            .find_map(|(uid, queue)| {
                let due = queue.iter().find(|(_, process)| !self.running.contains_key(process));
                due.map(|(stage, process)| (*uid, *stage, *process))
            })?;
        if let Some(queue) = self.queues.get_mut(&uid) {
            queue.remove(&(stage, process));
            queue.insert((Stage::Begun, process));
        }
        self.last_uid = uid;
        self.running.insert(process, Running { uid, since: now });
        Some(process)
    }

    fn of_user(&self, uid: u32) -> impl Iterator<Item = &Running> {
        self.running.values().filter(move |running| running.uid == uid)
    }

    fn is_over_budget(&self, uid: u32, now: Duration) -> bool {
        self.accounts.is_over(uid, now)
    }

    /// Whether a user has, or recently had, a slow slice.
    fn is_slow(&self, uid: u32, now: Duration) -> bool {
        self.slow.get(&uid).is_some_and(|until| *until > now) || self.of_user(uid).any(|running| running.is_slow(now))
    }

    /// Charges a slice to its user, and returns the user. Ends the search if it is complete.
    pub(super) fn finish_slice(
        &mut self,
        process: ProcessId,
        spent: Duration,
        is_complete: bool,
        now: Duration,
    ) -> Option<u32> {
        let running = self.running.remove(&process)?;
        let uid = running.uid;
        if running.is_slow(now) {
            self.slow.insert(uid, now + SLOW_FOR);
        }
        self.charge(uid, spent, now);
        if is_complete {
            self.remove(process);
        }
        Some(uid)
    }

    pub(super) fn charge(&mut self, uid: u32, spent: Duration, now: Duration) {
        self.accounts.charge(uid, spent, now);
    }

    /// Credits a user for processor time of its processes.
    pub(super) fn credit(&mut self, uid: u32, used: Duration) {
        self.accounts.credit(uid, used);
    }

    /// Users whose searches wait for their budget.
    pub(super) fn users_over_budget(&self, now: Duration) -> impl Iterator<Item = u32> {
        self.accounts.over(now)
    }

    /// Removes users that no longer count as slow.
    pub(super) fn expire_slow(&mut self, now: Duration) {
        self.slow.retain(|_, until| *until > now);
    }

    /// Reason why the search of a process waits; `None` without a search, or while a slice is read.
    pub(super) fn delay_of(&self, process: ProcessId, now: Duration) -> Option<Delay> {
        let uid = self.requested.get(&process)?;
        if let Some(running) = self.running.get(&process) {
            return running.is_hung(now).then_some(Delay::Lock);
        }
        if self.is_over_budget(*uid, now) {
            return Some(Delay::Budget);
        }
        if self.of_user(*uid).count() < RUNNING_OF_USER_MAX {
            return Some(Delay::Turn);
        }
        self.of_user(*uid).all(|running| running.is_hung(now)).then_some(Delay::LocksOfUser)
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

    /// Runs the slices of all searches for a time, each of the same duration; returns the time by
    /// user.
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
                let uid = schedule.finish_slice(process, slice, is_complete(process), now).unwrap();
                *spent.entry(uid).or_default() += slice;
            }
            now += 50 * MS;
        }
        spent
    }

    #[test]
    fn endless_searches_take_the_burst_and_a_hundredth_of_the_time() {
        let mut schedule = Schedule::default();
        (0..8).for_each(|pid| schedule.request(process(pid), 7));
        let spent = run(&mut schedule, SECOND..601 * SECOND, 10 * MS, |_| false)[&7];
        assert!((6150 * MS..=6290 * MS).contains(&spent), "{spent:?}");
        schedule.charge(7, 100 * MS, 601 * SECOND);
        assert_eq!(schedule.delay_of(process(0), 601 * SECOND), Some(Delay::Budget));
        // The throttling ends.
        assert_eq!(schedule.delay_of(process(0), 613 * SECOND), Some(Delay::Turn));
    }

    #[test]
    fn credit_for_searches_is_an_eightieth_of_the_processes_time() {
        let mut schedule = Schedule::default();
        (0..8).for_each(|pid| schedule.request(process(pid), 7));
        let mut spent = Duration::ZERO;
        for second in 1..=600 {
            let now = second * SECOND;
            spent += run(&mut schedule, now..now + SECOND, 10 * MS, |_| false).get(&7).copied().unwrap_or_default();
            schedule.credit(7, SECOND / 2);
        }
        let allowed = SECOND / 4 + 600 * SECOND / 100 + 600 * SECOND / 2 / 80 + 50 * MS;
        assert!(spent <= allowed && spent + SECOND >= allowed, "{spent:?} of {allowed:?}");
    }

    #[test]
    fn user_without_debt_does_not_wait_for_others() {
        let mut schedule = Schedule::default();
        (0..100).for_each(|pid| schedule.request(process(pid), 7));
        run(&mut schedule, SECOND..9 * SECOND, 10 * MS, |_| false);
        schedule.request(process(100), 8);
        schedule.request(process(101), 6);
        let spent = run(&mut schedule, 9 * SECOND..9 * SECOND + 50 * MS, 10 * MS, |process| process.pid >= 100);
        assert_eq!((spent.get(&6), spent.get(&8)), (Some(&(10 * MS)), Some(&(10 * MS))));
    }

    #[test]
    fn hung_searches_delay_only_their_own_user() {
        let (mut schedule, mut now) = (Schedule::default(), SECOND);
        // Eight processes of four users hold their memory maps.
        (0..8).for_each(|pid| schedule.request(process(pid), 10 + pid % 4));
        let mut hung = Vec::new();
        for _ in 0..3 {
            hung.extend(std::iter::from_fn(|| schedule.next(now)));
            now += 3 * SECOND;
        }
        assert_eq!(hung.len(), 8);
        schedule.request(process(100), 9);
        schedule.request(process(101), 10);
        assert_eq!((schedule.next(now), schedule.next(now)), (Some(process(100)), None));
        assert_eq!(schedule.delay_of(process(0), now), Some(Delay::Lock));
        assert_eq!(schedule.delay_of(process(101), now), Some(Delay::LocksOfUser));
        // The search ends with the lock.
        schedule.finish_slice(process(0), MS, true, now);
        assert_eq!(schedule.next(now), Some(process(101)));
    }

    #[test]
    fn threads_are_bounded_whatever_hangs() {
        let (mut schedule, mut now) = (Schedule::default(), SECOND);
        for pid in 0..1000 {
            schedule.request(process(pid), pid);
        }
        let mut begun = 0;
        for _ in 0..1000 {
            begun += std::iter::from_fn(|| schedule.next(now)).count();
            now += 3 * SECOND;
        }
        assert_eq!(begun, THREADS_MAX);
    }

    #[test]
    fn users_that_hold_their_maps_leave_threads_to_others() {
        let (mut schedule, mut now) = (Schedule::default(), SECOND);
        for pid in 0..100 {
            schedule.request(process(pid), pid / 2);
        }
        // Each user has had a slow slice before.
        schedule.slow = (0..50).map(|uid| (uid, Duration::MAX)).collect();
        let mut begun = 0;
        for _ in 0..100 {
            begun += std::iter::from_fn(|| schedule.next(now)).count();
            now += 3 * SECOND;
        }
        assert_eq!(begun, THREADS_OF_SLOW_MAX);
        schedule.request(process(200), 200);
        assert_eq!(schedule.next(now), Some(process(200)));
    }

    #[test]
    fn slow_reads_leave_a_slot_to_others() {
        let (mut schedule, mut now) = (Schedule::default(), SECOND);
        (0..100).for_each(|pid| schedule.request(process(pid), pid % 2));
        let mut held: Vec<ProcessId> = std::iter::from_fn(|| schedule.next(now)).collect();
        assert_eq!(held.len(), RUNNING_MAX);
        for other in 200..220 {
            now += 1990 * MS;
            for process in held.drain(..) {
                schedule.finish_slice(process, MS, false, now);
            }
            held.extend(std::iter::from_fn(|| schedule.next(now)));
            schedule.request(process(other), other);
            assert_eq!((held.len(), schedule.next(now)), (RUNNING_OF_SLOW_MAX, Some(process(other))));
            schedule.finish_slice(process(other), MS, true, now);
        }
    }

    #[test]
    fn user_over_budget_is_skipped_with_all_its_processes() {
        let mut schedule = Schedule::default();
        (0..3500).for_each(|pid| schedule.request(process(pid), 7));
        schedule.charge(7, 10 * SECOND, SECOND);
        schedule.request(process(9000), 8);
        assert_eq!((schedule.next(SECOND), schedule.next(SECOND)), (Some(process(9000)), None));
        assert_eq!(schedule.queues.len(), 2, "users, and not processes, are visited");
        schedule.retain(|process| process.pid == 0);
        assert_eq!((schedule.requested.len(), schedule.queues.len()), (1, 1));
    }
}

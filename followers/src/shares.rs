//! Shares of the memory of all followers. Each user has a quota, and a part is a reserve for users with
//! little. A follower without a share is dropped, and its process is followed again after a while. At the
//! node's limit, the largest shares of the user with the most memory are evicted for a share of a user with less,
//! if the former still keeps at least as much as the latter. The freed memory is reserved for the latter until
//! it asks again.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use thiserror::Error;

use crate::{backoff::Backoff, lock};

/// Limits of the memory that followers hold between calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of all followers. A quarter of them is a reserve for users with little.
    pub(crate) node_bytes: usize,
    /// Bytes of a user's followers.
    pub(crate) user_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { node_bytes: 192 << 20, user_bytes: 96 << 20 }
    }
}

/// Memory of all followers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares(Arc<Mutex<ShareTable>>);

/// Shares that are not empty.
#[derive(Debug, Default)]
struct ShareTable {
    limits: Limits,
    /// By number.
    shares: BTreeMap<u64, ShareEntry>,
    /// Number of the last share.
    last: u64,
    reservation: Option<Reservation>,
}

/// Bytes reserved for a user, which others do not get.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    user: u32,
    bytes: usize,
    until: Duration,
}

/// Duration of a reservation: longer than the delay of the first attempt after a refusal.
const RESERVATION_TIME: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug)]
struct ShareEntry {
    user: u32,
    bytes: usize,
    /// User with less, for whom this share is evicted.
    evicted_for: Option<u32>,
}

/// Reason why a follower has no share for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("memory for following calls: {refusal}; the process is followed again in {} s", .delay.as_secs())]
pub(crate) struct ShareError {
    refusal: Refusal,
    /// Time until the share is due again.
    delay: Duration,
}

/// Refusal of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum Refusal {
    /// The quota of the user is reached.
    #[error("the quota of the process's user is reached: {0}")]
    User(Holder),
    /// The limit of the node is reached.
    #[error("the limit of the node is reached: {0}")]
    Node(Holder),
    /// The share is evicted.
    #[error("evicted for a process of user {user}, who has less")]
    Evicted {
        /// User with less.
        user: u32,
    },
}

/// Holder of the memory that reaches a limit: the user of the share, or the one with the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("user {uid} has {} of {} MiB", mib(*.bytes), mib(*.max_bytes))]
struct Holder {
    uid: u32,
    bytes: usize,
    max_bytes: usize,
}

/// MiB, rounded up.
const fn mib(bytes: usize) -> usize {
    bytes.div_ceil(1 << 20)
}

/// Share of a follower, which ends on drop.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Shares,
    number: u64,
    user: u32,
    backoff: Backoff,
}

impl Shares {
    /// Memory without shares.
    #[cfg(test)]
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(ShareTable { limits, ..ShareTable::default() })))
    }

    /// Empty share of a follower of a process of this user.
    pub(crate) fn start(&self, user: u32) -> Share {
        let mut held = lock(&self.0);
        held.last += 1;
        Share { shares: self.clone(), number: held.last, user, backoff: Backoff::default() }
    }

    /// Bytes of all followers.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.0).shares.values().map(|entry| entry.bytes).sum()
    }
}

impl Share {
    /// Whether the share was not refused, or enough time has passed since.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.backoff.delay().is_none() || self.backoff.is_due(now)
    }

    /// Retains the share. Called at least every few seconds.
    ///
    /// # Errors
    /// If the share is evicted for another user's: it is empty then.
    pub(crate) fn retain(&mut self, now: Duration) -> Result<(), ShareError> {
        let evicted_for = lock(&self.shares.0).shares.get(&self.number).and_then(|entry| entry.evicted_for);
        evicted_for.map_or(Ok(()), |user| Err(self.refuse(Refusal::Evicted { user }, now)))
    }

    /// Changes the size of the share. It shrinks only if less than half of it is needed, as the memory of a
    /// follower goes up and down.
    ///
    /// # Errors
    /// If a limit is reached: the reason, with the user who has the most. The share is empty then.
    pub(crate) fn resize(&mut self, bytes: usize, now: Duration) -> Result<(), ShareError> {
        let (resized, is_reserved) = {
            let mut held = lock(&self.shares.0);
            (held.resize(self.number, self.user, bytes, now), held.reserved_for(self.user, now) > 0)
        };
        if is_reserved {
            self.backoff = Backoff::default();
        }
        resized.map_err(|refusal| self.refuse(refusal, now))
    }

    /// Empties the share until it is due again.
    fn refuse(&mut self, refusal: Refusal, now: Duration) -> ShareError {
        self.end();
        self.backoff.record_failure(true, now);
        ShareError { refusal, delay: self.backoff.delay().unwrap_or_default() }
    }

    /// Forgets refusals: the follower has reached a plan, or the reason why there is none.
    pub(crate) fn reset_backoff(&mut self) {
        self.backoff = Backoff::default();
    }

    /// Size in bytes.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        lock(&self.shares.0).shares.get(&self.number).map_or(0, |entry| entry.bytes)
    }

    /// Empties the share.
    pub(crate) fn end(&mut self) {
        lock(&self.shares.0).shares.remove(&self.number);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.end();
    }
}

impl ShareTable {
    /// Bytes by user.
    fn by_user(&self) -> BTreeMap<u32, usize> {
        let mut by_user = BTreeMap::new();
        self.shares.values().for_each(|ShareEntry { user, bytes, .. }| *by_user.entry(*user).or_default() += bytes);
        by_user
    }

    /// Resizes a share of a user, within the limits.
    fn resize(&mut self, number: u64, user: u32, to: usize, now: Duration) -> Result<(), Refusal> {
        let from = self.shares.get(&number).map_or(0, |entry| entry.bytes);
        if (from / 2..=from).contains(&to) {
            return Ok(());
        }
        if to > from {
            self.check(user, to - from, now)?;
        }
        self.shares.entry(number).or_insert(ShareEntry { user, bytes: 0, evicted_for: None }).bytes = to;
        Ok(())
    }

    /// Bytes that are reserved for a user.
    fn reserved_for(&self, user: u32, now: Duration) -> usize {
        self.reservation
            .filter(|reservation| reservation.user == user && now < reservation.until)
            .map_or(0, |reservation| reservation.bytes)
    }

    /// Checks the limits for these additional bytes of a user.
    fn check(&mut self, user: u32, added_bytes: usize, now: Duration) -> Result<(), Refusal> {
        let Limits { node_bytes, user_bytes } = self.limits;
        let by_user = self.by_user();
        let own = by_user.get(&user).copied().unwrap_or(0).saturating_add(added_bytes);
        if own > user_bytes {
            return Err(Refusal::User(Holder { uid: user, bytes: own - added_bytes, max_bytes: user_bytes }));
        }
        self.reservation = self.reservation.filter(|reservation| now < reservation.until);
        let reserved =
            self.reservation.filter(|reservation| reservation.user != user).map_or(0, |reservation| reservation.bytes);
        // Bytes that this user does not get; the reserve is for users with little.
        let withheld_bytes = if own <= user_bytes / 4 { 0 } else { node_bytes / 4 + reserved };
        let all = by_user.values().sum::<usize>().saturating_add(withheld_bytes).saturating_add(added_bytes);
        let missing_bytes = all.saturating_sub(node_bytes);
        if missing_bytes == 0 {
            self.reservation = self.reservation.filter(|reservation| reservation.user != user);
            return Ok(());
        }
        let most = by_user.into_iter().max_by_key(|(_, held)| *held);
        let (most, held) = most.unwrap_or((user, 0));
        if most != user
            && self.reservation.is_none()
            && self.evict_for(most, missing_bytes, held.saturating_sub(own), user)
        {
            self.reservation = Some(Reservation { user, bytes: added_bytes, until: now + RESERVATION_TIME });
        }
        Err(Refusal::Node(Holder { uid: most, bytes: held, max_bytes: node_bytes }))
    }

    /// Evicts the largest shares of a user for user `to`, as many as free `missing_bytes`, if that frees at most
    /// `freed_bytes_max`. Returns whether they are evicted.
    fn evict_for(&mut self, user: u32, missing_bytes: usize, freed_bytes_max: usize, to: u32) -> bool {
        let mut shares: Vec<&mut ShareEntry> = self.shares.values_mut().filter(|entry| entry.user == user).collect();
        shares.sort_by_key(|entry| Reverse(entry.bytes));
        let (mut freed_bytes, mut count) = (0, 0);
        for entry in &shares {
            if freed_bytes >= missing_bytes {
                break;
            }
            freed_bytes += entry.bytes;
            count += 1;
        }
        let is_enough = (missing_bytes..=freed_bytes_max).contains(&freed_bytes);
        if is_enough {
            shares.iter_mut().take(count).for_each(|entry| entry.evicted_for = Some(to));
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: usize = 1 << 20;
    const NOW: Duration = Duration::from_secs(1000);
    const SECOND: Duration = Duration::from_secs(1);

    /// Shares of this many bytes of followers of a user, as many as it may have.
    fn fill(shares: &Shares, user: u32, bytes: usize) -> Vec<Share> {
        let share = || {
            let mut share = shares.start(user);
            share.resize(bytes, NOW).is_ok().then_some(share)
        };
        std::iter::from_fn(share).take(64).collect()
    }

    #[test]
    fn user_with_many_followers_leaves_memory_to_others() {
        let shares = Shares::default();
        let first = fill(&shares, 1, 5 * MIB);
        assert_eq!((first.len(), shares.bytes()), (19, 95 * MIB));
        let second = fill(&shares, 2, 5 * MIB);
        assert_eq!((second.len(), shares.bytes()), (9, 140 * MIB));
        let third = fill(&shares, 3, 5 * MIB);
        assert_eq!((third.len(), shares.bytes()), (4, 160 * MIB), "of the reserve");
        drop((first, second, third));
        assert_eq!(shares.bytes(), 0);
    }

    #[test]
    fn refusal_names_the_limit_and_the_user_with_most_of_it() {
        let shares = Shares::default();
        let _first = fill(&shares, 1, 6 * MIB);
        let mut another = shares.start(1);
        let refused = |resized: Result<(), ShareError>| resized.map_err(|error| error.to_string());
        assert_eq!(
            refused(another.resize(MIB, NOW)),
            Err("memory for following calls: the quota of the process's user is reached: user 1 has 96 of 96 MiB; \
                 the process is followed again in 10 s"
                .to_owned())
        );
        let _second = fill(&shares, 2, 6 * MIB);
        let _third = fill(&shares, 3, 6 * MIB);
        assert_eq!(shares.bytes(), 168 * MIB);
        assert_eq!(
            refused(shares.start(4).resize(25 * MIB, NOW)),
            Err("memory for following calls: the limit of the node is reached: user 1 has 96 of 192 MiB; \
                 the process is followed again in 10 s"
                .to_owned())
        );
        assert_eq!(shares.start(4).resize(24 * MIB, NOW), Ok(()));
    }

    #[test]
    fn share_beyond_the_limit_ends_and_is_retried_with_backoff() {
        let shares = Shares::default();
        let mut share = shares.start(1);
        assert!(share.is_due(Duration::ZERO));
        let mut now = NOW;
        for seconds in [10, 20, 40] {
            assert_eq!(share.resize(80 * MIB, now), Ok(()));
            assert!(share.resize(97 * MIB, now).is_err());
            assert_eq!(shares.bytes(), 0, "it is dropped");
            assert!(!share.is_due(now + (seconds - 1) * SECOND) && share.is_due(now + seconds * SECOND));
            now += seconds * SECOND;
        }
        share.reset_backoff();
        assert!(share.is_due(Duration::ZERO));
    }

    #[test]
    fn share_shrinks_with_hysteresis() {
        let shares = Shares::default();
        let mut share = shares.start(1);
        share.resize(8 * MIB, NOW).unwrap();
        share.resize(5 * MIB, NOW).unwrap();
        assert_eq!(shares.bytes(), 8 * MIB);
        share.resize(3 * MIB, NOW).unwrap();
        assert_eq!(shares.bytes(), 3 * MIB);
    }

    /// Number of evicted shares, with the first of their reasons.
    fn ended(shares: &mut [Share], now: Duration) -> (usize, Option<String>) {
        let mut reasons = shares.iter_mut().filter_map(|share| Some(share.retain(now).err()?.to_string()));
        let first = reasons.next();
        (usize::from(first.is_some()) + reasons.count(), first)
    }

    #[test]
    fn largest_shares_of_the_user_with_most_are_evicted() {
        let shares = Shares::default();
        let mut first = fill(&shares, 1, 12 * MIB);
        let mut second: Vec<Share> = (0..3).map(|_| shares.start(2)).collect();
        assert!(second.iter_mut().all(|share| share.resize(12 * MIB, NOW).is_ok()));
        let mut third = shares.start(3);
        assert!(third.resize(40 * MIB, NOW).is_err(), "the others have to be evicted first");
        let reason = "memory for following calls: evicted for a process of user 3, who has less; \
                      the process is followed again in 10 s";
        assert_eq!(ended(&mut first, NOW), (3, Some(reason.to_owned())));
        assert_eq!(ended(&mut second, NOW), (0, None));
        let now = NOW + 10 * SECOND;
        assert!(first.iter_mut().all(|share| share.resize(12 * MIB, now).is_ok() == (share.backoff.delay().is_none())));
        assert!(shares.start(4).resize(25 * MIB, now).is_err(), "it is reserved");
        assert!(third.is_due(now) && third.resize(40 * MIB, now).is_ok());
        assert_eq!(ended(&mut first, now), (0, None), "no share is evicted for a user with more");
    }

    #[test]
    fn user_with_most_keeps_at_least_as_much_as_the_other_gets() {
        let shares = Shares::default();
        let mut first = fill(&shares, 1, 48 * MIB);
        let mut second = fill(&shares, 2, 48 * MIB);
        assert_eq!((first.len(), second.len()), (2, 1));
        assert!(second[0].resize(60 * MIB, NOW).is_err());
        assert_eq!(ended(&mut first, NOW), (0, None));
    }

    #[test]
    fn reservation_expires() {
        let shares = Shares::default();
        let mut first = fill(&shares, 1, 12 * MIB);
        let _second = fill(&shares, 2, 12 * MIB);
        let mut third = shares.start(3);
        for now in [NOW, NOW + RESERVATION_TIME] {
            assert!(third.resize(40 * MIB, now).is_err());
            assert!(shares.start(4).resize(25 * MIB, now).is_err());
            ended(&mut first, now);
        }
        let later = NOW + 2 * RESERVATION_TIME;
        assert!(first.iter_mut().any(|share| share.bytes() == 0 && share.resize(12 * MIB, later).is_ok()));
    }

    proptest! {
        #[test]
        fn shares_are_limited_and_freed(steps in prop::collection::vec((0..24_usize, 0..120_usize), 1..200)) {
            let shares = Shares::default();
            let mut all: Vec<Share> = (0..24).map(|at| shares.start(at % 5)).collect();
            for (at, mib) in steps {
                let _ = all[at].resize(mib * MIB, NOW);
                let held = lock(&shares.0).by_user();
                prop_assert!(held.values().sum::<usize>() <= 192 * MIB);
                prop_assert!(held.values().all(|bytes| *bytes <= 96 * MIB));
                for share in &mut all {
                    let _ = share.retain(NOW);
                }
            }
            drop(all);
            prop_assert_eq!(shares.bytes(), 0);
        }
    }
}

//! Shares of the memory of all followers. Each user has a quota, and a part is a reserve for users with
//! little. A follower without a share is dropped, and its process is followed anew after a while. At the
//! node's limit, the largest shares of the user with the most memory give way to a share of a user with less,
//! if the former still keeps at least as much as the latter. The freed memory is promised to the latter until
//! it asks again.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{backoff::Backoff, lock};

/// Limits of the memory that followers hold between calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes of all followers. A quarter of them is a reserve for users with little.
    pub(super) node_bytes: usize,
    /// Bytes of a user's followers.
    pub(super) user_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { node_bytes: 192 << 20, user_bytes: 96 << 20 }
    }
}

/// Memory of all followers.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares(Arc<Mutex<Held>>);

/// Shares that are not empty.
#[derive(Debug, Default)]
struct Held {
    limits: Limits,
    /// By number.
    shares: BTreeMap<u64, Holding>,
    /// Number of the last share.
    last: u64,
    promise: Option<Promise>,
}

/// Bytes promised to a user, which others do not get.
#[derive(Clone, Copy, Debug)]
struct Promise {
    user: u32,
    bytes: usize,
    until: Duration,
}

/// Duration of a promise: longer than the delay of the first attempt after a refusal.
const PROMISED: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug)]
struct Holding {
    user: u32,
    bytes: usize,
    /// User with less, to whom this share gives way.
    gives_way_to: Option<u32>,
}

/// Share of a follower, which ends on drop.
#[derive(Debug)]
pub(super) struct Share {
    shares: Shares,
    number: u64,
    user: u32,
    backoff: Backoff,
}

impl Shares {
    /// Memory without shares.
    #[cfg(test)]
    pub(super) fn new(limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(Held { limits, ..Held::default() })))
    }

    /// Empty share of a follower of a process of this user.
    pub(super) fn start(&self, user: u32) -> Share {
        let mut held = lock(&self.0);
        held.last += 1;
        Share { shares: self.clone(), number: held.last, user, backoff: Backoff::default() }
    }

    /// Bytes of all followers.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        lock(&self.0).shares.values().map(|holding| holding.bytes).sum()
    }
}

impl Share {
    /// Whether the share was not refused, or enough time has passed since.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.backoff.delay().is_none() || self.backoff.is_due(now)
    }

    /// Retains the share. Called at least every few seconds.
    ///
    /// # Errors
    /// If the share gives way to another user's: it is empty then.
    pub(super) fn retain(&mut self, now: Duration) -> Result<(), String> {
        let gives_way_to = lock(&self.shares.0).shares.get(&self.number).and_then(|holding| holding.gives_way_to);
        gives_way_to.map_or(Ok(()), |user| {
            Err(self.refuse(&format!("{MEMORY}: it gives way to a process of user {user}, who has less"), now))
        })
    }

    /// Changes the size of the share. It shrinks only if less than half of it is needed, as the memory of a
    /// follower goes up and down.
    ///
    /// # Errors
    /// If a limit is reached: the reason, with the user who has the most. The share is empty then.
    pub(super) fn resize(&mut self, bytes: usize, now: Duration) -> Result<(), String> {
        let (resized, is_promised) = {
            let mut held = lock(&self.shares.0);
            (held.resize(self.number, self.user, bytes, now), held.promised_to(self.user, now) > 0)
        };
        if is_promised {
            self.backoff = Backoff::default();
        }
        resized.map_err(|reason| self.refuse(&reason, now))
    }

    /// Empties the share until it is due again. Returns the reason, with the time until then.
    fn refuse(&mut self, reason: &str, now: Duration) -> String {
        self.end();
        self.backoff.refuse(true, now);
        let delay = self.backoff.delay().unwrap_or_default();
        format!("{reason}; the process is followed anew after {} s", delay.as_secs())
    }

    /// Forgets refusals: the follower has reached a plan, or the reason why there is none.
    pub(super) fn settle(&mut self) {
        self.backoff = Backoff::default();
    }

    /// Size in bytes.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        lock(&self.shares.0).shares.get(&self.number).map_or(0, |holding| holding.bytes)
    }

    /// Empties the share.
    pub(super) fn end(&mut self) {
        lock(&self.shares.0).shares.remove(&self.number);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.end();
    }
}

impl Held {
    /// Bytes by user.
    fn by_user(&self) -> BTreeMap<u32, usize> {
        let mut by_user = BTreeMap::new();
        self.shares.values().for_each(|Holding { user, bytes, .. }| *by_user.entry(*user).or_default() += bytes);
        by_user
    }

    /// Resizes a share of a user, within the limits.
    fn resize(&mut self, number: u64, user: u32, to: usize, now: Duration) -> Result<(), String> {
        let from = self.shares.get(&number).map_or(0, |holding| holding.bytes);
        if (from / 2..=from).contains(&to) {
            return Ok(());
        }
        if to > from {
            self.check(user, to - from, now)?;
        }
        self.shares.entry(number).or_insert(Holding { user, bytes: 0, gives_way_to: None }).bytes = to;
        Ok(())
    }

    /// Bytes that are promised to a user.
    fn promised_to(&self, user: u32, now: Duration) -> usize {
        self.promise.filter(|promise| promise.user == user && now < promise.until).map_or(0, |promise| promise.bytes)
    }

    /// Checks the limits for these additional bytes of a user.
    fn check(&mut self, user: u32, more: usize, now: Duration) -> Result<(), String> {
        let Limits { node_bytes, user_bytes } = self.limits;
        let by_user = self.by_user();
        let own = by_user.get(&user).copied().unwrap_or(0).saturating_add(more);
        if own > user_bytes {
            return Err(reason("the quota of the process's user", user, own - more, user_bytes));
        }
        self.promise = self.promise.filter(|promise| now < promise.until);
        let promised = self.promise.filter(|promise| promise.user != user).map_or(0, |promise| promise.bytes);
        // Bytes that this user does not get; the reserve is for users with little.
        let kept = if own <= user_bytes / 4 { 0 } else { node_bytes / 4 + promised };
        let all = by_user.values().sum::<usize>().saturating_add(kept).saturating_add(more);
        let lacking = all.saturating_sub(node_bytes);
        if lacking == 0 {
            self.promise = self.promise.filter(|promise| promise.user != user);
            return Ok(());
        }
        let most = by_user.into_iter().max_by_key(|(_, held)| *held);
        let (most, held) = most.unwrap_or((user, 0));
        if most != user && self.promise.is_none() && self.give_way(most, lacking, held.saturating_sub(own), user) {
            self.promise = Some(Promise { user, bytes: more, until: now + PROMISED });
        }
        Err(reason("the limit of the node", most, held, node_bytes))
    }

    /// Makes the largest shares of a user give way to user `to`, as many as free `lacking` bytes, if that
    /// frees at most `freed_max`. Returns whether they give way.
    fn give_way(&mut self, user: u32, lacking: usize, freed_max: usize, to: u32) -> bool {
        let mut shares: Vec<&mut Holding> = self.shares.values_mut().filter(|holding| holding.user == user).collect();
        shares.sort_by_key(|holding| Reverse(holding.bytes));
        let (mut freed, mut count) = (0, 0);
        for holding in &shares {
            if freed >= lacking {
                break;
            }
            freed += holding.bytes;
            count += 1;
        }
        let is_enough = (lacking..=freed_max).contains(&freed);
        if is_enough {
            shares.iter_mut().take(count).for_each(|holding| holding.gives_way_to = Some(to));
        }
        is_enough
    }
}

const MEMORY: &str = "memory for following calls";

fn reason(limit: &str, user: u32, held: usize, max: usize) -> String {
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    format!("{MEMORY}: {limit} is reached: user {user} has {} of {} MiB", mib(held), mib(max))
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
    fn refusal_says_which_limit_is_reached_and_who_has_most_of_it() {
        let shares = Shares::default();
        let _first = fill(&shares, 1, 6 * MIB);
        let mut another = shares.start(1);
        assert_eq!(
            another.resize(MIB, NOW),
            Err("memory for following calls: the quota of the process's user is reached: user 1 has 96 of 96 MiB; \
                 the process is followed anew after 10 s"
                .to_owned())
        );
        let _second = fill(&shares, 2, 6 * MIB);
        let _third = fill(&shares, 3, 6 * MIB);
        assert_eq!(shares.bytes(), 168 * MIB);
        assert_eq!(
            shares.start(4).resize(25 * MIB, NOW),
            Err("memory for following calls: the limit of the node is reached: user 1 has 96 of 192 MiB; \
                 the process is followed anew after 10 s"
                .to_owned())
        );
        assert_eq!(shares.start(4).resize(24 * MIB, NOW), Ok(()));
    }

    #[test]
    fn share_that_grows_beyond_the_limit_ends_and_is_tried_again_later_and_later() {
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
        share.settle();
        assert!(share.is_due(Duration::ZERO));
    }

    #[test]
    fn share_does_not_go_up_and_down_with_each_call() {
        let shares = Shares::default();
        let mut share = shares.start(1);
        share.resize(8 * MIB, NOW).unwrap();
        share.resize(5 * MIB, NOW).unwrap();
        assert_eq!(shares.bytes(), 8 * MIB);
        share.resize(3 * MIB, NOW).unwrap();
        assert_eq!(shares.bytes(), 3 * MIB);
    }

    /// Those that give way, with the first of their reasons.
    fn ended(shares: &mut [Share], now: Duration) -> (usize, Option<String>) {
        let mut reasons = shares.iter_mut().filter_map(|share| share.retain(now).err());
        let first = reasons.next();
        (usize::from(first.is_some()) + reasons.count(), first)
    }

    #[test]
    fn largest_shares_of_the_user_with_most_give_way_to_a_user_with_less() {
        let shares = Shares::default();
        let mut first = fill(&shares, 1, 12 * MIB);
        let mut second: Vec<Share> = (0..3).map(|_| shares.start(2)).collect();
        assert!(second.iter_mut().all(|share| share.resize(12 * MIB, NOW).is_ok()));
        let mut third = shares.start(3);
        assert!(third.resize(40 * MIB, NOW).is_err(), "the others have to end first");
        let reason = "memory for following calls: it gives way to a process of user 3, who has less; \
                      the process is followed anew after 10 s";
        assert_eq!(ended(&mut first, NOW), (3, Some(reason.to_owned())));
        assert_eq!(ended(&mut second, NOW), (0, None));
        let now = NOW + 10 * SECOND;
        assert!(first.iter_mut().all(|share| share.resize(12 * MIB, now).is_ok() == (share.backoff.delay().is_none())));
        assert!(shares.start(4).resize(25 * MIB, now).is_err(), "it is promised");
        assert!(third.is_due(now) && third.resize(40 * MIB, now).is_ok());
        assert_eq!(ended(&mut first, now), (0, None), "nobody gives way to a user with more");
    }

    #[test]
    fn user_with_most_keeps_as_much_as_the_other_gets() {
        let shares = Shares::default();
        let mut first = fill(&shares, 1, 48 * MIB);
        let mut second = fill(&shares, 2, 48 * MIB);
        assert_eq!((first.len(), second.len()), (2, 1));
        assert!(second[0].resize(60 * MIB, NOW).is_err());
        assert_eq!(ended(&mut first, NOW), (0, None));
    }

    #[test]
    fn promise_lapses() {
        let shares = Shares::default();
        let mut first = fill(&shares, 1, 12 * MIB);
        let _second = fill(&shares, 2, 12 * MIB);
        let mut third = shares.start(3);
        for now in [NOW, NOW + PROMISED] {
            assert!(third.resize(40 * MIB, now).is_err());
            assert!(shares.start(4).resize(25 * MIB, now).is_err());
            ended(&mut first, now);
        }
        let later = NOW + 2 * PROMISED;
        assert!(first.iter_mut().any(|share| share.bytes() == 0 && share.resize(12 * MIB, later).is_ok()));
    }

    proptest! {
        #[test]
        fn shares_keep_to_the_limits_and_are_freed(steps in prop::collection::vec((0..24_usize, 0..120_usize), 1..200)) {
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

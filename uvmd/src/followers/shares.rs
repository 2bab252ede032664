//! Shares of the memory of all followers: each user has a quota, and a part is a reserve for users with
//! little. A follower without a share is dropped, and its process is followed anew after a while.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{backoff::Backoff, lock};

/// Limits of what followers hold between calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes of all followers. A quarter of them is a reserve for users with little.
    pub(super) node_bytes: usize,
    /// Bytes of a user's followers.
    pub(super) user_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { node_bytes: 128 << 20, user_bytes: 96 << 20 }
    }
}

/// Memory of all followers.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares(Arc<Mutex<Held>>);

/// What the followers of users hold.
#[derive(Debug, Default)]
struct Held {
    limits: Limits,
    of_users: BTreeMap<u32, usize>,
}

/// Share of a follower, which ends on drop.
#[derive(Debug)]
pub(super) struct Share {
    shares: Shares,
    user: u32,
    bytes: usize,
    backoff: Backoff,
}

impl Shares {
    /// Nobody holds anything yet.
    #[cfg(test)]
    pub(super) fn new(limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(Held { limits, of_users: BTreeMap::new() })))
    }

    /// Empty share of a follower of a process of this user.
    pub(super) fn start(&self, user: u32) -> Share {
        Share { shares: self.clone(), user, bytes: 0, backoff: Backoff::default() }
    }

    /// Bytes of all followers.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        lock(&self.0).of_users.values().sum()
    }
}

impl Share {
    /// Whether enough time has passed since it was refused, if it was.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.backoff.delay().is_none() || self.backoff.is_due(now)
    }

    /// Changes it to this size. It shrinks only if less than half of it is needed, as the memory of a follower
    /// goes up and down.
    ///
    /// # Errors
    /// If a limit is reached, with who has the most of it: the share is empty then.
    pub(super) fn resize(&mut self, bytes: usize, now: Duration) -> Result<(), String> {
        if (self.bytes / 2..=self.bytes).contains(&bytes) {
            return Ok(());
        }
        let resized = lock(&self.shares.0).resize(self.user, self.bytes, bytes);
        let Err(reason) = resized else {
            self.bytes = bytes;
            return Ok(());
        };
        self.end();
        self.backoff.refuse(true, now);
        let delay = self.backoff.delay().unwrap_or_default();
        Err(format!("{reason}; the process is followed anew after {} s", delay.as_secs()))
    }

    /// Forgets refusals: the follower has come as far as to a plan or a reason for none.
    pub(super) fn settle(&mut self) {
        self.backoff = Backoff::default();
    }

    /// Makes it empty.
    pub(super) fn end(&mut self) {
        lock(&self.shares.0).free(self.user, self.bytes);
        self.bytes = 0;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.end();
    }
}

impl Held {
    fn of(&self, user: u32) -> usize {
        self.of_users.get(&user).copied().unwrap_or(0)
    }

    fn free(&mut self, user: u32, bytes: usize) {
        if let Some(held) = self.of_users.get_mut(&user) {
            *held = held.saturating_sub(bytes);
        }
        self.of_users.retain(|_, held| *held > 0);
    }

    /// Resizes a share of a user, within the limits.
    fn resize(&mut self, user: u32, from: usize, to: usize) -> Result<(), String> {
        let Limits { node_bytes, user_bytes } = self.limits;
        let own = self.of(user).saturating_sub(from).saturating_add(to);
        let others: usize = self.of_users.iter().filter(|(of, _)| **of != user).map(|(_, held)| held).sum();
        let reserve = if own <= user_bytes / 4 { 0 } else { node_bytes / 4 };
        if to > from && own > user_bytes {
            return Err(reason("the quota of the process's user", user, self.of(user), user_bytes));
        }
        if to > from && own.saturating_add(others) > node_bytes - reserve {
            let most = self.of_users.iter().max_by_key(|(_, held)| **held);
            let (most, held) = most.map_or((user, 0), |(user, held)| (*user, *held));
            return Err(reason("the limit of the node", most, held, node_bytes));
        }
        self.free(user, from);
        if to > 0 {
            *self.of_users.entry(user).or_insert(0) += to;
        }
        Ok(())
    }
}

fn reason(limit: &str, user: u32, held: usize, max: usize) -> String {
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    format!("memory for following calls: {limit} is reached: user {user} has {} of {} MiB", mib(held), mib(max))
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
        assert_eq!((second.len(), shares.bytes()), (4, 115 * MIB));
        let third = fill(&shares, 3, 5 * MIB);
        assert_eq!((third.len(), shares.bytes()), (2, 125 * MIB), "of the reserve");
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
        assert_eq!(
            shares.start(3).resize(9 * MIB, NOW),
            Err("memory for following calls: the limit of the node is reached: user 1 has 96 of 128 MiB; \
                 the process is followed anew after 10 s"
                .to_owned())
        );
        assert_eq!(shares.start(3).resize(8 * MIB, NOW), Ok(()));
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

    proptest! {
        #[test]
        fn shares_keep_to_the_limits_and_are_freed(steps in prop::collection::vec((0..24_usize, 0..120_usize), 1..200)) {
            let shares = Shares::default();
            let mut all: Vec<Share> = (0..24).map(|at| shares.start(at % 5)).collect();
            for (at, mib) in steps {
                let _ = all[at].resize(mib * MIB, NOW);
                let held = lock(&shares.0).of_users.clone();
                prop_assert!(held.values().sum::<usize>() <= 128 * MIB);
                prop_assert!(held.values().all(|bytes| *bytes <= 96 * MIB));
                prop_assert_eq!(held.values().sum::<usize>(), all.iter().map(|share| share.bytes).sum::<usize>());
            }
            drop(all);
            prop_assert_eq!(shares.bytes(), 0);
        }
    }
}

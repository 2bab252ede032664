//! Turns of requests that wait for the verification of their password: one at a time, within the
//! processor time that uvmd spends for a peer and for all.
//!
//! The next turn goes to a peer without a recent failure, else to the one whose last failure is the
//! oldest. Among the requests of that peer, it goes to the credentials that came first. A request
//! that timed out keeps its position for the next one with the same credentials: a client that
//! repeats its password is verified before those who try one after another, also at one address.
//!
//! Each request waits on a connection, and takes its place from others. Few wait therefore: beyond
//! their maximum, the one whose turn would be the last waits no more.

use std::{collections::HashMap, mem, time::Duration};

use sys::cpu_budget::{Account, Allowance};

use super::users::Digest;
use crate::peers::PeerKey;

/// Half of a processor for all peers.
const OF_ALL: Allowance = Allowance { part: 2, burst: Duration::ZERO, credit_part: None };
/// A fifth of a processor for a peer.
const OF_PEER: Allowance = Allowance { part: 5, burst: Duration::ZERO, credit_part: None };
/// Time for which a failure of a peer counts.
const RECENT: Duration = Duration::from_mins(5);
/// Maximum of peers that are known. Beyond it, the one whose verification is the oldest is
/// forgotten.
const PEERS_MAX: usize = 1024;
/// Maximum of positions that are kept. At each half of it, those of the half before are forgotten.
const KEPT_MAX: usize = 32_768;
/// Maximum of requests of a peer that wait: half of the places of an address.
const WAITING_OF_PEER_MAX: usize = 8;
/// Maximum of requests that wait.
const WAITING_MAX: usize = 16;

/// Turns; see the module's documentation. Times are of one monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: Vec<Waiting>,
    /// Whether a verification runs.
    is_taken: bool,
    /// Processor time of all verifications.
    spent: Account,
    peers: HashMap<PeerKey, History>,
    kept: Kept,
    next: Number,
}

/// Number of a request that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u64);

#[derive(Debug)]
struct Waiting {
    number: Number,
    peer: PeerKey,
    digest: Digest,
    /// Time at which the credentials came first.
    since: Duration,
}

/// Verifications of a peer.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    spent: Account,
    last: Duration,
    last_failure: Option<Duration>,
}

/// Turn of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    /// No request has a turn before this time, unless another one comes.
    At(Duration),
    /// Another request is first.
    Later,
    /// The request waits no more, as others came first.
    Never,
}

/// Positions of requests that timed out: times at which their credentials came first.
#[derive(Debug, Default)]
struct Kept {
    newer: HashMap<Digest, Duration>,
    older: HashMap<Digest, Duration>,
}

impl Turns {
    /// Adds a request; beyond the maximum, that request or another one waits no more.
    pub(super) fn arrive(&mut self, peer: PeerKey, digest: Digest, now: Duration) -> Number {
        let (number, since) = (self.next, self.kept.take(digest).unwrap_or(now));
        self.next = Number(number.0 + 1);
        self.waiting.push(Waiting { number, peer, digest, since });
        let is_over = self.waiting.iter().filter(|each| each.peer == peer).count() > WAITING_OF_PEER_MAX;
        if is_over || self.waiting.len() > WAITING_MAX {
            let candidates = self.waiting.iter().filter(|each| !is_over || each.peer == peer);
            let last = candidates.max_by_key(|each| self.order(each, now)).map(|last| last.number);
            if let Some(last) = last {
                self.leave(last);
            }
        }
        number
    }

    /// Removes a request that timed out, and keeps its position.
    pub(super) fn leave(&mut self, number: Number) {
        if let Some(waiting) = self.remove(number) {
            self.kept.keep(waiting.digest, waiting.since);
        }
    }

    pub(super) fn turn(&self, number: Number, now: Duration) -> Turn {
        if !self.waiting.iter().any(|each| each.number == number) {
            return Turn::Never;
        }
        if self.is_taken {
            return Turn::Later;
        }
        let ready_at = |each: &Waiting| self.spent.over_until(OF_ALL).max(self.paid_at(each.peer));
        let ready = self.waiting.iter().filter(|each| ready_at(each) <= now);
        match ready.min_by_key(|each| self.order(each, now)) {
            Some(first) if first.number == number => Turn::Now,
            Some(_) => Turn::Later,
            None => self.waiting.iter().map(ready_at).min().map_or(Turn::Later, Turn::At),
        }
    }

    /// Begins the verification of a request whose turn it is.
    pub(super) fn take(&mut self, number: Number) {
        self.remove(number);
        self.is_taken = true;
    }

    /// Ends a verification, which took this processor time.
    pub(super) fn end(&mut self, peer: PeerKey, is_verified: bool, cpu_time: Duration, now: Duration) {
        self.is_taken = false;
        let begun = now.saturating_sub(cpu_time);
        self.spent.charge(cpu_time, OF_ALL, begun);
        self.forget(peer, now);
        let history = self.peers.entry(peer).or_default();
        history.spent.charge(cpu_time, allowance(peer), begun);
        history.last = now;
        if !is_verified {
            history.last_failure = Some(now);
        }
    }

    /// Order of the turns: the least is first.
    fn order(&self, of: &Waiting, now: Duration) -> (Option<Duration>, Duration, Number) {
        (self.last_failure(of.peer, now), of.since, of.number)
    }

    fn remove(&mut self, number: Number) -> Option<Waiting> {
        let at = self.waiting.iter().position(|each| each.number == number)?;
        Some(self.waiting.swap_remove(at))
    }

    /// Time of the last wrong password of a peer, if it is recent.
    fn last_failure(&self, peer: PeerKey, now: Duration) -> Option<Duration> {
        self.peers.get(&peer)?.last_failure.filter(|at| now < *at + RECENT)
    }

    fn paid_at(&self, peer: PeerKey) -> Duration {
        self.peers.get(&peer).map_or(Duration::ZERO, |history| history.spent.over_until(allowance(peer)))
    }

    /// Forgets peers whose history is of no consequence any more, and one if there is no room for
    /// this one.
    fn forget(&mut self, newest: PeerKey, now: Duration) {
        self.peers.retain(|_, history| now < history.last + RECENT);
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&newest) {
            let oldest = self.peers.iter().min_by_key(|(_, history)| history.last).map(|(peer, _)| *peer);
            oldest.map(|oldest| self.peers.remove(&oldest));
        }
    }
}

impl Kept {
    fn keep(&mut self, digest: Digest, since: Duration) {
        if self.newer.len() >= KEPT_MAX / 2 {
            self.older = mem::take(&mut self.newer);
        }
        self.newer.insert(digest, since);
    }

    fn take(&mut self, digest: Digest) -> Option<Duration> {
        let (newer, older) = (self.newer.remove(&digest), self.older.remove(&digest));
        newer.or(older)
    }
}

/// Share of a peer: that of all for the users of this machine together.
fn allowance(peer: PeerKey) -> Allowance {
    if peer == PeerKey::Loopback { OF_ALL } else { OF_PEER }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn digest(text: &str) -> Digest {
        Digest::of_test(text)
    }

    #[test]
    fn histories_and_positions_are_limited_in_number() {
        let mut turns = Turns::default();
        for uid in 0..1200 {
            let number = turns.arrive(PeerKey::User(uid), digest("x"), SECOND);
            turns.take(number);
            turns.end(PeerKey::User(uid), false, Duration::ZERO, SECOND + Duration::from_micros(uid.into()));
        }
        assert_eq!((turns.peers.len(), turns.waiting.len()), (PEERS_MAX, 0));
        let has_failed = |uid| turns.last_failure(PeerKey::User(uid), 2 * SECOND).is_some();
        assert!(has_failed(1199) && has_failed(1200 - 1024) && !has_failed(0), "the oldest are forgotten");
        turns.end(PeerKey::User(0), true, SECOND, 2 * SECOND + RECENT);
        assert_eq!(turns.peers.len(), 1, "failures count for a while");

        let mut kept = Kept::default();
        let numbered = |at: usize| digest(&at.to_string());
        for at in 0..2 * KEPT_MAX {
            kept.keep(numbered(at), SECOND);
        }
        assert!(kept.newer.len() + kept.older.len() <= KEPT_MAX);
        let recent = kept.take(numbered(2 * KEPT_MAX - KEPT_MAX / 2));
        assert_eq!((kept.take(numbered(0)), recent), (None, Some(SECOND)));
        assert_eq!(kept.take(numbered(2 * KEPT_MAX - KEPT_MAX / 2)), None, "it was taken");
    }

    #[test]
    fn few_requests_wait_and_the_last_in_order_waits_no_more() {
        let mut turns = Turns::default();
        let numbered = |at: u32| digest(&at.to_string());
        let (flooding, failed) = (PeerKey::User(1), PeerKey::User(2));
        turns.end(failed, false, Duration::ZERO, SECOND);
        let of_failed: Vec<_> = (0..8).map(|at| turns.arrive(failed, numbered(at), 2 * SECOND)).collect();
        let flood: Vec<_> = (8..40).map(|at| turns.arrive(flooding, numbered(at), 3 * SECOND)).collect();
        let is_rejected = |turns: &Turns, number| turns.turn(number, 3 * SECOND) == Turn::Never;
        assert_eq!(flood.iter().filter(|number| is_rejected(&turns, **number)).count(), 24, "8 wait");
        assert!(of_failed.iter().all(|number| !is_rejected(&turns, *number)), "a peer rejects only its own");

        let other = turns.arrive(PeerKey::User(3), numbered(40), 3 * SECOND);
        assert_eq!(turns.waiting.len(), WAITING_MAX);
        assert!(!is_rejected(&turns, other) && is_rejected(&turns, of_failed[7]), "those with a failure are last");

        let repeated = turns.arrive(flooding, numbered(39), 4 * SECOND);
        assert!(is_rejected(&turns, repeated));
        for number in &flood[..8] {
            turns.take(*number);
        }
        let fresh: Vec<_> = (50..58).map(|at| turns.arrive(flooding, numbered(at), 4 * SECOND)).collect();
        let repeated = turns.arrive(flooding, numbered(39), 5 * SECOND);
        assert!(!is_rejected(&turns, repeated) && is_rejected(&turns, fresh[7]), "it has kept its position");
    }

    #[test]
    fn turn_goes_to_the_peer_without_a_failure_and_then_to_the_oldest_failure() {
        let mut turns = Turns::default();
        for (uid, at) in [(1, 2), (2, 1)] {
            turns.end(PeerKey::User(uid), false, Duration::ZERO, at * SECOND);
        }
        let numbers = [1, 2, 3].map(|uid| turns.arrive(PeerKey::User(uid), digest("x"), 3 * SECOND));
        let mut order = Vec::new();
        for _ in numbers {
            let first = numbers.iter().position(|number| turns.turn(*number, 4 * SECOND) == Turn::Now).unwrap();
            turns.remove(numbers[first]);
            order.push(first + 1);
        }
        assert_eq!(order, [3, 2, 1]);
    }

    #[test]
    fn nobody_has_a_turn_during_a_verification_and_until_it_is_paid_for() {
        let (mut turns, peer) = (Turns::default(), PeerKey::User(1));
        let [first, same, other] =
            [peer, peer, PeerKey::User(2)].map(|peer| turns.arrive(peer, digest("x"), Duration::ZERO));
        assert_eq!((turns.turn(first, SECOND), turns.turn(same, SECOND)), (Turn::Now, Turn::Later));
        turns.take(first);
        assert_eq!(turns.turn(other, SECOND), Turn::Later);
        turns.end(peer, false, SECOND, 2 * SECOND);
        assert_eq!(turns.turn(other, 2 * SECOND), Turn::At(3 * SECOND), "half of a processor for all");
        assert_eq!(turns.turn(other, 3 * SECOND), Turn::Now);
        turns.leave(other);
        assert_eq!(turns.turn(same, 3 * SECOND), Turn::At(6 * SECOND), "a fifth for a peer");
        assert_eq!(turns.turn(same, 6 * SECOND), Turn::Now);
    }
}

//! Turns of requests that wait for the verification of their password: one at a time, within the
//! processor time that uvmd spends for a peer and for all.
//!
//! The next turn goes to a peer without a recent failure, else to the one whose last failure is the
//! oldest. Among the requests of that peer, it goes to the credentials that came first. A request
//! that waited in vain keeps its position for the next one with the same credentials: a client that
//! repeats its password is verified before those who try one after another, also at one address.
//!
//! Each request waits on a connection, which bounds their number.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use sys::cpu_budget::{Account, Allowance};

use super::users::Digest;
use crate::peers::PeerKey;

/// Half of a processor for all peers.
const OF_ALL: Allowance = Allowance { part: 2, burst: Duration::ZERO };
/// A fifth of a processor for a peer.
const OF_PEER: Allowance = Allowance { part: 5, burst: Duration::ZERO };
/// Time for which a failure of a peer counts.
const RECENT: Duration = Duration::from_mins(5);
/// Maximum of peers that are known. Beyond it, the one whose verification is the oldest is
/// forgotten.
const PEERS_MAX: usize = 1024;
/// Maximum of positions that are kept. Beyond it, the one that was kept first is forgotten.
const KEPT_MAX: usize = 1024;

/// Turns; see the module's documentation. Times are of one monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: Vec<Waiting>,
    /// Whether a verification runs.
    is_taken: bool,
    /// Processor time of all verifications.
    spent: Account,
    peers: HashMap<PeerKey, History>,
    /// Positions of requests that waited in vain.
    kept: VecDeque<(Digest, Duration)>,
    next: Number,
}

/// Number of a request that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u64);

#[derive(Debug)]
struct Waiting {
    number: Number,
    peer: PeerKey,
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
}

impl Turns {
    pub(super) fn arrive(&mut self, peer: PeerKey, digest: Digest, now: Duration) -> Number {
        let kept = self.kept.iter().position(|(kept, _)| *kept == digest).and_then(|at| self.kept.remove(at));
        let (number, since) = (self.next, kept.map_or(now, |(_, since)| since));
        self.next = Number(number.0 + 1);
        self.waiting.push(Waiting { number, peer, since });
        number
    }

    /// Removes a request that waits.
    pub(super) fn leave(&mut self, number: Number) {
        self.waiting.retain(|each| each.number != number);
    }

    /// Keeps the position of a request that leaves after it waited in vain.
    pub(super) fn keep(&mut self, number: Number, digest: Digest) {
        let Some(waiting) = self.waiting.iter().find(|each| each.number == number) else { return };
        self.kept.push_back((digest, waiting.since));
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
    }

    pub(super) fn turn(&self, number: Number, now: Duration) -> Turn {
        if self.is_taken {
            return Turn::Later;
        }
        let ready_at = |each: &Waiting| self.spent.over_until(OF_ALL).max(self.paid_at(each.peer));
        let ready = self.waiting.iter().filter(|each| ready_at(each) <= now);
        match ready.min_by_key(|each| (self.last_failure(each.peer, now), each.since, each.number)) {
            Some(first) if first.number == number => Turn::Now,
            Some(_) => Turn::Later,
            None => self.waiting.iter().map(ready_at).min().map_or(Turn::Later, Turn::At),
        }
    }

    /// Begins the verification of a request whose turn it is.
    pub(super) fn take(&mut self, number: Number) {
        self.leave(number);
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

    /// Whether a password of the peer was wrong recently.
    pub(super) fn has_failed(&self, peer: PeerKey, now: Duration) -> bool {
        self.last_failure(peer, now).is_some()
    }

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
            let number = turns.arrive(PeerKey::User(uid), digest(&uid.to_string()), SECOND);
            turns.keep(number, digest(&uid.to_string()));
            turns.take(number);
            turns.end(PeerKey::User(uid), false, Duration::ZERO, SECOND + Duration::from_micros(uid.into()));
        }
        assert_eq!((turns.peers.len(), turns.kept.len(), turns.waiting.len()), (PEERS_MAX, KEPT_MAX, 0));
        let has_failed = |uid| turns.has_failed(PeerKey::User(uid), 2 * SECOND);
        assert!(has_failed(1199) && has_failed(1200 - 1024) && !has_failed(0), "the oldest are forgotten");
        turns.end(PeerKey::User(0), true, SECOND, 2 * SECOND + RECENT);
        assert_eq!(turns.peers.len(), 1, "failures count for a while");
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
            turns.leave(numbers[first]);
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

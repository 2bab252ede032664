//! Requests that are refused, so many of each peer a minute; of the rest one line has the numbers. Else whoever guesses tokens, is misconfigured, or has
//! many addresses would push everything else out of the audit log.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use web::{Denial, Peer};

use super::{
    Audit,
    entry::{Change, DeniedPeer},
};

/// A peer has so many lines in so much time...
const LINES_MAX: u32 = 5;
const WINDOW: Duration = Duration::from_mins(1);
/// ...and all peers together so many.
const LINES_OF_ALL_MAX: u32 = 60;
/// Peers with a count of their own; those beyond share one.
const PEERS_MAX: usize = 256;
/// Peers that the line about the rest names.
const PEERS_NAMED_MAX: usize = 5;

/// Writes them down. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Denials {
    audit: Audit,
    limiter: Arc<Mutex<Limiter>>,
}

impl Denials {
    pub(crate) fn new(audit: Audit) -> Self {
        Self { audit, limiter: Arc::default() }
    }

    /// Waits for nothing.
    pub(crate) fn tell(&self, refusal: Denial) {
        let Denial { requester, method, path, status } = refusal;
        let now = Instant::now();
        self.sum_up(now);
        if self.limiter().admit(Sender::of(requester.peer), now) {
            self.audit.write(Some(&requester), &Change::RequestDenied { method, path, status });
        }
    }

    /// Refusals without a line in the last complete minute.
    pub(crate) fn sum_up(&self, now: Instant) {
        let rest = self.limiter().take_over(now);
        if let Some(rest) = rest {
            self.audit.write(None, &rest.into_line());
        }
    }

    /// The same of the current minute, when the service stops.
    pub(crate) fn sum_up_all(&self) {
        self.sum_up(Instant::now() + WINDOW);
    }

    fn limiter(&self) -> MutexGuard<'_, Limiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whom refusals are counted for: a user, or an address. A network that one client has whole counts as one, and so does this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sender {
    User(u32),
    Address(IpAddr),
    Others,
}

impl Sender {
    fn of(peer: Peer) -> Self {
        match peer {
            Peer::Local { uid, .. } => Self::User(uid),
            Peer::Remote(address) if address.ip().to_canonical().is_loopback() => {
                Self::Address(Ipv4Addr::LOCALHOST.into())
            }
            Peer::Remote(address) => match address.ip().to_canonical() {
                IpAddr::V6(ip) => Self::Address(IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !0 << 64))),
                ip @ IpAddr::V4(_) => Self::Address(ip),
            },
            Peer::Unknown => Self::Others,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    lines: u32,
    suppressed: u64,
}

/// Denials that were not written down.
#[derive(Debug, PartialEq, Eq)]
struct Rest {
    suppressed: u64,
    /// Peers with the most refusals, the most first.
    top: Vec<(Sender, u64)>,
}

impl Rest {
    fn into_line(self) -> Change {
        let of_top: u64 = self.top.iter().map(|(_, suppressed)| suppressed).sum();
        let peers = self.top.into_iter().map(|(sender, suppressed)| {
            let (uid, address) = match sender {
                Sender::User(uid) => (Some(uid), None),
                Sender::Address(address) => (None, Some(address.to_string())),
                Sender::Others => (None, None),
            };
            DeniedPeer { uid, address, suppressed }
        });
        Change::RequestsDenied {
            suppressed: self.suppressed,
            peers: peers.collect(),
            suppressed_of_others: self.suppressed.saturating_sub(of_top),
        }
    }
}

/// Refusals minute by minute. Pure: the time is an argument.
#[derive(Debug, Default)]
struct Limiter {
    /// Begin of the minute; `None` before its first refusal.
    begin: Option<Instant>,
    counts: BTreeMap<Sender, Count>,
    /// Lines of all peers.
    lines: u32,
}

impl Limiter {
    /// Whether there may be a line; else it is counted. The minute before was taken away.
    fn admit(&mut self, sender: Sender, now: Instant) -> bool {
        self.begin.get_or_insert(now);
        let has_room = self.counts.len() < PEERS_MAX || self.counts.contains_key(&sender);
        let sender = if has_room { sender } else { Sender::Others };
        let count = self.counts.entry(sender).or_default();
        if count.lines >= LINES_MAX || self.lines >= LINES_OF_ALL_MAX {
            count.suppressed += 1;
            return false;
        }
        count.lines += 1;
        self.lines += 1;
        true
    }

    /// Forgets the minute, if it is over, and tells what was suppressed in it, if anything was.
    fn take_over(&mut self, now: Instant) -> Option<Rest> {
        self.begin.filter(|begin| now.saturating_duration_since(*begin) >= WINDOW)?;
        let Self { counts, .. } = std::mem::take(self);
        let suppressed = counts.values().map(|count| count.suppressed).sum();
        let named = counts.into_iter().filter(|(sender, count)| *sender != Sender::Others && count.suppressed > 0);
        let mut top: Vec<(Sender, u64)> = named.map(|(sender, count)| (sender, count.suppressed)).collect();
        top.sort_by_key(|(_, suppressed)| std::cmp::Reverse(*suppressed));
        top.truncate(PEERS_NAMED_MAX);
        (suppressed > 0).then_some(Rest { suppressed, top })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32) -> Sender {
        Sender::of(Peer::Local { uid, pid: Some(1), grant: None })
    }

    fn remote(address: &str) -> Sender {
        Sender::of(Peer::Remote(address.parse().unwrap()))
    }

    #[test]
    fn of_each_peer_the_first_are_written_and_of_the_rest_the_number_once_its_time_is_over() {
        let (mut limiter, start) = (Limiter::default(), Instant::now());
        let written = (0..100).filter(|_| limiter.admit(user(7), start)).count();
        assert_eq!(written, 5);
        assert!(limiter.admit(user(8), start), "others have lines of their own");
        assert_eq!(limiter.take_over(start + Duration::from_secs(59)), None);
        let rest = Rest { suppressed: 95, top: vec![(user(7), 95)] };
        assert_eq!(limiter.take_over(start + WINDOW), Some(rest));
        assert!(limiter.admit(user(7), start + WINDOW));
        assert_eq!(limiter.take_over(start + 3 * WINDOW), None, "of these none was left out");
    }

    #[test]
    fn one_client_has_one_count_whichever_port_or_address_of_its_network_it_uses() {
        assert_eq!(remote("192.0.2.1:1"), remote("192.0.2.1:2"));
        assert_ne!(remote("192.0.2.1:1"), remote("192.0.2.2:1"));
        assert_eq!(remote("[2001:db8::1]:1"), remote("[2001:db8::ffff:1]:2"));
        assert_ne!(remote("[2001:db8::1]:1"), remote("[2001:db8:0:1::1]:1"));
        for loopback in ["127.8.9.10:1", "[::1]:1", "[::ffff:127.0.0.2]:1"] {
            assert_eq!(remote(loopback), remote("127.0.0.1:1"), "{loopback}");
        }
    }

    #[test]
    fn many_peers_take_no_more_memory_or_lines_than_there_is_room_for() {
        let (mut limiter, start) = (Limiter::default(), Instant::now());
        let written = (0..100_000).filter(|uid| limiter.admit(user(*uid), start)).count();
        assert_eq!((written, limiter.counts.len()), (60, PEERS_MAX + 1));
        assert!(!limiter.admit(user(100), start));
        let rest = limiter.take_over(start + WINDOW).unwrap();
        assert_eq!((rest.suppressed, limiter.counts.len()), (100_000 - 60 + 1, 0));
        assert_eq!((rest.top.len(), rest.top[0]), (5, (user(100), 2)));
        let Change::RequestsDenied { suppressed, peers, suppressed_of_others } = rest.into_line() else {
            panic!("one line has all of them");
        };
        assert_eq!((suppressed, peers.len(), suppressed_of_others), (99_941, 5, 99_941 - 6));
        assert!(limiter.admit(user(1), start + WINDOW));
    }
}

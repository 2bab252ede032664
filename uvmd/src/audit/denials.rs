//! Lines of denied requests, limited per peer and minute; a summary line counts the rest. Otherwise
//! a client that guesses tokens, is misconfigured, or has many addresses would displace everything
//! else in the audit log.

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

/// Maximum of lines per peer and window.
const LINES_MAX: u32 = 5;
const WINDOW: Duration = Duration::from_mins(1);
/// Maximum of lines of all peers per window.
const LINES_OF_ALL_MAX: u32 = 60;
/// Maximum of peers with separate counts; further ones share one.
const PEERS_MAX: usize = 256;
/// Maximum of peers named in the summary line.
const PEERS_NAMED_MAX: usize = 5;

/// Writer of denials. Cheap to clone; all clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct Denials {
    audit: Audit,
    limiter: Arc<Mutex<Limiter>>,
}

impl Denials {
    pub(crate) fn new(audit: Audit) -> Self {
        Self { audit, limiter: Arc::default() }
    }

    /// Records a denial, without waiting.
    pub(crate) fn record(&self, refusal: Denial) {
        let Denial { requester, method, path, status } = refusal;
        let now = Instant::now();
        self.sum_up(now);
        if self.limiter().admit(Sender::of(requester.peer), now) {
            self.audit.write(Some(&requester), &Change::RequestDenied { method, path, status });
        }
    }

    /// Writes the summary of the last complete minute.
    pub(crate) fn sum_up(&self, now: Instant) {
        let suppressed = self.limiter().take_expired(now);
        if let Some(suppressed) = suppressed {
            self.audit.write(None, &suppressed.into_line());
        }
    }

    /// Writes the summary of the current minute, when the service stops.
    pub(crate) fn sum_up_all(&self) {
        self.sum_up(Instant::now() + WINDOW);
    }

    fn limiter(&self) -> MutexGuard<'_, Limiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Peer as counted: a user, or an address. A network that belongs to one client counts as one, and
/// so does this machine.
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

/// Denials without a line.
#[derive(Debug, PartialEq, Eq)]
struct Suppressed {
    suppressed: u64,
    /// Peers with the most denials, in descending order.
    top: Vec<(Sender, u64)>,
}

impl Suppressed {
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

/// Counts of denials per minute. Pure: time is an argument.
#[derive(Debug, Default)]
struct Limiter {
    /// Start of the minute; `None` before its first denial.
    begin: Option<Instant>,
    counts: BTreeMap<Sender, Count>,
    /// Lines written for all peers.
    lines: u32,
}

impl Limiter {
    /// Whether a line may be written; otherwise the denial is counted. The previous minute was
    /// taken before.
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

    /// Takes the counts of a minute that is over; `None` if nothing was suppressed in it.
    fn take_expired(&mut self, now: Instant) -> Option<Suppressed> {
        self.begin.filter(|begin| now.saturating_duration_since(*begin) >= WINDOW)?;
        let Self { counts, .. } = std::mem::take(self);
        let suppressed = counts.values().map(|count| count.suppressed).sum();
        let named = counts.into_iter().filter(|(sender, count)| *sender != Sender::Others && count.suppressed > 0);
        let mut top: Vec<(Sender, u64)> = named.map(|(sender, count)| (sender, count.suppressed)).collect();
        top.sort_by_key(|(_, suppressed)| std::cmp::Reverse(*suppressed));
        top.truncate(PEERS_NAMED_MAX);
        (suppressed > 0).then_some(Suppressed { suppressed, top })
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
    fn first_denials_of_a_peer_are_written_and_the_rest_summarized() {
        let (mut limiter, start) = (Limiter::default(), Instant::now());
        let written = (0..100).filter(|_| limiter.admit(user(7), start)).count();
        assert_eq!(written, 5);
        assert!(limiter.admit(user(8), start), "others have lines of their own");
        assert_eq!(limiter.take_expired(start + Duration::from_secs(59)), None);
        let suppressed = Suppressed { suppressed: 95, top: vec![(user(7), 95)] };
        assert_eq!(limiter.take_expired(start + WINDOW), Some(suppressed));
        assert!(limiter.admit(user(7), start + WINDOW));
        assert_eq!(limiter.take_expired(start + 3 * WINDOW), None, "of these none was left out");
    }

    #[test]
    fn one_client_has_one_count_for_all_ports_and_addresses() {
        assert_eq!(remote("192.0.2.1:1"), remote("192.0.2.1:2"));
        assert_ne!(remote("192.0.2.1:1"), remote("192.0.2.2:1"));
        assert_eq!(remote("[2001:db8::1]:1"), remote("[2001:db8::ffff:1]:2"));
        assert_ne!(remote("[2001:db8::1]:1"), remote("[2001:db8:0:1::1]:1"));
        for loopback in ["127.8.9.10:1", "[::1]:1", "[::ffff:127.0.0.2]:1"] {
            assert_eq!(remote(loopback), remote("127.0.0.1:1"), "{loopback}");
        }
    }

    #[test]
    fn many_peers_take_bounded_memory_and_lines() {
        let (mut limiter, start) = (Limiter::default(), Instant::now());
        let written = (0..100_000).filter(|uid| limiter.admit(user(*uid), start)).count();
        assert_eq!((written, limiter.counts.len()), (60, PEERS_MAX + 1));
        assert!(!limiter.admit(user(100), start));
        let suppressed = limiter.take_expired(start + WINDOW).unwrap();
        assert_eq!((suppressed.suppressed, limiter.counts.len()), (100_000 - 60 + 1, 0));
        assert_eq!((suppressed.top.len(), suppressed.top[0]), (5, (user(100), 2)));
        let Change::RequestsDenied { suppressed, peers, suppressed_of_others } = suppressed.into_line() else {
            panic!("one line has all of them");
        };
        assert_eq!((suppressed, peers.len(), suppressed_of_others), (99_941, 5, 99_941 - 6));
        assert!(limiter.admit(user(1), start + WINDOW));
    }
}

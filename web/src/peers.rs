//! Peers, the units to which limits apply.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{extract::FromRequestParts, http::request::Parts};

use crate::auth::{Grant, Peer};

/// Peer: a user of this machine on the Unix socket, an address on the network, or all of this
/// machine over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PeerKey {
    User(u32),
    /// User on the socket with write permission. Limits of all peers together do not apply; its own do.
    Operator(u32),
    /// All clients over TCP from this machine, since any of its users has as many of its addresses
    /// as they like.
    Loopback,
    Address(IpAddr),
    /// An unidentified client.
    Unidentified,
}

impl From<Peer> for PeerKey {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::Local { uid: 0, .. } => Self::Operator(0),
            Peer::Local { uid, grant: Some(Grant::Write), .. } => Self::Operator(uid),
            Peer::Local { uid, .. } => Self::User(uid),
            Peer::Remote(address) => Self::of_address(address.ip().to_canonical()),
            Peer::Unknown => Self::Unidentified,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PeerKey {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Peer>().copied().unwrap_or_default().into())
    }
}

impl PeerKey {
    fn of_address(address: IpAddr) -> Self {
        match address {
            _ if address.is_loopback() => Self::Loopback,
            IpAddr::V4(_) => Self::Address(address),
            // A client with one address usually has all of its /64 network.
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::Address(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
        }
    }

    /// Whether this is a user with write permission on the socket.
    pub(crate) const fn is_operator(self) -> bool {
        matches!(self, Self::Operator(_))
    }

    /// Whether this is no user on the socket.
    pub(crate) const fn is_over_tcp(self) -> bool {
        matches!(self, Self::Loopback | Self::Address(_) | Self::Unidentified)
    }

    /// Share of `all`, if a peer's is `of_peer`: three quarters for all local users over TCP
    /// together.
    pub(crate) fn share(self, all: usize, of_peer: usize) -> usize {
        if self == Self::Loopback { of_peer.max(all - all / 4) } else { of_peer }
    }
}

/// Limited resource, with a maximum for all and one for each peer.
#[derive(Clone, Debug)]
pub(crate) struct Shares(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max: usize,
    max_of_peer: usize,
    held: Mutex<HashMap<PeerKey, usize>>,
    rejected: AtomicU64,
}

/// One unit of the resource, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    shares: Shares,
    of: PeerKey,
}

impl Shares {
    pub(crate) fn new(max: usize, max_of_peer: usize) -> Self {
        Self(Arc::new(Shared { max, max_of_peer, held: Mutex::default(), rejected: AtomicU64::new(0) }))
    }

    /// Takes a unit for this peer, unless a maximum is reached.
    pub(crate) fn take(&self, of: PeerKey) -> Option<Held> {
        let mut held = self.held();
        let all: usize = held.values().sum();
        let of_peer = held.get(&of).copied().unwrap_or(0);
        if of_peer >= of.share(self.0.max, self.0.max_of_peer) || (all >= self.0.max && !of.is_operator()) {
            self.0.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        held.insert(of, of_peer + 1);
        drop(held);
        Some(Held { shares: self.clone(), of })
    }

    /// Number of rejected requests for a unit.
    pub(crate) fn rejected(&self) -> u64 {
        self.0.rejected.load(Ordering::Relaxed)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<PeerKey, usize>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.shares.held();
        if let Some(of_peer) = held.get_mut(&self.of) {
            *of_peer -= 1;
            if *of_peer == 0 {
                held.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(address: &str) -> PeerKey {
        Peer::Remote(address.parse().unwrap()).into()
    }

    #[test]
    fn a_peer_is_an_ipv4_address_or_an_ipv6_network() {
        assert_eq!(remote("10.0.0.1:80"), remote("10.0.0.1:81"));
        assert_eq!(remote("10.0.0.1:80"), remote("[::ffff:10.0.0.1]:80"));
        assert_ne!(remote("10.0.0.1:80"), remote("10.0.0.2:80"));
        assert_eq!(remote("[fd00:1:2:3::1]:80"), remote("[fd00:1:2:3:4::9]:80"));
        assert_ne!(remote("[fd00:1:2:3::1]:80"), remote("[fd00:1:2:4::1]:80"));
        for loopback in ["127.0.0.1:80", "127.200.3.4:80", "[::1]:80", "[::ffff:127.0.0.9]:80"] {
            assert_eq!(remote(loopback), PeerKey::Loopback);
        }
        let local = |uid, grant| PeerKey::from(Peer::Local { uid, pid: None, grant });
        assert!(local(0, None).is_operator() && local(1, Some(Grant::Write)).is_operator());
        assert!(!local(1, None).is_operator() && !local(1, Some(Grant::Read)).is_operator());
        assert_ne!(local(1, None), local(2, None));
    }

    #[test]
    fn no_peer_exceeds_its_share_and_all_peers_do_not_exceed_the_total() {
        let shares = Shares::new(5, 2);
        let take = |uid| shares.take(PeerKey::User(uid));
        let held: Vec<_> = [1, 1, 2, 2].into_iter().map(|uid| take(uid).unwrap()).collect();
        assert!(take(1).is_none());
        let last = take(3).unwrap();
        assert!(take(4).is_none(), "the total is reached");
        assert!(shares.take(PeerKey::Operator(5)).is_some(), "operators have no limit by the total");
        drop(last);
        assert!(take(4).is_some());
        drop(held);
        assert!(shares.held().is_empty());
    }

    #[test]
    fn all_local_users_over_tcp_share_three_quarters() {
        assert_eq!((PeerKey::Loopback.share(64, 16), PeerKey::User(1).share(64, 16)), (48, 16));
        assert_eq!(PeerKey::Loopback.share(2, 16), 16);
        let shares = Shares::new(8, 2);
        let held: Vec<_> = (0..9).filter_map(|_| shares.take(PeerKey::Loopback)).collect();
        assert_eq!((held.len(), shares.rejected()), (6, 3));
    }
}

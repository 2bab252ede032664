//! Places of event streams, of which each peer has a share.
//!
//! If all are taken, a new stream displaces the oldest one of the peer with the most streams, if that
//! peer has at least two more. A part of them is for users on the socket alone: addresses are cheap.
//! Users with write permission have places of their own.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::oneshot;

use crate::{closed::Closed, connection_table::ConnectionTable, peers::PeerKey};

/// Maximum of event streams at once, of all peers and of one. Each stream has a place for
/// connections as well.
const MAX: usize = 32;
const OF_PEER_MAX: usize = 8;
/// Maximum of those over TCP.
const OVER_TCP_MAX: usize = 24;

/// Open event streams. Cheap to clone; all clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Streams(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// In the order of their begin.
    open: Mutex<Vec<Open>>,
    rejected: AtomicU64,
    table: Arc<ConnectionTable>,
}

#[derive(Debug)]
struct Open {
    peer: PeerKey,
    /// Dropped to end the stream for another one.
    place: oneshot::Sender<()>,
}

/// Place of an event stream, released when it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    streams: Streams,
    displaced: oneshot::Receiver<()>,
}

impl Streams {
    pub(crate) fn new(table: &Arc<ConnectionTable>) -> Self {
        let (open, rejected, table) = (Mutex::default(), AtomicU64::new(0), Arc::clone(table));
        Self(Arc::new(Shared { open, rejected, table }))
    }

    /// Takes a place for this peer, unless it has its share, or all are taken by peers with no more
    /// streams.
    pub(crate) fn take(&self, peer: PeerKey) -> Option<StreamPlace> {
        let mut open = self.open();
        let own = count(&open, peer);
        if own >= peer.share(MAX, OF_PEER_MAX) || !self.make_place(&mut open, peer, own) {
            self.0.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let (place, displaced) = oneshot::channel();
        open.push(Open { peer, place });
        Some(StreamPlace { streams: self.clone(), displaced })
    }

    /// Whether there is a place for this peer with its number of streams, maybe that of another one.
    fn make_place(&self, open: &mut Vec<Open>, peer: PeerKey, own: usize) -> bool {
        let is_common: fn(PeerKey) -> bool = |peer| !peer.is_operator();
        let number = |of: fn(PeerKey) -> bool| open.iter().filter(|each| of(each.peer)).count();
        if peer.is_over_tcp() && number(PeerKey::is_over_tcp) >= OVER_TCP_MAX {
            self.displace(open, own, PeerKey::is_over_tcp)
        } else {
            peer.is_operator() || number(is_common) < MAX || self.displace(open, own, is_common)
        }
    }

    /// Ends a stream of the peer of this kind with the most, for one of a peer with this number of
    /// them; false if none has more than that peer will have.
    fn displace(&self, open: &mut Vec<Open>, own: usize, is_of_kind: fn(PeerKey) -> bool) -> bool {
        let counts = open.iter().map(|each| if is_of_kind(each.peer) { count(open, each.peer) } else { 0 });
        let counts: Vec<_> = counts.collect();
        let most = counts.iter().copied().max().unwrap_or(0);
        let Some(first) = counts.iter().position(|count| *count == most && most > own + 1) else { return false };
        open.remove(first);
        self.0.table.count(Closed::StreamDisplaced);
        true
    }

    /// Number of open streams.
    pub(crate) fn count(&self) -> usize {
        self.open().len()
    }

    /// Number of rejected requests for a stream.
    pub(crate) fn rejected(&self) -> u64 {
        self.0.rejected.load(Ordering::Relaxed)
    }

    fn open(&self) -> MutexGuard<'_, Vec<Open>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamPlace {
    /// Waits until another stream has this place.
    pub(crate) async fn displaced(&mut self) {
        // The sender is dropped, and sends nothing.
        let _ = (&mut self.displaced).await;
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        self.displaced.close();
        open.retain(|each| !each.place.is_closed());
    }
}

fn count(open: &[Open], peer: PeerKey) -> usize {
    open.iter().filter(|each| each.peer == peer).count()
}

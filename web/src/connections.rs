//! Assignment of places to connections when there are more clients than places.
//!
//! A connection keeps its place for one request. If others wait, an idle connection is closed, the
//! longest idle first: one that has sent no request or a part of one, or does not accept its
//! response. If none is idle, one is closed after its next response. A peer has a share of the
//! places. A peer with its full share displaces only its own connections.
//!
//! A connection that has waited for a while gets a place of the reserve, for health checks and
//! metrics alone.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, atomic::AtomicUsize},
};

use tokio::{
    sync::Notify,
    task::{self, JoinSet},
    time::{self, Duration, Instant},
};

use crate::{
    auth::Peer,
    closed::Closed,
    connection::{Connection, PlaceKind},
    connection_table::ConnectionTable,
    peers::PeerKey,
};

/// Additional places for each user with write permission.
const OPERATOR_PLACES: usize = 8;
/// Additional places for health checks and metrics.
const RESERVE_PLACES: usize = 4;
/// Maximum of waiting connections of a peer, and of all. Beyond it, the peer's first one is
/// removed.
const WAITING_OF_PEER_MAX: usize = 64;
const WAITING_MAX: usize = 256;
/// Minimum interval between attempts, while connections close.
const RETRY_MIN: Duration = Duration::from_millis(5);

/// Limits of connections served at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) all: usize,
    pub(crate) of_peer: usize,
    /// Waiting time after which a connection may have a place of the reserve.
    pub(crate) reserve_after: Duration,
}

/// Connections that are served, and connections that wait for a place.
pub(crate) struct Connections<S> {
    places: Places,
    table: Arc<ConnectionTable>,
    tasks: JoinSet<()>,
    served: Vec<Arc<Connection>>,
    waiting: VecDeque<Waiting<S>>,
    /// Notified when a served connection may be displaced, or ended.
    place_released: Arc<Notify>,
}

/// Connection that waits for a place.
struct Waiting<S> {
    stream: S,
    peer: Peer,
    /// Time from which it may have a place of the reserve.
    reserve_at: Instant,
}

impl<S> Waiting<S> {
    fn key(&self) -> PeerKey {
        self.peer.into()
    }
}

impl<S> Connections<S> {
    /// Table of places, of which there is at least one.
    pub(crate) fn new(places: Places, table: Arc<ConnectionTable>) -> Self {
        Self {
            places: Places { all: places.all.max(1), of_peer: places.of_peer.max(1), ..places },
            table,
            tasks: JoinSet::new(),
            served: Vec::new(),
            waiting: VecDeque::new(),
            place_released: Arc::default(),
        }
    }

    /// Adds a connection to the queue for a place.
    pub(crate) fn arrive(&mut self, stream: S, peer: Peer) {
        let reserve_at = Instant::now() + self.places.reserve_after;
        self.waiting.push_back(Waiting { stream, peer, reserve_at });
        let of_peer = self.waiting_by_peer();
        let count = |key: PeerKey| of_peer.get(&key).copied().unwrap_or(0);
        let own = count(peer.into());
        let most = of_peer.values().max().copied().unwrap_or(0);
        let first = if own > WAITING_OF_PEER_MAX || (self.waiting.len() > WAITING_MAX && own == most) {
            self.waiting.iter().position(|each| each.key() == peer.into())
        } else if self.waiting.len() > WAITING_MAX {
            self.waiting.iter().position(|each| count(each.key()) == most)
        } else {
            None
        };
        if let Some(first) = first {
            self.waiting.remove(first);
            self.table.count(Closed::QueueFull);
        }
    }

    /// Serves connections for which there is a place, and displaces idle ones for the others.
    pub(crate) async fn assign_places<F>(&mut self, serve: impl Fn(S, Peer, Arc<Connection>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.admit(&serve);
        let displaceable = self.displaceable();
        if displaceable.is_empty() {
            return;
        }
        // If uvmd itself was delayed, a request may lie unread. Two turns before a connection is
        // closed: in the first, the kernel reports readable sockets; in the second, they are read.
        task::yield_now().await;
        task::yield_now().await;
        for (connection, at) in displaceable {
            if connection.displaceable_at() == Some(at) {
                connection.close(Closed::Displaced);
            }
        }
    }

    /// Waits for the next time to assign places.
    pub(crate) async fn changed(&mut self) {
        if self.waiting.is_empty() {
            return std::future::pending().await;
        }
        let next = self.next_attempt();
        let moment = async {
            match next {
                Some(at) => time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.place_released.notified() => {}
            () = moment => {}
        }
    }

    /// Waits for the end of all tasks.
    pub(crate) async fn ended(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    fn admit<F>(&mut self, serve: impl Fn(S, Peer, Arc<Connection>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while self.tasks.try_join_next().is_some() {}
        self.served.retain(|connection| !connection.is_ended());
        for waiting in std::mem::take(&mut self.waiting) {
            if self.has_free_place(waiting.key()) {
                self.start(waiting, PlaceKind::Regular, &serve);
            } else {
                self.waiting.push_back(waiting);
            }
        }
        while self.in_reserve().count() < RESERVE_PLACES {
            let Some(waiting) = self.next_for_reserve().and_then(|at| self.waiting.remove(at)) else { break };
            self.start(waiting, PlaceKind::Reserve, &serve);
        }
    }

    fn start<F>(&mut self, waiting: Waiting<S>, place: PlaceKind, serve: impl Fn(S, Peer, Arc<Connection>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Waiting { stream, peer, .. } = waiting;
        let connection = Arc::new(Connection::new(peer.into(), place, Arc::clone(&self.place_released)));
        self.table.insert(&connection);
        let end = EndOnDrop(Arc::clone(&connection));
        let serving = serve(stream, peer, Arc::clone(&connection));
        self.tasks.spawn(async move {
            let _end = end;
            serving.await;
        });
        self.served.push(connection);
    }

    fn has_free_place(&self, peer: PeerKey) -> bool {
        let of_peer = self.of(peer).count();
        if peer.is_operator() {
            return of_peer < OPERATOR_PLACES;
        }
        of_peer < self.share(peer) && self.not_of_operators().count() < self.places.all
    }

    fn share(&self, peer: PeerKey) -> usize {
        peer.share(self.places.all, self.places.of_peer)
    }

    /// Index of a connection that is due for the reserve: of the peer with the fewest waiting, so
    /// that one peer cannot block others.
    fn next_for_reserve(&self) -> Option<usize> {
        let (now, waiting) = (Instant::now(), self.waiting_by_peer());
        let due = self.waiting.iter().enumerate().filter(|(_, each)| each.reserve_at <= now);
        due.min_by_key(|(_, each)| waiting.get(&each.key()).copied()).map(|(at, _)| at)
    }

    fn in_reserve(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.served.iter().filter(|connection| connection.place() == PlaceKind::Reserve)
    }

    fn regular(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.served.iter().filter(|connection| connection.place() == PlaceKind::Regular)
    }

    fn of(&self, peer: PeerKey) -> impl Iterator<Item = &Arc<Connection>> {
        self.regular().filter(move |connection| connection.peer() == peer)
    }

    fn not_of_operators(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.regular().filter(|connection| !connection.peer().is_operator())
    }

    /// Connections that may be displaced for a peer: its own if it has its full share, else those
    /// of the peer with the most.
    fn candidates(&self, peer: PeerKey) -> Vec<&Arc<Connection>> {
        if peer.is_operator() || self.of(peer).count() >= self.share(peer) {
            return self.of(peer).collect();
        }
        let mut counts: HashMap<PeerKey, usize> = HashMap::new();
        for connection in self.not_of_operators() {
            *counts.entry(connection.peer()).or_default() += 1;
        }
        let most = counts.values().max().copied();
        self.not_of_operators().filter(|each| counts.get(&each.peer()).copied() == most).collect()
    }

    /// Idle connections to displace, one for each waiting connection for which no place is about to
    /// be free, with the time since which they may be displaced. If there are too few, others are
    /// asked to close after their next response.
    fn displaceable(&self) -> Vec<(Arc<Connection>, Instant)> {
        for connection in &self.served {
            connection.withdraw_close_requests();
        }
        let mut chosen: Vec<(Arc<Connection>, Instant)> = Vec::new();
        for (peer, count) in self.waiting_by_peer() {
            choose(&self.candidates(peer), count, &mut chosen);
        }
        let now = Instant::now();
        let due = self.waiting.iter().filter(|each| each.reserve_at <= now).count();
        choose(&self.in_reserve().collect::<Vec<_>>(), due, &mut chosen);
        chosen
    }

    /// Time at which another connection will have been idle for long enough to be displaced, or
    /// will have waited for long enough for the reserve.
    fn next_attempt(&self) -> Option<Instant> {
        let waiting = self.waiting_by_peer();
        let candidates = waiting.into_keys().flat_map(|peer| self.candidates(peer)).chain(self.in_reserve());
        let idle = candidates.filter_map(|each| each.displaceable_at()).min();
        let now = Instant::now();
        let reserve = self.waiting.iter().map(|each| each.reserve_at).filter(|at| *at > now).min();
        // Those that may be displaced now were asked to close already.
        idle.into_iter().chain(reserve).min().map(|next| next.max(now + RETRY_MIN))
    }

    /// Number of waiting connections by peer.
    fn waiting_by_peer(&self) -> HashMap<PeerKey, usize> {
        let mut waiting = HashMap::new();
        for each in &self.waiting {
            *waiting.entry(each.key()).or_default() += 1;
        }
        waiting
    }
}

/// Chooses up to `count` idle candidates, less those that are closing already. If there are too
/// few, the rest are asked to close after a response.
fn choose(candidates: &[&Arc<Connection>], count: usize, chosen: &mut Vec<(Arc<Connection>, Instant)>) {
    let closing = candidates.iter().filter(|each| each.is_closing()).count();
    let is_chosen = |each: &Arc<Connection>| chosen.iter().any(|(other, _)| Arc::ptr_eq(each, other));
    let free = candidates.iter().filter(|each| !is_chosen(each));
    let idle = free.filter_map(|each| Some((Arc::clone(each), each.displaceable_at()?)));
    let now = Instant::now();
    let mut longest: Vec<_> = idle.filter(|(_, at)| *at <= now).collect();
    longest.sort_by_key(|(_, at)| *at);
    let needed = count.saturating_sub(closing);
    longest.truncate(needed);
    let missing = needed - longest.len();
    chosen.append(&mut longest);
    if missing > 0 {
        let requests = Arc::new(AtomicUsize::new(missing));
        for candidate in candidates {
            candidate.request_close_after_response(&requests);
        }
    }
}

/// Guard that marks the end of a connection, however its task ends.
struct EndOnDrop(Arc<Connection>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

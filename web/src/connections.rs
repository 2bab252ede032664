//! Places of connections where there are more clients than places.
//!
//! A connection keeps its place for one request. Where others wait, one that is idle is closed, the longest idle first: one that has sent no request, half
//! of one, or does not take its answer. Where none is idle, one is closed behind the answer that it gets next. A peer has a share of the places; when it
//! has that, it makes room for itself alone.
//!
//! A connection that has waited for long gets a place of the reserve, for health checks and metrics alone.

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

/// Places beyond the others that are for the local superuser alone.
const ROOT_PLACES: usize = 8;
/// Places beyond the others for health checks and metrics.
const RESERVE_PLACES: usize = 4;
/// Connections of a peer that wait for a place, and of all. The first of a peer go where more come.
const WAITING_OF_PEER_MAX: usize = 64;
const WAITING_MAX: usize = 256;
/// Whoever was asked to make room takes so long at the least.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How many connections are served at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) all: usize,
    pub(crate) of_peer: usize,
    /// Time to wait for one of them before there is one of the reserve.
    pub(crate) reserve_after: Duration,
}

/// The connections being served, and those that wait to be.
pub(crate) struct Connections<S> {
    places: Places,
    directory: Arc<ConnectionTable>,
    tasks: JoinSet<()>,
    served: Vec<Arc<Connection>>,
    waiting: VecDeque<Waiting<S>>,
    /// One of those that are served may be displaced now, or is over.
    answered: Arc<Notify>,
}

/// A connection that waits for a place.
struct Waiting<S> {
    stream: S,
    peer: Peer,
    /// When it may have a place of the reserve.
    reserve_at: Instant,
}

impl<S> Waiting<S> {
    fn key(&self) -> PeerKey {
        self.peer.into()
    }
}

impl<S> Connections<S> {
    /// At least one place there is.
    pub(crate) fn new(places: Places, directory: Arc<ConnectionTable>) -> Self {
        Self {
            places: Places { all: places.all.max(1), of_peer: places.of_peer.max(1), ..places },
            directory,
            tasks: JoinSet::new(),
            served: Vec::new(),
            waiting: VecDeque::new(),
            answered: Arc::default(),
        }
    }

    /// One more, which waits for a place.
    pub(crate) fn arrive(&mut self, stream: S, peer: Peer) {
        let reserve_at = Instant::now() + self.places.reserve_after;
        self.waiting.push_back(Waiting { stream, peer, reserve_at });
        let of_peer = self.wanted();
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
            self.directory.count(Closed::QueueFull);
        }
    }

    /// Serves those for whom there is a place, and makes room for the others.
    pub(crate) async fn settle<F>(&mut self, serve: impl Fn(S, Peer, Arc<Connection>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.let_in(&serve);
        let displaceable = self.displaceable();
        if displaceable.is_empty() {
            return;
        }
        // Where uvmd itself was held up, a request may lie unread. So before anyone is closed, there is a turn in which the kernel
        // says who can read, and one in which they do.
        task::yield_now().await;
        task::yield_now().await;
        for (connection, at) in displaceable {
            if connection.displaceable_at() == Some(at) {
                connection.close(Closed::Displaced);
            }
        }
    }

    /// Waits until it makes sense to settle again.
    pub(crate) async fn changed(&mut self) {
        if self.waiting.is_empty() {
            return std::future::pending().await;
        }
        let next = self.next_look();
        let moment = async {
            match next {
                Some(at) => time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.answered.notified() => {}
            () = moment => {}
        }
    }

    /// Waits until all have ended by themselves.
    pub(crate) async fn ended(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    fn let_in<F>(&mut self, serve: impl Fn(S, Peer, Arc<Connection>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while self.tasks.try_join_next().is_some() {}
        self.served.retain(|connection| !connection.is_over());
        for waiting in std::mem::take(&mut self.waiting) {
            if self.has_room(waiting.key()) {
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
        let connection = Arc::new(Connection::new(peer.into(), place, Arc::clone(&self.answered)));
        self.directory.enter(&connection);
        let over = Over(Arc::clone(&connection));
        let serving = serve(stream, peer, Arc::clone(&connection));
        self.tasks.spawn(async move {
            let _over = over;
            serving.await;
        });
        self.served.push(connection);
    }

    fn has_room(&self, peer: PeerKey) -> bool {
        let of_peer = self.of(peer).count();
        if peer.is_root() {
            return of_peer < ROOT_PLACES;
        }
        of_peer < self.share(peer) && self.of_others_than_root().count() < self.places.all
    }

    fn share(&self, peer: PeerKey) -> usize {
        peer.share(self.places.all, self.places.of_peer)
    }

    /// Of those that wait for long enough, one of the peer that has fewest waiting: so those of one peer hold up no other.
    fn next_for_reserve(&self) -> Option<usize> {
        let (now, wanted) = (Instant::now(), self.wanted());
        let due = self.waiting.iter().enumerate().filter(|(_, each)| each.reserve_at <= now);
        due.min_by_key(|(_, each)| wanted.get(&each.key()).copied()).map(|(at, _)| at)
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

    fn of_others_than_root(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.regular().filter(|connection| !connection.peer().is_root())
    }

    /// Those that may make room for a peer: its own where it has its share, else those of whoever has most.
    fn candidates(&self, peer: PeerKey) -> Vec<&Arc<Connection>> {
        if peer.is_root() || self.of(peer).count() >= self.share(peer) {
            return self.of(peer).collect();
        }
        let mut counts: HashMap<PeerKey, usize> = HashMap::new();
        for connection in self.of_others_than_root() {
            *counts.entry(connection.peer()).or_default() += 1;
        }
        let most = counts.values().max().copied();
        self.of_others_than_root().filter(|each| counts.get(&each.peer()).copied() == most).collect()
    }

    /// The idle connections that make room for those that wait, with when they could be displaced: one for each that is not made room for already. Where
    /// there are too few, the others are asked to make room behind their next answer.
    fn displaceable(&self) -> Vec<(Arc<Connection>, Instant)> {
        for connection in &self.served {
            connection.withdraw_requests_to_leave();
        }
        let mut chosen: Vec<(Arc<Connection>, Instant)> = Vec::new();
        for (peer, count) in self.wanted() {
            choose(&self.candidates(peer), count, &mut chosen);
        }
        let now = Instant::now();
        let due = self.waiting.iter().filter(|each| each.reserve_at <= now).count();
        choose(&self.in_reserve().collect::<Vec<_>>(), due, &mut chosen);
        chosen
    }

    /// When somebody else will have been idle for long enough to make room, or have waited for long enough for the reserve.
    fn next_look(&self) -> Option<Instant> {
        let wanted = self.wanted();
        let candidates = wanted.into_keys().flat_map(|peer| self.candidates(peer)).chain(self.in_reserve());
        let idle = candidates.filter_map(|each| each.displaceable_at()).min();
        let now = Instant::now();
        let reserve = self.waiting.iter().map(|each| each.reserve_at).filter(|at| *at > now).min();
        // Whoever could make room now was asked to already.
        idle.into_iter().chain(reserve).min().map(|next| next.max(now + LOOK_AGAIN))
    }

    /// How many connections of each peer wait.
    fn wanted(&self) -> HashMap<PeerKey, usize> {
        let mut wanted = HashMap::new();
        for each in &self.waiting {
            *wanted.entry(each.key()).or_default() += 1;
        }
        wanted
    }
}

/// Of these connections so many that are idle, as far as they do not leave already; the rest are asked to leave behind an answer.
fn choose(candidates: &[&Arc<Connection>], count: usize, chosen: &mut Vec<(Arc<Connection>, Instant)>) {
    let leaving = candidates.iter().filter(|each| each.is_leaving()).count();
    let is_chosen = |each: &Arc<Connection>| chosen.iter().any(|(other, _)| Arc::ptr_eq(each, other));
    let free = candidates.iter().filter(|each| !is_chosen(each));
    let idle = free.filter_map(|each| Some((Arc::clone(each), each.displaceable_at()?)));
    let now = Instant::now();
    let mut longest: Vec<_> = idle.filter(|(_, at)| *at <= now).collect();
    longest.sort_by_key(|(_, at)| *at);
    let needed = count.saturating_sub(leaving);
    longest.truncate(needed);
    let short = needed - longest.len();
    chosen.append(&mut longest);
    if short > 0 {
        let requests = Arc::new(AtomicUsize::new(short));
        for candidate in candidates {
            candidate.request_to_leave(&requests);
        }
    }
}

/// Tells that a connection is over, however its task ends.
struct Over(Arc<Connection>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.end();
    }
}

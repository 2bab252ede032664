//! State of one connection, and the time for which its peer has accepted no bytes.
//!
//! * [`Metered`]: stream of the connection, which reports progress and blocking of writes
//! * [`Tracked`]: body of a response, which reports the end of sending

mod metered;
mod tracked;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

pub(crate) use metered::Metered;
use tokio::{
    sync::Notify,
    time::{self, Duration, Instant},
};
pub(crate) use tracked::{Endless, Tracked};

use crate::{closed::Closed, peers::PeerKey};

/// Minimum time for a peer to send a request, however many others wait.
pub(crate) const REQUEST_GRACE: Duration = Duration::from_millis(50);
/// Minimum time for a peer to accept a part of a response. It is longer than [`REQUEST_GRACE`],
/// since a response that is cut off is wasted, and the peer may be delayed on a busy node.
pub(crate) const STALL_GRACE: Duration = Duration::from_millis(250);

/// Time limits of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendTimeouts {
    /// Limit for accepting any byte that is to be sent.
    pub(crate) stall: Duration,
    /// Limit for receiving a response as a whole.
    pub(crate) response: Duration,
}

/// Kind of a connection's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    /// Place for any request.
    Regular,
    /// Place for one request, of those that need no memory or time to speak of.
    Reserve,
}

/// Memory held by a response until it is sent. Several connections may share one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// Budget that the memory is from.
    pub(crate) budget: BudgetKind,
    /// Number of the reservation, shared by all connections that receive the same response.
    pub(crate) reservation: u64,
    pub(crate) bytes: usize,
}

/// Kind of a budget for responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetKind {
    Api,
    Metrics,
}

/// Connection as its limits see it; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Connection {
    peer: PeerKey,
    place: PlaceKind,
    state: Mutex<State>,
    /// Notified when a time limit begins, or the connection is to be closed.
    changed: Notify,
    /// Notified when a response was sent or the connection ended, so that its place may be reused.
    place_released: Arc<Notify>,
    is_ended: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// Whether a request is being handled.
    is_handling: bool,
    /// Time of the peer's connection, of its last response, or of its last progress, whichever is
    /// latest.
    active: Instant,
    /// Time since which the peer has accepted no byte.
    blocked: Option<Instant>,
    /// Begin of each response that is being sent, in order, and the memory held by the response.
    sending: VecDeque<(Instant, Option<Holding>)>,
    /// Counters of connections that are to close after a response; see
    /// [`Connection::request_close_after_response`].
    close_requests: Vec<Arc<AtomicUsize>>,
    /// Whether the connection closes after the current response.
    is_last_response: bool,
    closing: Option<Closed>,
}

/// Guard of a request that is being handled, until it is dropped.
#[derive(Debug)]
pub(crate) struct Handling(Arc<Connection>);

/// Guard of a response that is being sent, until it is dropped.
#[derive(Debug)]
pub(crate) struct Sending(Arc<Connection>);

impl Connection {
    /// A new connection; `place_released` is notified when its place may be reused, and when it ends.
    pub(crate) fn new(peer: PeerKey, place: PlaceKind, place_released: Arc<Notify>) -> Self {
        let state = State {
            is_handling: false,
            active: Instant::now(),
            blocked: None,
            sending: VecDeque::new(),
            close_requests: Vec::new(),
            is_last_response: false,
            closing: None,
        };
        let (state, changed, is_ended) = (Mutex::new(state), Notify::new(), AtomicBool::new(false));
        Self { peer, place, state, changed, place_released, is_ended }
    }

    pub(crate) const fn peer(&self) -> PeerKey {
        self.peer
    }

    pub(crate) const fn place(&self) -> PlaceKind {
        self.place
    }

    pub(crate) fn handling(self: &Arc<Self>) -> Handling {
        self.state().is_handling = true;
        Handling(Arc::clone(self))
    }

    pub(crate) fn sending(self: &Arc<Self>, holding: Option<Holding>) -> Sending {
        self.state().sending.push_back((Instant::now(), holding));
        self.changed.notify_one();
        Sending(Arc::clone(self))
    }

    /// Time from which it may be closed for others, if it stays idle; `None` while a request is
    /// handled, and once it is closing.
    pub(crate) fn displaceable_at(&self) -> Option<Instant> {
        let state = self.state();
        let grace = if state.sending.is_empty() { REQUEST_GRACE } else { STALL_GRACE };
        (!state.is_handling && state.closing.is_none()).then(|| state.active + grace)
    }

    /// Memory held by the responses being sent, and the time of the peer's last progress; `None` if
    /// the connection is closing.
    pub(crate) fn holdings(&self) -> (Vec<Holding>, Option<Instant>) {
        let state = self.state();
        let holdings = state.sending.iter().filter_map(|(_, holding)| *holding).collect();
        (holdings, state.closing.is_none().then_some(state.active))
    }

    /// Asks a group of connections to close after a response, for others that wait. `requests` is
    /// the number of connections that are to close; the first ones to get a response do.
    pub(crate) fn request_close_after_response(&self, requests: &Arc<AtomicUsize>) {
        self.state().close_requests.push(Arc::clone(requests));
    }

    pub(crate) fn withdraw_close_requests(&self) {
        self.state().close_requests.clear();
    }

    /// Whether the current response is its last one.
    pub(crate) fn closes_after_response(&self) -> bool {
        let mut state = self.state();
        let one_less = |requests: &Arc<AtomicUsize>| {
            requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok()
        };
        state.is_last_response |= self.place == PlaceKind::Reserve || state.close_requests.iter().any(one_less);
        state.is_last_response
    }

    /// Whether it gave up its place after a response.
    pub(crate) fn gave_up_place(&self) -> bool {
        self.place == PlaceKind::Regular && self.state().is_last_response
    }

    /// Requests that the task that serves it close it.
    pub(crate) fn close(&self, reason: Closed) {
        self.state().closing.get_or_insert(reason);
        self.changed.notify_one();
    }

    /// Whether its place is about to be free: it is closing, or its last response is being sent.
    pub(crate) fn is_closing(&self) -> bool {
        let state = self.state();
        state.closing.is_some() || (state.is_last_response && state.active.elapsed() < STALL_GRACE)
    }

    /// Waits for the reason to close: by [`Self::close`], or for exceeding a time limit.
    pub(crate) async fn close_reason(&self, timeouts: SendTimeouts) -> Closed {
        loop {
            let changed = self.changed.notified();
            let next = {
                let state = self.state();
                if let Some(reason) = state.closing {
                    return reason;
                }
                let stalled = state.blocked.map(|since| (since + timeouts.stall, Closed::WriteTimeout));
                let slow = state.sending.front().map(|(since, _)| (*since + timeouts.response, Closed::SendTimeout));
                stalled.into_iter().chain(slow).min_by_key(|(at, _)| *at)
            };
            match next {
                Some((at, reason)) if at <= Instant::now() => {
                    self.close(reason);
                    return reason;
                }
                Some((at, _)) => tokio::select! {
                    () = changed => {}
                    () = time::sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Marks the end of its task.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
        self.place_released.notify_one();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    /// Records that the peer accepted bytes.
    fn record_progress(&self) {
        let mut state = self.state();
        state.active = Instant::now();
        state.blocked = None;
    }

    /// Records that the peer accepts no bytes.
    fn record_blocked(&self) {
        let mut state = self.state();
        if state.blocked.is_none() {
            state.blocked = Some(Instant::now());
            drop(state);
            self.changed.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        let Self(connection) = self;
        let mut state = connection.state();
        state.is_handling = false;
        state.active = Instant::now();
        drop(state);
        connection.place_released.notify_one();
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.state().sending.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: SendTimeouts = SendTimeouts { stall: Duration::from_secs(10), response: Duration::from_mins(1) };

    fn connection() -> Arc<Connection> {
        Arc::new(Connection::new(PeerKey::Unidentified, PlaceKind::Regular, Arc::default()))
    }

    /// Reason for closing, and the seconds until then.
    async fn closed(connection: &Connection) -> (Closed, u64) {
        let begun = Instant::now();
        (connection.close_reason(TIMEOUTS).await, begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_peer_without_progress_exceeds_the_write_timeout() {
        let connection = connection();
        connection.record_blocked();
        let progress = async {
            time::sleep(Duration::from_secs(8)).await;
            connection.record_progress();
            time::sleep(Duration::from_secs(1)).await;
            connection.record_blocked();
        };
        assert_eq!(tokio::join!(closed(&connection), progress).0, (Closed::WriteTimeout, 19));
    }

    #[tokio::test(start_paused = true)]
    async fn the_send_timeout_runs_for_each_response() {
        let connection = connection();
        let responses = async {
            let first = connection.sending(None);
            time::sleep(Duration::from_secs(50)).await;
            let second = connection.sending(None);
            drop(first);
            time::sleep(Duration::from_secs(500)).await;
            drop(second);
        };
        let closed = async { closed(&connection).await };
        tokio::select! {
            closed = closed => assert_eq!(closed, (Closed::SendTimeout, 110)),
            () = responses => panic!("it was not closed"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_stays_open() {
        let connection = connection();
        drop(connection.sending(None));
        connection.record_blocked();
        connection.record_progress();
        let day = Duration::from_hours(24);
        assert!(time::timeout(day, connection.close_reason(TIMEOUTS)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_begins_at_the_last_response_or_progress() {
        let connection = connection();
        let begun = Instant::now();
        assert_eq!(connection.displaceable_at(), Some(begun + REQUEST_GRACE));
        let handling = connection.handling();
        assert_eq!(connection.displaceable_at(), None);
        time::sleep(Duration::from_secs(1)).await;
        drop(handling);
        assert_eq!(connection.displaceable_at(), Some(begun + Duration::from_secs(1) + REQUEST_GRACE));
        time::sleep(Duration::from_secs(1)).await;
        connection.record_progress();
        assert_eq!(connection.displaceable_at(), Some(begun + Duration::from_secs(2) + REQUEST_GRACE));
        let sending = connection.sending(None);
        assert_eq!(connection.displaceable_at(), Some(begun + Duration::from_secs(2) + STALL_GRACE));
        drop(sending);
        connection.close(Closed::Displaced);
        assert_eq!(connection.displaceable_at(), None, "it is closing");
        assert_eq!(closed(&connection).await, (Closed::Displaced, 0));
    }
}

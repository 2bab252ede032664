//! What one connection is doing, and for how long its peer has taken nothing.
//!
//! * [`Metered`]: its stream, which tells when bytes go out and when they cannot
//! * [`Tracked`]: the body of an answer, which tells when all of it has been sent

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

/// Time that everyone has to send a request, however many others come.
pub(crate) const MOMENT: Duration = Duration::from_millis(50);
/// The same, to take a part of an answer: one that is cut off was made for nothing, and the peer may be held up on a busy node.
pub(crate) const STALLED: Duration = Duration::from_millis(250);

/// How long a peer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// To take anything at all of what is to be sent.
    pub(crate) stall: Duration,
    /// To take all of an answer.
    pub(crate) answer: Duration,
}

/// What a connection is served for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    /// Every request.
    Regular,
    /// One request, and only if it takes no time.
    Reserve,
}

/// Memory that an answer holds until it is sent. Several connections may be sent the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// Of which budget.
    pub(crate) budget: BudgetKind,
    /// Which part of it: one number for all who are sent the same.
    pub(crate) reservation: u64,
    pub(crate) bytes: usize,
}

/// Memory for answers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetKind {
    Api,
    Metrics,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Connection {
    peer: PeerKey,
    place: PlaceKind,
    state: Mutex<State>,
    /// Something began that may take too long, or it is to be closed.
    changed: Notify,
    /// A request was answered, so that it may be displaced, or it ended.
    answered: Arc<Notify>,
    is_over: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// A request is being answered.
    is_answering: bool,
    /// When the peer came, was answered, or took something, whichever was last.
    active: Instant,
    /// Since when the peer takes nothing of what is to be sent.
    blocked: Option<Instant>,
    /// Since when each answer is being sent, in their order, and the memory that it holds.
    sending: VecDeque<(Instant, Option<Holding>)>,
    /// How many of those that have these are to leave behind an answer.
    requests_to_leave: Vec<Arc<AtomicUsize>>,
    /// It is closed behind the answer that it has got.
    is_last_answer: bool,
    closing: Option<Closed>,
}

/// A request is being answered until this is dropped.
#[derive(Debug)]
pub(crate) struct Answering(Arc<Connection>);

/// An answer is being sent until this is dropped.
#[derive(Debug)]
pub(crate) struct Sending(Arc<Connection>);

impl Connection {
    /// One that has just come; `answered` is told when it may be displaced, and when it is over.
    pub(crate) fn new(peer: PeerKey, place: PlaceKind, answered: Arc<Notify>) -> Self {
        let state = State {
            is_answering: false,
            active: Instant::now(),
            blocked: None,
            sending: VecDeque::new(),
            requests_to_leave: Vec::new(),
            is_last_answer: false,
            closing: None,
        };
        let (state, changed, is_over) = (Mutex::new(state), Notify::new(), AtomicBool::new(false));
        Self { peer, place, state, changed, answered, is_over }
    }

    pub(crate) const fn peer(&self) -> PeerKey {
        self.peer
    }

    pub(crate) const fn place(&self) -> PlaceKind {
        self.place
    }

    pub(crate) fn answering(self: &Arc<Self>) -> Answering {
        self.state().is_answering = true;
        Answering(Arc::clone(self))
    }

    pub(crate) fn sending(self: &Arc<Self>, holding: Option<Holding>) -> Sending {
        self.state().sending.push_back((Instant::now(), holding));
        self.changed.notify_one();
        Sending(Arc::clone(self))
    }

    /// When it may be closed for others, if nothing happens on it until then; `None` while a request is being answered, and once it is to be closed.
    pub(crate) fn displaceable_at(&self) -> Option<Instant> {
        let state = self.state();
        let patience = if state.sending.is_empty() { MOMENT } else { STALLED };
        (!state.is_answering && state.closing.is_none()).then(|| state.active + patience)
    }

    /// The memory that what is being sent holds; with since when its peer took nothing, or `None` where it is to be closed.
    pub(crate) fn holdings(&self) -> (Vec<Holding>, Option<Instant>) {
        let state = self.state();
        let holdings = state.sending.iter().filter_map(|(_, holding)| *holding).collect();
        (holdings, state.closing.is_none().then_some(state.active))
    }

    /// Others wait: the first of those asked so that get an answer, as many as the number says, are to leave behind that.
    pub(crate) fn request_to_leave(&self, requests: &Arc<AtomicUsize>) {
        self.state().requests_to_leave.push(Arc::clone(requests));
    }

    pub(crate) fn withdraw_requests_to_leave(&self) {
        self.state().requests_to_leave.clear();
    }

    /// Whether the answer that it gets now is its last one.
    pub(crate) fn leaves_behind_answer(&self) -> bool {
        let mut state = self.state();
        let one_less = |requests: &Arc<AtomicUsize>| {
            requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok()
        };
        state.is_last_answer |= self.place == PlaceKind::Reserve || state.requests_to_leave.iter().any(one_less);
        state.is_last_answer
    }

    /// Whether it made room for another one when it was answered.
    pub(crate) fn made_room(&self) -> bool {
        self.place == PlaceKind::Regular && self.state().is_last_answer
    }

    /// Has it closed, which whoever serves it does.
    pub(crate) fn close(&self, why: Closed) {
        self.state().closing.get_or_insert(why);
        self.changed.notify_one();
    }

    /// Whether its place will be free in a moment: it is to be closed, or takes its last answer.
    pub(crate) fn is_leaving(&self) -> bool {
        let state = self.state();
        state.closing.is_some() || (state.is_last_answer && state.active.elapsed() < STALLED)
    }

    /// Waits until it is to be closed, because somebody says so or because its peer takes too long.
    pub(crate) async fn to_be_closed(&self, patience: Patience) -> Closed {
        loop {
            let changed = self.changed.notified();
            let next = {
                let state = self.state();
                if let Some(why) = state.closing {
                    return why;
                }
                let stalled = state.blocked.map(|since| (since + patience.stall, Closed::WriteTimeout));
                let slow = state.sending.front().map(|(since, _)| (*since + patience.answer, Closed::SendTimeout));
                stalled.into_iter().chain(slow).min_by_key(|(at, _)| *at)
            };
            match next {
                Some((at, why)) if at <= Instant::now() => {
                    self.close(why);
                    return why;
                }
                Some((at, _)) => tokio::select! {
                    () = changed => {}
                    () = time::sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Nobody serves it any more.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.answered.notify_one();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Bytes went out.
    fn took(&self) {
        let mut state = self.state();
        state.active = Instant::now();
        state.blocked = None;
    }

    /// Bytes cannot go out.
    fn takes_nothing(&self) {
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

impl Drop for Answering {
    fn drop(&mut self) {
        let Self(connection) = self;
        let mut state = connection.state();
        state.is_answering = false;
        state.active = Instant::now();
        drop(state);
        connection.answered.notify_one();
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

    const PATIENCE: Patience = Patience { stall: Duration::from_secs(10), answer: Duration::from_mins(1) };

    fn connection() -> Arc<Connection> {
        Arc::new(Connection::new(PeerKey::Nobody, PlaceKind::Regular, Arc::default()))
    }

    /// What closes it, and after how many seconds.
    async fn closed(connection: &Connection) -> (Closed, u64) {
        let begun = Instant::now();
        (connection.to_be_closed(PATIENCE).await, begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_stalled_and_who_takes_something_now_and_then_is_not() {
        let connection = connection();
        connection.takes_nothing();
        let took = async {
            time::sleep(Duration::from_secs(8)).await;
            connection.took();
            time::sleep(Duration::from_secs(1)).await;
            connection.takes_nothing();
        };
        assert_eq!(tokio::join!(closed(&connection), took).0, (Closed::WriteTimeout, 19));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_to_be_taken_in_time_however_many_were_before() {
        let connection = connection();
        let answers = async {
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
            () = answers => panic!("it was not closed"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_to_send_is_no_reason_to_close() {
        let connection = connection();
        drop(connection.sending(None));
        connection.takes_nothing();
        connection.took();
        let day = Duration::from_hours(24);
        assert!(time::timeout(day, connection.to_be_closed(PATIENCE)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_idle_since_its_peer_was_answered_or_took_something() {
        let connection = connection();
        let begun = Instant::now();
        assert_eq!(connection.displaceable_at(), Some(begun + MOMENT));
        let answering = connection.answering();
        assert_eq!(connection.displaceable_at(), None);
        time::sleep(Duration::from_secs(1)).await;
        drop(answering);
        assert_eq!(connection.displaceable_at(), Some(begun + Duration::from_secs(1) + MOMENT));
        time::sleep(Duration::from_secs(1)).await;
        connection.took();
        assert_eq!(connection.displaceable_at(), Some(begun + Duration::from_secs(2) + MOMENT));
        let sending = connection.sending(None);
        assert_eq!(connection.displaceable_at(), Some(begun + Duration::from_secs(2) + STALLED));
        drop(sending);
        connection.close(Closed::Displaced);
        assert_eq!(connection.displaceable_at(), None, "it is about to go");
        assert_eq!(closed(&connection).await, (Closed::Displaced, 0));
    }
}

//! Responses being built, or waiting for a build. Equal requests share one.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use tokio::sync::watch;

use super::{
    Payload, Text,
    budget::Reservation,
    lane::{Lane, Place, failed},
    readings::{Reading, Readings},
};
use crate::{peers::PeerKey, problem::Problem};

/// Outcome of building a response.
pub(super) type Outcome = Result<Arc<Payload>, Problem>;

/// Function that builds a response, from a reading if it needs one.
pub(super) type Make = Box<dyn FnOnce(Option<Arc<Reading>>) -> Making + Send>;
pub(super) type Making = Pin<Box<dyn Future<Output = Result<Text, Problem>> + Send>>;

/// Minimum age of data for a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Since {
    /// Data of this reading, or of a later one.
    Reading(u64),
    /// Data from after the request: a build in progress may be too old.
    Now,
}

/// Builds in progress, by cache key.
#[derive(Debug)]
pub(super) struct Flights {
    readings: Arc<Readings>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    flights: HashMap<String, Flight>,
    /// Id of the next build.
    next: u64,
}

#[derive(Debug)]
struct Flight {
    id: u64,
    progress: Progress,
    /// Sender of the outcome to waiting requests.
    sender: Arc<watch::Sender<Option<Outcome>>>,
}

#[derive(Clone, Copy, Debug)]
enum Progress {
    /// Waits for a turn, and will be built from the newest reading then.
    Waiting,
    /// Being built from this reading; `None` for a response that needs none.
    BuiltFrom(Option<u64>),
}

impl Flight {
    /// Whether the outcome is recent enough for a request.
    const fn satisfies(&self, since: Since) -> bool {
        match (self.progress, since) {
            (Progress::Waiting, _) => true,
            (Progress::BuiltFrom(Some(reading)), Since::Reading(begun)) => begun <= reading,
            (Progress::BuiltFrom(_), _) => false,
        }
    }
}

impl Flights {
    pub(super) fn new(readings: Arc<Readings>) -> Self {
        Self { readings, state: Mutex::default() }
    }

    /// Joins an equal build, or starts one. Fails at once if too many requests wait.
    pub(super) fn join(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        cache_key: String,
        since: Since,
        peer: PeerKey,
        make: Make,
    ) -> Result<watch::Receiver<Option<Outcome>>, Problem> {
        let mut state = self.state();
        if let Some(flight) = state.flights.get(&cache_key).filter(|flight| flight.satisfies(since)) {
            return Ok(flight.sender.subscribe());
        }
        let place = lane.queue(peer)?;
        let (sender, outcome) = watch::channel(None);
        let sender = Arc::new(sender);
        state.next += 1;
        let id = state.next;
        let flight = Flight { id, progress: Progress::Waiting, sender: Arc::clone(&sender) };
        state.flights.insert(cache_key.clone(), flight);
        let build = Build { flights: Arc::clone(self), lane: Arc::clone(lane), cache_key, id, sender };
        tokio::spawn(build.run(place, matches!(since, Since::Reading(_)), make));
        Ok(outcome)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A build in progress. Requests never wait for it after its end, whatever that is.
struct Build {
    flights: Arc<Flights>,
    lane: Arc<Lane>,
    cache_key: String,
    id: u64,
    sender: Arc<watch::Sender<Option<Outcome>>>,
}

impl Build {
    async fn run(self, place: Place, is_of_reading: bool, make: Make) {
        let ready = {
            let readings = &self.flights.readings;
            let mut ready = std::pin::pin!(place.turn_with_memory(|| readings.drop_responses()));
            loop {
                tokio::select! {
                    ready = &mut ready => break ready,
                    () = self.sender.closed() => {
                        let mut state = self.flights.state();
                        // No request waits, and none can join before the build is removed.
                        if self.sender.receiver_count() == 0 {
                            self.remove(&mut state);
                            return;
                        }
                    }
                }
            }
        };
        drop(place);
        let outcome = match ready {
            Ok((_turn, reservation)) => self.make(is_of_reading, reservation, make).await,
            Err(problem) => Err(problem),
        };
        let sender = Arc::clone(&self.sender);
        // Removed before the outcome is sent: later requests start a new build.
        drop(self);
        sender.send_replace(Some(outcome));
    }

    async fn make(&self, is_of_reading: bool, mut reservation: Reservation, make: Make) -> Outcome {
        let Self { lane, cache_key, .. } = self;
        let readings = &self.flights.readings;
        // Taken only now: requests that wait for a turn or for memory hold no reading, so that few
        // are held.
        let reading = if is_of_reading { Some(readings.newest().ok_or_else(failed)?) } else { None };
        self.begin(reading.as_ref().map(|reading| reading.begun));
        if let Some(payload) = reading.as_ref().and_then(|reading| reading.response(cache_key)) {
            return Ok(payload);
        }
        let weak_reading = reading.as_ref().map(Arc::downgrade);
        let Text { content_type, mut text } = make(reading).await?;
        text.shrink_to_fit();
        reservation.resize(text.len());
        lane.built.fetch_add(1, Ordering::Relaxed);
        let payload = Arc::new(Payload { content_type, text, reservation });
        // Stored for later requests; those that need the reading hold it.
        if let Some(reading) = weak_reading.and_then(|reading| reading.upgrade()) {
            reading.store(cache_key.clone(), &payload);
        }
        Ok(payload)
    }

    /// Marks the build as based on this reading, for requests that join.
    fn begin(&self, reading: Option<u64>) {
        let mut state = self.flights.state();
        if let Some(flight) = state.flights.get_mut(&self.cache_key).filter(|flight| flight.id == self.id) {
            flight.progress = Progress::BuiltFrom(reading);
        }
    }

    fn remove(&self, state: &mut State) {
        if state.flights.get(&self.cache_key).is_some_and(|flight| flight.id == self.id) {
            state.flights.remove(&self.cache_key);
        }
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        let flights = Arc::clone(&self.flights);
        self.remove(&mut flights.state());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::time::{self, Duration, Instant};

    use super::{super::budget::Budget, *};
    use crate::{
        connection::BudgetKind,
        control::DecisionSource,
        peers::Shares,
        sources::{Snapshots, VerdictSource},
    };

    #[tokio::test(start_paused = true)]
    async fn while_memory_is_short_no_waiting_build_holds_a_turn() {
        let snapshots = Snapshots::new(|| std::future::ready(None));
        let readings = Readings::new(snapshots, VerdictSource::new(Arc::default), DecisionSource::new(Arc::default));
        let flights = Arc::new(Flights::new(Arc::new(readings)));
        let budget = Budget::new(BudgetKind::Api, 100, Arc::default());
        let lane = Arc::new(Lane::new(1, Shares::new(9, 9), 100, budget));
        let held = lane.budget.try_reserve(100);
        let begun = Instant::now();
        let count = Arc::new(AtomicUsize::new(0));
        let request = |cache_key: &str| {
            let count = Arc::clone(&count);
            let make = |_| async move {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(Text::json(&1))
            };
            let make: Make = Box::new(|reading| Box::pin(make(reading)));
            flights.join(&lane, cache_key.to_owned(), Since::Now, PeerKey::Unidentified, make).unwrap()
        };
        let mut outcomes = ["a", "b", "c", "d"].map(request);
        let turn = async {
            time::sleep(Duration::from_millis(500)).await;
            drop(lane.queue(PeerKey::Unidentified).unwrap().turn().await.unwrap());
            begun.elapsed()
        };
        let [a, b, c, d] = &mut outcomes;
        let rejected = |outcome: &Option<Outcome>| matches!(outcome, Some(Err(_)));
        let (turn, ..) =
            tokio::join!(turn, a.wait_for(rejected), b.wait_for(rejected), c.wait_for(rejected), d.wait_for(rejected));
        assert_eq!(turn, Duration::from_millis(500));
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        drop(held);
        assert!(request("e").wait_for(|outcome| matches!(outcome, Some(Ok(_)))).await.is_ok());
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}

//! Responses that are being made, or wait for that: whoever asks for the same waits with those who do.

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

/// What came of making an answer.
pub(super) type Outcome = Result<Arc<Payload>, Problem>;

/// Makes an answer, of a reading if it is of one.
pub(super) type Make = Box<dyn FnOnce(Option<Arc<Reading>>) -> Making + Send>;
pub(super) type Making = Pin<Box<dyn Future<Output = Result<Text, Problem>> + Send>>;

/// What an answer must be newer than to be right for a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Since {
    /// This reading, or a later one.
    Reading(u64),
    /// The request itself: what is being made already may be too old.
    Now,
}

/// All that are being made, by what was asked.
#[derive(Debug)]
pub(super) struct Flights {
    readings: Arc<Readings>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    flights: HashMap<String, Flight>,
    /// Names flights.
    next: u64,
}

#[derive(Debug)]
struct Flight {
    name: u64,
    progress: Progress,
    /// Who waits for it listens here.
    tell: Arc<watch::Sender<Option<Outcome>>>,
}

#[derive(Clone, Copy, Debug)]
enum Progress {
    /// It waits, and will be of what is newest then.
    Waiting,
    /// It is being made of this reading; `None` for what is made of none.
    MadeOf(Option<u64>),
}

impl Flight {
    /// Whether what will come of it is right for a request.
    const fn is_right(&self, since: Since) -> bool {
        match (self.progress, since) {
            (Progress::Waiting, _) => true,
            (Progress::MadeOf(Some(made_of)), Since::Reading(begun)) => begun <= made_of,
            (Progress::MadeOf(_), _) => false,
        }
    }
}

impl Flights {
    pub(super) fn new(readings: Arc<Readings>) -> Self {
        Self { readings, state: Mutex::default() }
    }

    /// What comes of making an answer, whether for this request or for another. Fails at once where too many wait.
    pub(super) fn join(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        question: String,
        since: Since,
        asker: PeerKey,
        make: Make,
    ) -> Result<watch::Receiver<Option<Outcome>>, Problem> {
        let mut state = self.state();
        if let Some(flight) = state.flights.get(&question).filter(|flight| flight.is_right(since)) {
            return Ok(flight.tell.subscribe());
        }
        let place = lane.queue(asker)?;
        let (tell, outcome) = watch::channel(None);
        let tell = Arc::new(tell);
        state.next += 1;
        let name = state.next;
        let flight = Flight { name, progress: Progress::Waiting, tell: Arc::clone(&tell) };
        state.flights.insert(question.clone(), flight);
        let landing = Landing { flights: Arc::clone(self), lane: Arc::clone(lane), question, name, tell };
        tokio::spawn(landing.fly(place, matches!(since, Since::Reading(_)), make));
        Ok(outcome)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that is being made: however that ends, nobody waits for it any more.
struct Landing {
    flights: Arc<Flights>,
    lane: Arc<Lane>,
    question: String,
    name: u64,
    tell: Arc<watch::Sender<Option<Outcome>>>,
}

impl Landing {
    async fn fly(self, place: Place, is_of_reading: bool, make: Make) {
        let ready = {
            let readings = &self.flights.readings;
            let mut ready = std::pin::pin!(place.turn_with_memory(|| readings.forget_responses()));
            loop {
                tokio::select! {
                    ready = &mut ready => break ready,
                    () = self.tell.closed() => {
                        let mut state = self.flights.state();
                        // Nobody wants it any more, and nobody can come to want it before it is gone.
                        if self.tell.receiver_count() == 0 {
                            self.forget(&mut state);
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
        let tell = Arc::clone(&self.tell);
        // Before it is told: who asks from now on is to begin anew.
        drop(self);
        tell.send_replace(Some(outcome));
    }

    async fn make(&self, is_of_reading: bool, mut reservation: Reservation, make: Make) -> Outcome {
        let Self { lane, question, .. } = self;
        let readings = &self.flights.readings;
        // Only now: those who wait for a turn or for memory hold no reading, so that few are held in all.
        let reading = if is_of_reading { Some(readings.newest().ok_or_else(failed)?) } else { None };
        self.begin(reading.as_ref().map(|reading| reading.begun));
        if let Some(payload) = reading.as_ref().and_then(|reading| reading.response(question)) {
            return Ok(payload);
        }
        let reading_if_held = reading.as_ref().map(Arc::downgrade);
        let Text { content_type, mut text } = make(reading).await?;
        text.shrink_to_fit();
        reservation.resize(text.len());
        lane.built.fetch_add(1, Ordering::Relaxed);
        let payload = Arc::new(Payload { content_type, text, reservation });
        // For those who have yet to ask for it; whoever needs the reading holds it.
        if let Some(reading) = reading_if_held.and_then(|reading| reading.upgrade()) {
            reading.keep(question.clone(), &payload);
        }
        Ok(payload)
    }

    /// From here on it is right only for those who may have what was read then.
    fn begin(&self, made_of: Option<u64>) {
        let mut state = self.flights.state();
        if let Some(flight) = state.flights.get_mut(&self.question).filter(|flight| flight.name == self.name) {
            flight.progress = Progress::MadeOf(made_of);
        }
    }

    fn forget(&self, state: &mut State) {
        if state.flights.get(&self.question).is_some_and(|flight| flight.name == self.name) {
            state.flights.remove(&self.question);
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let flights = Arc::clone(&self.flights);
        self.forget(&mut flights.state());
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
    async fn while_memory_is_short_all_wait_for_it_at_once_and_nobody_holds_a_turn() {
        let snapshots = Snapshots::new(|| std::future::ready(None));
        let readings = Readings::new(snapshots, VerdictSource::new(Arc::default), DecisionSource::new(Arc::default));
        let flights = Arc::new(Flights::new(Arc::new(readings)));
        let budget = Budget::new(BudgetKind::Api, 100, Arc::default());
        let lane = Arc::new(Lane::new(1, Shares::new(9, 9), 100, budget));
        let held = lane.budget.try_reserve(100);
        let begun = Instant::now();
        let count = Arc::new(AtomicUsize::new(0));
        let ask = |question: &str| {
            let count = Arc::clone(&count);
            let make = |_| async move {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(Text::json(&1))
            };
            let make: Make = Box::new(|reading| Box::pin(make(reading)));
            flights.join(&lane, question.to_owned(), Since::Now, PeerKey::Nobody, make).unwrap()
        };
        let mut outcomes = ["a", "b", "c", "d"].map(ask);
        let turn = async {
            time::sleep(Duration::from_millis(500)).await;
            drop(lane.queue(PeerKey::Nobody).unwrap().turn().await.unwrap());
            begun.elapsed()
        };
        let [a, b, c, d] = &mut outcomes;
        let refused = |outcome: &Option<Outcome>| matches!(outcome, Some(Err(_)));
        let (turn, ..) =
            tokio::join!(turn, a.wait_for(refused), b.wait_for(refused), c.wait_for(refused), d.wait_for(refused));
        assert_eq!(turn, Duration::from_millis(500));
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        drop(held);
        assert!(ask("e").wait_for(|outcome| matches!(outcome, Some(Ok(_)))).await.is_ok());
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}

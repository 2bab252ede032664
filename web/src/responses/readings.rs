//! Snapshots for requests. A request during a reading gets the next one, shared by all that wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use model::{Decision, Snapshot, Verdicts};
use tokio::{
    sync::{self, OwnedSemaphorePermit, Semaphore},
    task,
    time::{self, Duration, Instant},
};

use super::{Payload, lane::failed};
use crate::{
    control::DecisionSource,
    convert::View,
    problem::Problem,
    sources::{Snapshots, VerdictSource, timed_out},
    stopwatch::Stopwatch,
};

/// Data of one moment, from which most responses are built.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) verdicts: Arc<Verdicts>,
    pub(crate) decisions: Arc<[Decision]>,
}

impl Observation {
    pub(crate) fn view(&self) -> View<'_> {
        View::new(&self.snapshot, &self.verdicts, &self.decisions)
    }
}

/// Observation with the responses that were built from it, which are dropped with it.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) known: Observation,
    /// Begin of the reading, by the clock of [`Readings`].
    pub(crate) begun: u64,
    responses: Mutex<BTreeMap<String, Arc<Payload>>>,
    _place: OwnedSemaphorePermit,
}

/// Maximum of stored responses of a reading; further ones are built for each request.
const RESPONSES_MAX: usize = 64;

/// Maximum of readings in memory: the newest, and either the one before it, from which responses
/// are still built, or the next.
const READINGS_MAX: usize = 2;
/// Maximum wait of a request for these builds, if the newest reading can be had instead: a build
/// takes a tenth of that.
const BUILD_WAIT_MAX: Duration = Duration::from_secs(1);

impl Reading {
    pub(crate) fn response(&self, cache_key: &str) -> Option<Arc<Payload>> {
        self.responses().get(cache_key).cloned()
    }

    pub(crate) fn store(&self, cache_key: String, payload: &Arc<Payload>) {
        let mut responses = self.responses();
        if responses.len() < RESPONSES_MAX {
            responses.insert(cache_key, Arc::clone(payload));
        }
    }

    fn responses(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Payload>>> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Readings for requests. The newest reading is held while a request is in progress, a former one
/// only by builds. A snapshot may be large, so the next reading waits for the end of these; where
/// they last, the newest reading answers instead, although the request came after its begin.
#[derive(Debug)]
pub(crate) struct Readings {
    snapshots: Snapshots,
    verdicts: VerdictSource,
    decisions: DecisionSource,
    /// Held during a reading.
    turn: sync::Mutex<()>,
    state: Mutex<State>,
    /// Places of readings in memory.
    places: Arc<Semaphore>,
    /// Durations of snapshots.
    pub(super) stopwatch: Stopwatch,
}

#[derive(Debug, Default)]
struct State {
    /// Logical clock of requests and readings.
    clock: u64,
    visits: usize,
    newest: Option<Arc<Reading>>,
}

/// Request in progress.
#[derive(Debug)]
pub(crate) struct Visit {
    readings: Arc<Readings>,
    arrived: u64,
    /// Time from which the newest reading will do.
    wait_end: Instant,
}

impl Readings {
    pub(crate) fn new(snapshots: Snapshots, verdicts: VerdictSource, decisions: DecisionSource) -> Self {
        Self {
            snapshots,
            verdicts,
            decisions,
            turn: sync::Mutex::default(),
            state: Mutex::default(),
            places: Arc::new(Semaphore::new(READINGS_MAX)),
            stopwatch: Stopwatch::default(),
        }
    }

    pub(crate) fn visit(self: &Arc<Self>) -> Visit {
        let mut state = self.state();
        state.clock += 1;
        state.visits += 1;
        let wait_end = Instant::now() + BUILD_WAIT_MAX;
        Visit { readings: Arc::clone(self), arrived: state.clock, wait_end }
    }

    /// The newest reading, while a request is in progress.
    pub(crate) fn newest(&self) -> Option<Arc<Reading>> {
        self.state().newest.clone()
    }

    /// Drops stored responses, which no request waits for.
    pub(crate) fn drop_responses(&self) {
        if let Some(newest) = self.newest() {
            newest.responses().clear();
        }
    }

    /// Waits for a place for the next reading.
    async fn place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        // The semaphore is never closed.
        Arc::clone(&self.places).acquire_owned().await.map_err(|_| failed())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit {
    /// Reading that began after this request came; or the newest, while there is no memory for
    /// another.
    pub(crate) async fn fresh(&self) -> Result<Arc<Reading>, Problem> {
        let Self { readings, arrived, wait_end } = self;
        let reading = async {
            let _turn = readings.turn.lock().await;
            if let Some(newest) = readings.newest().filter(|newest| newest.begun > *arrived) {
                return Ok(newest);
            }
            let place = match (time::timeout_at(*wait_end, readings.place()).await, readings.newest()) {
                (Ok(place), _) => place?,
                (Err(_), Some(newest)) => return Ok(newest),
                (Err(_), None) => readings.place().await?,
            };
            // Requests that came at the same time run first, and share the reading.
            task::yield_now().await;
            let begun = {
                let mut state = readings.state();
                state.clock += 1;
                state.clock
            };
            let started = Instant::now();
            let snapshot = readings.snapshots.take().await?;
            readings.stopwatch.add(started.elapsed());
            let (verdicts, decisions) = (readings.verdicts.now(), readings.decisions.now());
            let known = Observation { snapshot, verdicts, decisions };
            let reading = Arc::new(Reading { known, begun, responses: Mutex::default(), _place: place });
            let former = readings.state().newest.replace(Arc::clone(&reading));
            // Dropped outside of the lock: a snapshot may be large.
            drop(former);
            Ok(reading)
        };
        let timeout = readings.snapshots.timeout();
        time::timeout(timeout, reading).await.unwrap_or_else(|_| Err(timed_out(timeout)))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let newest = {
            let mut state = self.readings.state();
            state.visits -= 1;
            if state.visits > 0 { None } else { state.newest.take() }
        };
        // Dropped outside of the lock: a snapshot may be large.
        drop(newest);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::SystemTime,
    };

    use futures_util::future::join_all;
    use model::{SourceState, SourceStatus};

    use super::*;

    fn snapshot() -> Arc<Snapshot> {
        let source = SourceStatus::new(SourceState::Waiting { missing: Vec::new() });
        Arc::new(Snapshot::empty(SystemTime::UNIX_EPOCH, source))
    }

    /// Readings that take a second, and their number.
    fn readings() -> (Arc<Readings>, Arc<AtomicUsize>) {
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let snapshots = Snapshots::new(move || {
            let count = Arc::clone(&count);
            async move {
                time::sleep(Duration::from_secs(1)).await;
                count.fetch_add(1, Ordering::Relaxed);
                Some(snapshot())
            }
        });
        let readings = Readings::new(snapshots, VerdictSource::new(Arc::default), DecisionSource::new(Arc::default));
        (Arc::new(readings), taken)
    }

    #[tokio::test(start_paused = true)]
    async fn requests_during_a_reading_share_the_next_one() {
        let (readings, taken) = readings();
        let visits: Vec<Visit> = (0..64).map(|_| readings.visit()).collect();
        let late = async {
            time::sleep(Duration::from_millis(500)).await;
            let visits: Vec<Visit> = (0..64).map(|_| readings.visit()).collect();
            join_all(visits.iter().map(Visit::fresh)).await
        };
        let (first, second) = tokio::join!(join_all(visits.iter().map(Visit::fresh)), late);
        let begun = |readings: &[Result<Arc<Reading>, Problem>]| {
            let all: Vec<u64> = readings.iter().map(|reading| reading.as_ref().unwrap().begun).collect();
            assert!(all.iter().all(|begun| *begun == all[0]), "{all:?}");
            all[0]
        };
        assert!(begun(&first) < begun(&second));
        assert_eq!(taken.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn no_snapshot_is_held_without_requests() {
        let (readings, _) = readings();
        let (first, second) = (readings.visit(), readings.visit());
        let snapshot = Arc::downgrade(&first.fresh().await.unwrap().known.snapshot);
        drop(first);
        assert!(snapshot.upgrade().is_some(), "a request is in progress");
        drop(second);
        assert!(snapshot.upgrade().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_waits_for_builds_from_the_last_but_one() {
        let (readings, taken) = readings();
        let visit = readings.visit();
        let first = visit.fresh().await.unwrap();
        let second = readings.visit().fresh().await.unwrap();
        assert!(first.begun < second.begun);
        let later = readings.visit();
        let release = async {
            time::sleep(Duration::from_millis(900)).await;
            assert_eq!(taken.load(Ordering::Relaxed), 2);
            drop(first);
        };
        let (third, ()) = tokio::join!(later.fresh(), release);
        assert!(third.unwrap().begun > second.begun);
        assert_eq!(taken.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_reading_answers_while_builds_last() {
        let (readings, taken) = readings();
        let visit = readings.visit();
        let _first = visit.fresh().await.unwrap();
        let second = readings.visit().fresh().await.unwrap();
        let asked = Instant::now();
        let visits: Vec<Visit> = (0..64).map(|_| readings.visit()).collect();
        for again in join_all(visits.iter().map(Visit::fresh)).await {
            assert_eq!(again.unwrap().begun, second.begun);
        }
        assert_eq!(asked.elapsed(), BUILD_WAIT_MAX, "requests wait at the same time");
        assert_eq!(taken.load(Ordering::Relaxed), 2, "two readings are in memory");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_newest_reading_the_end_of_a_build_is_awaited() {
        let (readings, taken) = readings();
        let mut building = Vec::new();
        for _ in 0..READINGS_MAX {
            // Its request ends before its build.
            building.push(readings.visit().fresh().await.unwrap());
        }
        let visit = readings.visit();
        let release = async {
            time::sleep(Duration::from_secs(2)).await;
            assert_eq!(taken.load(Ordering::Relaxed), 2);
            building.pop();
        };
        let (third, ()) = tokio::join!(visit.fresh(), release);
        assert!(third.unwrap().begun > building[0].begun);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_cancelled_during_its_reading_delays_no_other() {
        let (readings, taken) = readings();
        let cancelled = readings.visit();
        assert!(time::timeout(Duration::from_millis(1), cancelled.fresh()).await.is_err());
        drop(cancelled);
        readings.visit().fresh().await.unwrap();
        assert_eq!(taken.load(Ordering::Relaxed), 1);
    }
}

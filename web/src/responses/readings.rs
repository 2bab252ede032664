//! Snapshots for requests: whoever asks while one is taken gets the next, and all who wait share it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use model::{Decision, Snapshot, Verdicts};
use tokio::{
    sync::{self, Notify},
    task,
    time::{self, Duration, Instant},
};

use super::Payload;
use crate::{
    control::DecisionSource,
    convert::View,
    problem::Problem,
    sources::{Snapshots, VerdictSource, no_answer},
    stopwatch::Stopwatch,
};

/// What most answers are made of, of one moment.
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

/// What was read at one moment, with the answers that were made of it. They go with it.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) known: Observation,
    /// When it was begun, by the clock of [`Readings`].
    pub(crate) begun: u64,
    responses: Mutex<BTreeMap<String, Arc<Payload>>>,
    /// Told when it goes.
    gone: Arc<Notify>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.gone.notify_waiters();
    }
}

/// More different questions about one moment are not expected, and those beyond are answered without being kept.
const RESPONSES_MAX: usize = 64;

/// How long a reading waits for what is made of the last but one: an answer takes a tenth of that.
const FORMER_PATIENCE: Duration = Duration::from_secs(1);

impl Reading {
    pub(crate) fn response(&self, question: &str) -> Option<Arc<Payload>> {
        self.responses().get(question).cloned()
    }

    pub(crate) fn keep(&self, question: String, payload: &Arc<Payload>) {
        let mut responses = self.responses();
        if responses.len() < RESPONSES_MAX {
            responses.insert(question, Arc::clone(payload));
        }
    }

    fn responses(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Payload>>> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads for requests. The newest reading is held for as long as a request is at work, and one of a former moment only by what is being made of it. Until
/// that is done there is no further one: a snapshot may be large, so no more than two are held here.
#[derive(Debug)]
pub(crate) struct Readings {
    snapshots: Snapshots,
    verdicts: VerdictSource,
    decisions: DecisionSource,
    /// Held by whoever reads.
    turn: sync::Mutex<()>,
    state: Mutex<State>,
    /// Told when a reading goes.
    gone: Arc<Notify>,
    /// Times that snapshots took.
    pub(super) taken: Stopwatch,
}

#[derive(Debug, Default)]
struct State {
    /// Counts arrivals and readings.
    clock: u64,
    visits: usize,
    newest: Option<Arc<Reading>>,
    /// The one before it, while something is made of it.
    former: Weak<Reading>,
}

/// A request at work.
#[derive(Debug)]
pub(crate) struct Visit {
    readings: Arc<Readings>,
    arrived: u64,
}

impl Readings {
    pub(crate) fn new(snapshots: Snapshots, verdicts: VerdictSource, decisions: DecisionSource) -> Self {
        Self {
            snapshots,
            verdicts,
            decisions,
            turn: sync::Mutex::default(),
            state: Mutex::default(),
            gone: Arc::default(),
            taken: Stopwatch::default(),
        }
    }

    pub(crate) fn visit(self: &Arc<Self>) -> Visit {
        let mut state = self.state();
        state.clock += 1;
        state.visits += 1;
        Visit { readings: Arc::clone(self), arrived: state.clock }
    }

    /// The newest reading, while a request is at work.
    pub(crate) fn newest(&self) -> Option<Arc<Reading>> {
        self.state().newest.clone()
    }

    /// Forgets the answers that nobody takes any more.
    pub(crate) fn forget_responses(&self) {
        if let Some(newest) = self.newest() {
            newest.responses().clear();
        }
    }

    async fn former_is_gone(&self) {
        loop {
            // Asked for before looking, so that what goes in between is noticed.
            let gone = self.gone.notified();
            if self.state().former.strong_count() == 0 {
                return;
            }
            gone.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn replace(&mut self, reading: &Arc<Reading>) -> Option<Arc<Reading>> {
        let former = self.newest.replace(Arc::clone(reading));
        self.former = former.as_ref().map(Arc::downgrade).unwrap_or_default();
        former
    }
}

impl Visit {
    /// A reading begun after this request came.
    pub(crate) async fn fresh(&self) -> Result<Arc<Reading>, Problem> {
        let Self { readings, arrived } = self;
        let reading = async {
            let _turn = readings.turn.lock().await;
            if let Some(newest) = readings.newest().filter(|newest| newest.begun > *arrived) {
                return Ok(newest);
            }
            // What hangs holds up nobody else for long.
            let _ = time::timeout(FORMER_PATIENCE, readings.former_is_gone()).await;
            // Those who came at the same time come first, and share it.
            task::yield_now().await;
            let begun = {
                let mut state = readings.state();
                state.clock += 1;
                state.clock
            };
            let asked = Instant::now();
            let snapshot = readings.snapshots.take().await?;
            readings.taken.add(asked.elapsed());
            let (verdicts, decisions) = (readings.verdicts.now(), readings.decisions.now());
            let known = Observation { snapshot, verdicts, decisions };
            let gone = Arc::clone(&readings.gone);
            let reading = Arc::new(Reading { known, begun, responses: Mutex::default(), gone });
            let former = readings.state().replace(&reading);
            // Outside of the lock: it may be large.
            drop(former);
            Ok(reading)
        };
        let patience = readings.snapshots.patience();
        time::timeout(patience, reading).await.unwrap_or_else(|_| Err(no_answer(patience)))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let newest = {
            let mut state = self.readings.state();
            state.visits -= 1;
            // What is still being made of it is awaited before the next but one.
            if state.visits > 0 {
                None
            } else {
                state.newest.take().inspect(|newest| state.former = Arc::downgrade(newest))
            }
        };
        // Outside of the lock: it may be large.
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
    use model::{RecordFigures, SourceState, SourceStatus};

    use super::*;

    fn snapshot() -> Arc<Snapshot> {
        let source = SourceStatus {
            degraded: Vec::new(),
            quota_refusals: Vec::new(),
            backend: "ebpf",
            state: SourceState::Waiting { missing: Vec::new() },
            warnings: Vec::new(),
            driver: None,
            probes: Vec::new(),
            dropped_events: [].into(),
            block_records: RecordFigures::default(),
        };
        Arc::new(Snapshot::empty(SystemTime::UNIX_EPOCH, source))
    }

    /// Readings that take a second, and how many there were.
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
    async fn who_asks_while_one_is_taken_gets_the_next_and_all_who_wait_share_it() {
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
    async fn nothing_is_held_once_nobody_is_at_work() {
        let (readings, _) = readings();
        let (first, second) = (readings.visit(), readings.visit());
        let snapshot = Arc::downgrade(&first.fresh().await.unwrap().known.snapshot);
        drop(first);
        assert!(snapshot.upgrade().is_some(), "somebody is at work still");
        drop(second);
        assert!(snapshot.upgrade().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_no_further_reading_while_something_is_made_of_the_last_but_one() {
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
        let third = third.unwrap();
        assert!(third.begun > second.begun);
        assert_eq!(taken.load(Ordering::Relaxed), 3);
        // What hangs holds up nobody for long.
        assert!(readings.visit().fresh().await.unwrap().begun > third.begun && second.begun < third.begun);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_gives_up_while_it_reads_holds_up_nobody() {
        let (readings, taken) = readings();
        let gone = readings.visit();
        assert!(time::timeout(Duration::from_millis(1), gone.fresh()).await.is_err());
        drop(gone);
        readings.visit().fresh().await.unwrap();
        assert_eq!(taken.load(Ordering::Relaxed), 1);
    }
}

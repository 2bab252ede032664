//! Reading of the calls that programs with the helper record, on a separate thread.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use collector::Snapshots;
use model::{ProcessId, Snapshot};
use recorder::{Quotas, Recordings, recording::Recording};
use sys::Roots;
use tokio::sync::Semaphore;
use web::{CallsRefusal, CallsRequest, OpsSource, Source, TraceSource, Unrecorded};

use crate::notify::Turns;

/// Interval of readings: a ring holds 16,384 calls of a program's first thread.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval of checks for new processes, which the collector reads.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of the calls of a process.
const WINDOW_BYTES: usize = 4 << 20;

/// Maximum traces that are made at a time: one takes up to some 100 MiB and a second.
const TRACES_MAX: usize = 1;
/// The same for answers with calls.
const ANSWERS_MAX: usize = 8;

/// Recordings of all processes. The thread ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    recordings: Arc<Recordings>,
    /// Turns of its thread, by which it shows that it works; `None` where recordings are not enabled.
    turns: Option<Turns>,
}

impl Recorder {
    /// Starts the thread, if recordings are enabled.
    pub(crate) fn start(config: config::Recordings, snapshots: Snapshots) -> anyhow::Result<Self> {
        let (node_max, user_max) = (config.max.0 as usize, config.max_per_user.0 as usize);
        let quotas = Quotas { window_bytes: WINDOW_BYTES, user_max, node_max };
        let recordings = Arc::new(Recordings::new(Roots::default(), quotas));
        let turns = config.enabled.then(|| Turns::of("the recorder"));
        if let Some(turns) = turns.clone() {
            let weak = Arc::downgrade(&recordings);
            let thread = thread::Builder::new().name("recorder".to_owned());
            let run = move || run(&weak, &snapshots, &turns);
            thread.spawn(run).context("cannot start the thread that reads recordings")?;
        }
        Ok(Self { recordings, turns })
    }

    /// Recordings; `None` if they are not enabled.
    pub(crate) fn recordings(&self) -> Option<Arc<Recordings>> {
        self.is_enabled().then(|| Arc::clone(&self.recordings))
    }

    const fn is_enabled(&self) -> bool {
        self.turns.is_some()
    }

    /// Turns of the thread; `None` without one.
    pub(crate) fn turns(&self) -> Option<Turns> {
        self.turns.clone()
    }

    /// Source of calls.
    pub(crate) fn ops(&self) -> OpsSource {
        self.source(Places::new(ANSWERS_MAX, "lists of calls"), Recording::view)
    }

    /// Source of traces.
    pub(crate) fn traces(&self) -> TraceSource {
        self.source(Places::new(TRACES_MAX, "trace"), |recording, count| {
            let trace = recording.window().trace(count).map_err(|error| error.to_string())?;
            serde_json::to_vec(&trace).map_err(|error| error.to_string())
        })
    }

    /// Source of answers, limited by these places.
    fn source<A: Send + 'static>(
        &self,
        places: Places,
        answer: impl Fn(&Recording, usize) -> A + Clone + Send + Sync + 'static,
    ) -> Source<CallsRequest, Result<A, CallsRefusal>> {
        let (is_enabled, recordings) = (self.is_enabled(), Arc::clone(&self.recordings));
        Source::new(move |CallsRequest { process, count }| {
            let (places, recordings, answer) = (places.clone(), Arc::clone(&recordings), answer.clone());
            async move {
                if !is_enabled {
                    return Some(Err(Unrecorded("recordings.enabled is false".to_owned()).into()));
                }
                let make = move || {
                    let recording = recordings.snapshot(process);
                    let absent = || Unrecorded(recordings.not_found(process).to_string());
                    recording.map(|recording| answer(&recording, count)).ok_or_else(absent)
                };
                places.make(make).await
            }
        })
    }
}

/// Limit of answers that are made at a time.
#[derive(Clone)]
struct Places {
    free: Arc<Semaphore>,
    max: usize,
    /// Name of the answers.
    noun: &'static str,
}

impl Places {
    fn new(max: usize, noun: &'static str) -> Self {
        Self { free: Arc::new(Semaphore::new(max)), max, noun }
    }

    /// Makes an answer on a thread that may block, or refuses it at once if all places are taken. A
    /// request that waited would hold one of the few places in which all responses are built.
    async fn make<A: Send + 'static>(
        &self,
        make: impl FnOnce() -> Result<A, Unrecorded> + Send + 'static,
    ) -> Option<Result<A, CallsRefusal>> {
        let Ok(place) = Arc::clone(&self.free).try_acquire_owned() else {
            return Some(Err(CallsRefusal::Busy(format!("uvmd makes {} {} at a time", self.max, self.noun))));
        };
        // The client may have closed the connection: the place is taken until the answer is made.
        let make = move || {
            let _place = place;
            make().map_err(CallsRefusal::from)
        };
        tokio::task::spawn_blocking(make).await.ok()
    }
}

fn run(recordings: &Weak<Recordings>, snapshots: &Snapshots, turns: &Turns) {
    let mut scanned_at: Option<Instant> = None;
    while let Some(recordings) = recordings.upgrade() {
        turns.turn();
        let now = Instant::now();
        // Before the check for processes: a process that has exited since has written its last calls.
        recordings.poll();
        if scanned_at.is_none_or(|scanned_at| now.duration_since(scanned_at) >= SCAN_INTERVAL) {
            scanned_at = Some(now);
            recordings.scan(&running(&snapshots.latest()));
        }
        drop(recordings);
        thread::sleep(POLL_INTERVAL.saturating_sub(now.elapsed()));
    }
}

/// Running processes, with their users.
fn running(snapshot: &Snapshot) -> BTreeMap<ProcessId, u32> {
    let running = snapshot.processes.iter().filter(|process| process.exited_at.is_none());
    running.map(|process| (process.id, process.uid)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use recorder::NotFound;
    use tokio::time::timeout;

    use super::*;

    /// Time within which nothing hangs.
    const HANG_LIMIT: Duration = Duration::from_mins(1);

    #[test]
    fn process_without_a_helper_has_one_reason() {
        assert_eq!(Unrecorded::without_helper().0, NotFound::NoHelper.to_string());
    }

    #[tokio::test]
    async fn requests_beyond_the_places_are_refused_at_once_until_one_is_free() {
        let places = Places::new(1, "trace");
        let (release, released) = mpsc::channel::<()>();
        let (start, started) = mpsc::channel();
        let (first, of_first) = (places.clone(), move || {
            start.send(()).unwrap();
            Ok(released.recv().is_ok())
        });
        let first = tokio::spawn(async move { first.make(of_first).await });
        tokio::task::spawn_blocking(move || started.recv_timeout(HANG_LIMIT)).await.unwrap().unwrap();
        let busy = CallsRefusal::Busy("uvmd makes 1 trace at a time".to_owned());
        for _ in 0..16 {
            let refused = timeout(HANG_LIMIT, places.make(|| Ok(true))).await.expect("a refusal waits for nobody");
            assert_eq!(refused, Some(Err(busy.clone())));
        }
        // A client that has closed the connection frees no place: the answer is still being made.
        first.abort();
        assert!(first.await.is_err());
        assert_eq!(places.make(|| Ok(true)).await, Some(Err(busy)));
        drop(release);
        let free = timeout(HANG_LIMIT, places.free.acquire()).await.expect("the place is freed with the answer");
        drop(free);
        assert_eq!(places.make(|| Ok(true)).await, Some(Ok(true)));
    }
}

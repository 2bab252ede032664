//! Reading of the calls that programs with the helper record, on a separate thread.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use call_ring::call::Call;
use collector::Snapshots;
use model::{ProcessId, Snapshot};
use recorder::{
    Memories, Program, Quotas, Recordings,
    recording::{Holder, Recording, State},
    searches::Delay,
};
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

/// Calls of a process after a given number of calls.
pub(crate) enum Since {
    /// There are none, for this reason.
    Absent(String),
    /// They are not read for now, for this reason.
    Throttled(String),
    /// These calls.
    Calls {
        /// State of the program before these calls, if calls after the given number were dropped.
        program: Option<Box<Program>>,
        calls: Vec<Call>,
        /// Number of calls recorded so far.
        added: u64,
    },
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

    /// Recorder without a thread: only [`Self::poll`] reads calls.
    #[cfg(test)]
    pub(crate) fn of(recordings: Recordings) -> Self {
        Self { recordings: Arc::new(recordings), turns: Some(Turns::of("the recorder")) }
    }

    /// Reads all available calls.
    #[cfg(test)]
    pub(crate) fn poll(&self) {
        self.recordings.poll();
    }

    /// Whether recordings are enabled.
    pub(crate) const fn is_enabled(&self) -> bool {
        self.turns.is_some()
    }

    /// Turns of the thread; `None` without one.
    pub(crate) fn turns(&self) -> Option<Turns> {
        self.turns.clone()
    }

    /// Whether the calls of a process are recorded, or the reason why not.
    pub(crate) fn is_recorded(&self, process: ProcessId) -> Result<(), String> {
        let state = self.recordings.state_of(process).ok_or_else(|| absent(&self.recordings, process));
        state.and_then(|state| check(&state)).map_err(|Unread { reason, .. }| reason)
    }

    /// Memories of the helper in a process, or the reason why they are not known.
    pub(crate) fn memories(&self, process: ProcessId) -> Result<Memories, String> {
        self.is_recorded(process)?;
        self.recordings.memories(process).ok_or_else(|| "its recording has ended".to_owned())
    }

    /// Bytes of the retained calls of a process, and of the program's state before them; 0 without any.
    pub(crate) fn bytes(&self, process: ProcessId) -> usize {
        recorded(&self.recordings, process).map_or(0, |recording| recording.window().bytes())
    }

    /// Calls of a process after this number of calls; all retained ones without a number.
    pub(crate) fn since(&self, process: ProcessId, added: Option<u64>) -> Since {
        let recording = match recorded(&self.recordings, process) {
            Ok(recording) => recording,
            Err(Unread { reason, is_throttled: true }) => return Since::Throttled(reason),
            Err(Unread { reason, .. }) => return Since::Absent(reason),
        };
        let window = recording.window();
        // A recording with fewer calls than that is another one.
        let added = added.filter(|added| *added <= window.added());
        let (program, calls) = match added.and_then(|added| window.since(added)) {
            Some(calls) => (None, calls),
            None => (Some(Box::new(window.before().clone())), window.calls().cloned().collect()),
        };
        Since::Calls { program, calls, added: window.added() }
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
                    let absent = || not_found(recordings.delay_of(process));
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

/// Recording of a process as it is now, or the reason why there is none.
fn recorded(recordings: &Recordings, process: ProcessId) -> Result<Recording, Unread> {
    let recording = recordings.snapshot(process).ok_or_else(|| absent(recordings, process))?;
    check(recording.state())?;
    Ok(recording)
}

/// Reason why a process has no recording.
fn absent(recordings: &Recordings, process: ProcessId) -> Unread {
    let reason = format!("its calls are not recorded: {}", not_found(recordings.delay_of(process)).0);
    Unread { reason, is_throttled: false }
}

/// Whether calls are read in this state of a recording, or the reason why not.
fn check(state: &State) -> Result<(), Unread> {
    let reason = match state {
        State::Recording => return Ok(()),
        State::Throttled => "its calls are not read for now: its user's reader time is used up".to_owned(),
        State::Ended => "its recording has ended".to_owned(),
        State::Unreadable(reason) => format!("its recording is not readable: {reason}"),
        State::QuotaReached(Holder { uid, recordings, max }) => {
            format!("the quota of recordings is reached: user {uid} has {recordings} of {max}")
        }
    };
    Err(Unread { reason, is_throttled: *state == State::Throttled })
}

/// Reason why the calls of a process are not read.
struct Unread {
    reason: String,
    /// Whether its user's reader time is used up, for now.
    is_throttled: bool,
}

/// Reason why the helper in a process is not found.
fn not_found(delay: Option<Delay>) -> Unrecorded {
    let Some(delay) = delay else { return Unrecorded::without_helper() };
    let reason = match delay {
        Delay::Turn => "its memory map is being searched for the helper",
        Delay::Budget => {
            "its memory map is not searched for the helper until its user has processor time for searches again"
        }
        Delay::Lock => "the search for the helper waits for the lock of its memory map, which the process holds",
        Delay::LocksOfUser => "the search for the helper waits: processes of its user hold their memory maps",
    };
    Unrecorded(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::time::timeout;

    use super::*;

    /// Time within which nothing hangs.
    const HANG_LIMIT: Duration = Duration::from_mins(1);

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

//! Watches the driver, keeps the probes on it whenever it is there, and gives out snapshots.

use std::{io, sync::Arc, time::Duration};

use model::Snapshot;
use sys::families::TableError;
use thiserror::Error;
use tokio::{
    runtime,
    sync::{mpsc, oneshot, watch},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use crate::{
    config::{Config, Retention},
    handle::{Answer, Pace, Request, Snapshots},
    watcher::Watcher,
};

/// How often to look for the driver. A program that loads it makes its VA space some 100 ms later; one that is faster is found as well.
const DRIVER_EVERY: Duration = Duration::from_millis(100);
/// How often to take block records: the ring holds many more than come in that time.
const BLOCKS_EVERY: Duration = Duration::from_millis(100);
/// Interval of looks at the processes.
const PROCESSES_EVERY: Duration = Duration::from_secs(1);
/// After a reading there is none for so many times as long as that took: the kernel skips probes on a CPU that reads maps, so nobody may have them read all
/// the time...
const REST: u32 = 3;
/// ...nor for so long at the least, for what acts on what it sees...
const REST_MIN: Duration = Duration::from_millis(10);
/// ...and for clients.
const REST_OF_CLIENTS_MIN: Duration = Duration::from_millis(50);
/// Requests for a snapshot that wait while one is taken. Others wait to be queued.
const REQUESTS_MAX: usize = 64;

/// Reason why there is no collector.
#[derive(Debug, Error)]
pub enum StartError {
    /// The table of driver layouts, which is built in, has a mistake.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The system gives no thread, or no event loop for it.
    #[error("cannot start the collector's thread: {0}")]
    Thread(#[from] io::Error),
    /// The thread ended at once; what it said is in the log.
    #[error("the collector ended while it started")]
    Ended,
}

/// The source of snapshots, on a thread of its own. It works until it is stopped, or dropped.
#[derive(Debug)]
pub struct Collector {
    snapshots: Snapshots,
    retention: watch::Sender<Retention>,
    stop: oneshot::Sender<()>,
    /// Never sent to: it ends when the thread has let go of all that it had, be it by a panic.
    ended: oneshot::Receiver<()>,
}

impl Collector {
    /// Starts. A driver that is there already is probed when this is ready, which may take a second. Given up before, it ends by itself.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let every = config.interval;
        let (retention, retained) = watch::channel(config.retention());
        let (requests, requested) = mpsc::channel(REQUESTS_MAX);
        let (stop, stopped) = oneshot::channel();
        let (started, starting) = oneshot::channel();
        let ended = on_its_own_thread(async move {
            let (watcher, publish) = match Watcher::new(config) {
                Ok(watcher) => {
                    let (publish, latest) = watch::channel(Arc::new(watcher.snapshot()));
                    // Whoever started this waits for it.
                    let _ = started.send(Ok(latest));
                    (watcher, publish)
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            tokio::select! {
                _ = stopped => {}
                () = run(watcher, every, publish, requested, retained) => {}
            }
        })?;
        let latest = starting.await.map_err(|_| StartError::Ended)??;
        Ok(Self { snapshots: Snapshots { latest, requests }, retention, stop, ended })
    }

    /// Where to get snapshots.
    #[must_use]
    pub fn snapshots(&self) -> Snapshots {
        self.snapshots.clone()
    }

    /// Keeps so much from now on.
    pub fn retain(&self, retention: Retention) {
        self.retention.send_replace(retention);
    }

    /// Returns when the collector has ended by itself, which only a mistake in it can bring about: from then on there are no new snapshots, and
    /// the service should end too, for its supervisor to start it again.
    pub async fn ended(&mut self) {
        if !self.ended.is_terminated() {
            // Always an error: nothing is ever sent.
            let _ = (&mut self.ended).await;
        }
    }

    /// Detaches the probes and frees their maps; nothing is left in the kernel when this returns.
    pub async fn stop(mut self) {
        let (gone, _) = oneshot::channel();
        drop(std::mem::replace(&mut self.stop, gone));
        self.ended().await;
    }
}

/// Works on a thread, which may block as no thread of the service may. The result ends with it.
fn on_its_own_thread(work: impl Future<Output = ()> + Send + 'static) -> io::Result<oneshot::Receiver<()>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (end, ended) = oneshot::channel();
    std::thread::Builder::new().name("collector".to_owned()).spawn(move || {
        // Dropped last, after what the work held, also when it panics.
        let _end: oneshot::Sender<()> = end;
        runtime.block_on(work);
        runtime.shutdown_background();
    })?;
    Ok(ended)
}

async fn run(
    mut watcher: Watcher,
    every: Duration,
    publish: watch::Sender<Arc<Snapshot>>,
    mut requests: mpsc::Receiver<Request>,
    mut retained: watch::Receiver<Retention>,
) {
    let ticks = |every| {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let mut read = interval(every);
    // At one pace however long a reading takes, as history is kept by it.
    read.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut driver, mut processes) = (ticks(DRIVER_EVERY), ticks(PROCESSES_EVERY));
    let mut blocks = ticks(BLOCKS_EVERY);
    // When those may be served who wait for a snapshot, and those of them who want it soon.
    let (mut next_steady, mut next_prompt) = (Instant::now(), Instant::now());
    let mut waiting: Vec<Answer<Arc<Snapshot>>> = Vec::new();
    let mut is_prompt = false;
    loop {
        let mut is_regular = false;
        tokio::select! {
            () = watcher.lifecycles_ready() => {
                watcher.take_lifecycles();
                // After a rest, whoever makes it urgent: the next regular reading is not far.
                if !watcher.is_urgent() || Instant::now() < next_prompt {
                    continue;
                }
            }
            _ = driver.tick() => {
                watcher.look();
                continue;
            }
            _ = blocks.tick() => {
                watcher.take_blocks();
                continue;
            }
            _ = processes.tick() => {
                watcher.look_at_processes();
                continue;
            }
            // With nobody left to change it, it stays as it is.
            Ok(()) = retained.changed() => {
                let retention = *retained.borrow_and_update();
                watcher.retain(retention);
                continue;
            }
            _ = read.tick() => is_regular = true,
            // Without a sender left nobody can ask; the latest snapshot still has readers.
            Some(request) = requests.recv() => {
                // Whoever asked may have gone.
                match request {
                    Request::Snapshot(pace, answer) => {
                        is_prompt |= pace == Pace::Prompt;
                        waiting.push(answer);
                    }
                    Request::Heat(request, answer) => drop(answer.send(watcher.heat(&request))),
                    Request::History(request, answer) => drop(answer.send(watcher.lately(&request))),
                    Request::Memory(process, answer) => drop(answer.send(watcher.memory_of(process))),
                }
                continue;
            }
            () = sleep_until(if is_prompt { next_prompt } else { next_steady }), if !waiting.is_empty() => watcher.look(),
        }
        let begun = Instant::now();
        watcher.read();
        let snapshot = Arc::new(watcher.snapshot());
        if is_regular {
            watcher.keep(&snapshot);
        }
        publish.send_replace(Arc::clone(&snapshot));
        // Everyone who has asked by now is served by one reading. Whoever asked may have gone.
        for request in waiting.drain(..) {
            let _ = request.send(Arc::clone(&snapshot));
        }
        is_prompt = false;
        let rest = begun.elapsed() * REST;
        next_prompt = Instant::now() + rest.max(REST_MIN);
        next_steady = Instant::now() + rest.max(REST_OF_CLIENTS_MIN);
    }
}

#[cfg(test)]
mod tests {
    use sys::fake::Machine;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn readings_are_50_ms_apart_however_often_someone_asks_and_10_for_what_acts() {
        let machine = Machine::new();
        // No regular reading comes in between.
        let every = Duration::from_hours(1);
        let watcher = Watcher::new(Config { roots: machine.roots.clone(), ..Config::default() }).unwrap();
        let (publish, latest) = watch::channel(Arc::new(watcher.snapshot()));
        let (_retention, retained) = watch::channel(Config::default().retention());
        let (requests, requested) = mpsc::channel(REQUESTS_MAX);
        let snapshots = Snapshots { latest, requests };
        let asking = async {
            // The regular reading with which it begins serves this one.
            snapshots.fresh().await.unwrap();
            let mut gaps_ms = Vec::new();
            let mut last = Instant::now();
            for pace in [Pace::Steady, Pace::Steady, Pace::Steady, Pace::Prompt, Pace::Prompt, Pace::Steady] {
                match pace {
                    Pace::Steady => snapshots.fresh().await.unwrap(),
                    Pace::Prompt => snapshots.prompt().await.unwrap(),
                };
                gaps_ms.push(last.elapsed().as_millis());
                last = Instant::now();
            }
            gaps_ms
        };
        let gaps_ms = tokio::select! {
            gaps_ms = asking => gaps_ms,
            () = run(watcher, every, publish, requested, retained) => panic!("it ended by itself"),
        };
        // A timer may be a millisecond late.
        let expected = [50, 50, 50, 10, 10, 50];
        assert!(
            gaps_ms.len() == expected.len()
                && gaps_ms.iter().zip(expected).all(|(gap, rest)| (rest..=rest + 1).contains(gap)),
            "{gaps_ms:?}"
        );
    }

    #[tokio::test]
    async fn a_collector_that_panics_has_ended_and_let_go_of_what_it_had() {
        let held = Arc::new(());
        let holds = Arc::clone(&held);
        let ended = on_its_own_thread(async move {
            tokio::task::yield_now().await;
            assert_eq!(Arc::strong_count(&holds), 0, "a panic, as a test");
        });
        assert!(ended.unwrap().await.is_err());
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

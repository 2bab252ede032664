//! Collector: monitors the driver, attaches the probes while it is loaded, and provides snapshots.

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
    handle::{Answer, Exempt, Exemptions, Pace, Request, Snapshots},
    watcher::Watcher,
};

/// Interval of checks for the driver. A program that loads it creates its VA space some 100 ms
/// later; a faster one is found as well.
const DRIVER_EVERY: Duration = Duration::from_millis(100);
/// Interval of reads of block records: the ring holds many more than arrive in that time.
const BLOCKS_EVERY: Duration = Duration::from_millis(100);
/// Interval of checks of the processes.
const PROCESSES_EVERY: Duration = Duration::from_secs(1);
/// Pause after a reading, as a multiple of its duration: the kernel skips probes on a CPU that
/// reads maps, so readings must not be continuous...
const REST: u32 = 3;
/// ...with this minimum for the loop that acts...
const REST_MIN: Duration = Duration::from_millis(10);
/// ...and this one for clients.
const REST_OF_CLIENTS_MIN: Duration = Duration::from_millis(50);
/// Capacity of the queue of snapshot requests. Further ones wait to be queued.
const REQUESTS_MAX: usize = 64;

/// Reason why there is no collector.
#[derive(Debug, Error)]
pub enum StartError {
    /// Mistake in the built-in table of driver layouts.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The system cannot create a thread, or its event loop.
    #[error("cannot start the collector's thread: {0}")]
    Thread(#[from] io::Error),
    /// The thread ended at once; its error is in the log.
    #[error("the collector ended while it started")]
    Ended,
}

/// Source of snapshots, on a separate thread. It runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Collector {
    snapshots: Snapshots,
    retention: watch::Sender<Retention>,
    exemptions: Exemptions,
    stop: oneshot::Sender<()>,
    /// Nothing is sent: it closes when the thread has released all resources, even by a panic.
    ended: oneshot::Receiver<()>,
}

impl Collector {
    /// Starts the collector. A loaded driver is probed on return, which may take a second. If the
    /// future is dropped before, the collector ends by itself.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let every = config.interval;
        let (retention, retained) = watch::channel(config.retention());
        let (exempt, exemptions) = watch::channel(Exempt::default());
        let (requests, requested) = mpsc::channel(REQUESTS_MAX);
        let (stop, stopped) = oneshot::channel();
        let (started, starting) = oneshot::channel();
        let ended = on_its_own_thread(async move {
            let (watcher, publish) = match Watcher::new(config) {
                Ok(watcher) => {
                    let (publish, latest) = watch::channel(Arc::new(watcher.snapshot()));
                    // The caller waits for it.
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
                () = run(watcher, every, publish, requested, (retained, exemptions)) => {}
            }
        })?;
        let latest = starting.await.map_err(|_| StartError::Ended)??;
        Ok(Self { snapshots: Snapshots { latest, requests }, retention, exemptions: Exemptions(exempt), stop, ended })
    }

    /// Handle to the snapshots.
    #[must_use]
    pub fn snapshots(&self) -> Snapshots {
        self.snapshots.clone()
    }

    /// Sets the limits of retention.
    pub fn retain(&self, retention: Retention) {
        self.retention.send_replace(retention);
    }

    /// Handle to the processes that are not cross-checked.
    #[must_use]
    pub fn exemptions(&self) -> Exemptions {
        self.exemptions.clone()
    }

    /// Returns when the collector has ended by itself, which only a bug can cause: there are no new
    /// snapshots then, and the service should end too, for its supervisor to restart it.
    pub async fn ended(&mut self) {
        if !self.ended.is_terminated() {
            // Always an error: nothing is ever sent.
            let _ = (&mut self.ended).await;
        }
    }

    /// Detaches the probes and frees their maps; no resource in the kernel is left on return.
    pub async fn stop(mut self) {
        let (gone, _) = oneshot::channel();
        drop(std::mem::replace(&mut self.stop, gone));
        self.ended().await;
    }
}

/// Runs a future on a separate thread, which may block, unlike the service's threads. The receiver
/// closes when it ends.
fn on_its_own_thread(work: impl Future<Output = ()> + Send + 'static) -> io::Result<oneshot::Receiver<()>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (end, ended) = oneshot::channel();
    std::thread::Builder::new().name("collector".to_owned()).spawn(move || {
        // Dropped last, after the future's resources, even in a panic.
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
    (mut retained, mut exemptions): (watch::Receiver<Retention>, watch::Receiver<Exempt>),
) {
    let ticks = |every| {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let mut read = interval(every);
    // At a constant rate however long a reading takes, as history depends on it.
    read.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut driver, mut processes) = (ticks(DRIVER_EVERY), ticks(PROCESSES_EVERY));
    let mut blocks = ticks(BLOCKS_EVERY);
    // Earliest times for steady and for prompt requests.
    let (mut next_steady, mut next_prompt) = (Instant::now(), Instant::now());
    let mut waiting: Vec<Answer<Arc<Snapshot>>> = Vec::new();
    let mut is_prompt = false;
    loop {
        let mut is_regular = false;
        tokio::select! {
            () = watcher.lifecycles_ready() => {
                watcher.take_lifecycles();
                // After a pause, even if it is urgent: the next regular reading is near.
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
                watcher.poll_driver_state();
                watcher.look_at_processes();
                continue;
            }
            // Without a sender, the limits stay.
            Ok(()) = retained.changed() => {
                let retention = *retained.borrow_and_update();
                watcher.retain(retention);
                continue;
            }
            Ok(()) = exemptions.changed() => {
                let exempt = Arc::clone(&exemptions.borrow_and_update());
                watcher.exempt(exempt);
                continue;
            }
            _ = read.tick() => is_regular = true,
            // Without a sender no request can come; the latest snapshot still has readers.
            Some(request) = requests.recv() => {
                // The requester may have gone.
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
        // One reading serves all pending requests. A requester may have gone.
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
    async fn requested_readings_are_50_ms_apart_and_10_ms_for_acting() {
        let machine = Machine::new();
        // No regular reading in between.
        let every = Duration::from_hours(1);
        let watcher = Watcher::new(Config { roots: machine.roots.clone(), ..Config::default() }).unwrap();
        let (publish, latest) = watch::channel(Arc::new(watcher.snapshot()));
        let (_retention, retained) = watch::channel(Config::default().retention());
        let (_exempt, exemptions) = watch::channel(Exempt::default());
        let (requests, requested) = mpsc::channel(REQUESTS_MAX);
        let snapshots = Snapshots { latest, requests };
        let asking = async {
            // The initial regular reading serves this one.
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
            () = run(watcher, every, publish, requested, (retained, exemptions)) => panic!("it ended by itself"),
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
    async fn panicked_collector_has_ended_and_released_its_resources() {
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

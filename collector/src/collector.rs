//! Watches the driver, keeps the probes on it whenever it is there, and gives out snapshots.

use std::{future, sync::Arc, time::Duration};

use model::Snapshot;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

use crate::{families::TableError, roots::Roots, watcher::Watcher};

/// How often to look for the driver, and at the processes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Requests for a snapshot that wait while one is taken. Others wait to be queued.
const REQUESTS_MAX: usize = 64;

/// What can be chosen.
#[derive(Clone, Debug)]
pub struct Config {
    /// How often counts are read when nobody asks.
    pub interval: Duration,
    /// How long a process is kept after its end.
    pub ended_retention: Duration,
    /// How many ended processes are kept at most.
    pub ended_max: usize,
    /// Where /proc and /sys are.
    pub roots: Roots,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            ended_retention: Duration::from_mins(5),
            ended_max: 1024,
            roots: Roots::default(),
        }
    }
}

/// The source of snapshots. It works until it is stopped, or dropped.
#[derive(Debug)]
pub struct Collector {
    snapshots: Snapshots,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Gives out snapshots. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Snapshots {
    latest: watch::Receiver<Arc<Snapshot>>,
    requests: mpsc::Sender<Request>,
}

type Request = oneshot::Sender<Arc<Snapshot>>;

impl Collector {
    /// Starts. Must be called within a tokio runtime that has its I/O and its timer enabled.
    ///
    /// A driver that is there already is probed before this returns.
    ///
    /// # Errors
    /// If the table of driver layouts, which is built in, has a mistake.
    pub fn start(config: Config) -> Result<Self, TableError> {
        let every = config.interval;
        let watcher = Watcher::new(config)?;
        let (publish, latest) = watch::channel(Arc::new(watcher.snapshot()));
        let (requests, requested) = mpsc::channel(REQUESTS_MAX);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run(watcher, every, publish, requested, stopped));
        Ok(Self { snapshots: Snapshots { latest, requests }, stop, task })
    }

    /// Where to get snapshots.
    #[must_use]
    pub fn snapshots(&self) -> Snapshots {
        self.snapshots.clone()
    }

    /// Detaches the probes and frees their maps; nothing is left in the kernel when this returns.
    pub async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::error!("the collector ended badly: {error}");
        }
    }
}

impl Snapshots {
    /// The snapshot taken last: at most an interval old.
    #[must_use]
    pub fn latest(&self) -> Arc<Snapshot> {
        Arc::clone(&self.latest.borrow())
    }

    /// A snapshot whose counts are no older than this call. `None` once the collector has stopped.
    pub async fn fresh(&self) -> Option<Arc<Snapshot>> {
        let (request, answer) = oneshot::channel();
        self.requests.send(request).await.ok()?;
        answer.await.ok()
    }
}

async fn run(
    mut watcher: Watcher,
    every: Duration,
    publish: watch::Sender<Arc<Snapshot>>,
    mut requests: mpsc::Receiver<Request>,
    mut stopped: oneshot::Receiver<()>,
) {
    let ticks = |every| {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let (mut look, mut read) = (ticks(LOOK_EVERY), ticks(every));
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            () = watcher.lifecycles_ready() => watcher.take_lifecycles(),
            _ = look.tick() => {
                watcher.look();
                watcher.look_at_processes();
            }
            _ = read.tick() => {
                watcher.read();
                publish.send_replace(Arc::new(watcher.snapshot()));
            }
            request = requests.recv() => {
                let Some(first) = request else {
                    // Nobody is left who could ask; the latest snapshot still has readers.
                    future::pending::<()>().await;
                    continue;
                };
                // Everyone who has asked by now is served by one reading.
                let mut waiting = vec![first];
                while let Ok(next) = requests.try_recv() {
                    waiting.push(next);
                }
                watcher.look();
                watcher.read();
                let snapshot = Arc::new(watcher.snapshot());
                publish.send_replace(Arc::clone(&snapshot));
                for request in waiting {
                    // Whoever asked may have gone.
                    let _ = request.send(Arc::clone(&snapshot));
                }
            }
        }
    }
}

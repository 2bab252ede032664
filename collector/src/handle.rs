//! Handle to the collector: requests from any thread.

use std::{collections::HashSet, sync::Arc};

use model::{HeatMap, HeatRequest, History, HistoryRequest, Memory, ProcessId, Snapshot};
use tokio::sync::{mpsc, oneshot, watch};

/// Handle to the collector's snapshots. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Snapshots {
    pub(crate) latest: watch::Receiver<Arc<Snapshot>>,
    pub(crate) requests: mpsc::Sender<Request>,
}

/// Processes that are not cross-checked.
pub(crate) type Exempt = Arc<HashSet<ProcessId>>;

/// Handle to the processes that are not cross-checked. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Exemptions(pub(crate) watch::Sender<Exempt>);

impl Exemptions {
    /// Sets the processes. A check of one of them ends.
    pub fn set(&self, processes: HashSet<ProcessId>) {
        self.0.send_if_modified(|exempt| {
            let has_changed = **exempt != processes;
            if has_changed {
                *exempt = Arc::new(processes);
            }
            has_changed
        });
    }
}

pub(crate) type Answer<T> = oneshot::Sender<T>;

/// Minimum interval between readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// For clients of the service.
    Steady,
    /// For the loop that acts.
    Prompt,
}

/// Request to the collector.
#[derive(Debug)]
pub(crate) enum Request {
    Snapshot(Pace, Answer<Arc<Snapshot>>),
    Heat(HeatRequest, Answer<Option<HeatMap>>),
    History(HistoryRequest, Answer<Option<History>>),
    Memory(ProcessId, Answer<Option<Memory>>),
}

impl Snapshots {
    /// Last snapshot: at most an interval old.
    #[must_use]
    pub fn latest(&self) -> Arc<Snapshot> {
        Arc::clone(&self.latest.borrow())
    }

    /// Next snapshot of any requester; those between two calls are skipped. `None` once the
    /// collector has stopped.
    pub async fn next(&mut self) -> Option<Arc<Snapshot>> {
        self.latest.changed().await.ok()?;
        Some(Arc::clone(&self.latest.borrow_and_update()))
    }

    /// Snapshot whose counts are no older than this call. `None` once the collector has stopped.
    pub async fn fresh(&self) -> Option<Arc<Snapshot>> {
        self.ask(|answer| Request::Snapshot(Pace::Steady, answer)).await
    }

    /// Fresh snapshot with a shorter minimum interval. Not for clients, which are many.
    pub async fn prompt(&self) -> Option<Arc<Snapshot>> {
        self.ask(|answer| Request::Snapshot(Pace::Prompt, answer)).await
    }

    /// Heat map of a process; `Some(None)` if the process is unknown. `None` once the collector has
    /// stopped.
    pub async fn heat(&self, request: HeatRequest) -> Option<Option<HeatMap>> {
        self.ask(|answer| Request::Heat(request, answer)).await
    }

    /// Recent counts; `Some(None)` for an unknown subject. `None` once the collector has stopped.
    pub async fn history(&self, request: HistoryRequest) -> Option<Option<History>> {
        self.ask(|answer| Request::History(request, answer)).await
    }

    /// All known blocks and ranges of a process; `Some(None)` if the process is unknown. `None`
    /// once the collector has stopped.
    pub async fn memory(&self, process: ProcessId) -> Option<Option<Memory>> {
        self.ask(|answer| Request::Memory(process, answer)).await
    }

    async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.requests.send(request(sender)).await.ok()?;
        answer.await.ok()
    }
}

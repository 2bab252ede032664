//! Sources of responses: any asynchronous functions, one for each kind of request.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use model::{HeatMap, HeatRequest, History, HistoryRequest, ProcessId, Snapshot, Verdicts};

use crate::{
    control::{Controls, DecisionSource, NoControl},
    events::Events,
    problem::{Kind, Problem},
};

/// Maximum wait for a source by default. Reading all counters takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);

type Future<A> = Pin<Box<dyn std::future::Future<Output = Option<A>> + Send>>;

/// Source of one kind of data. No result means that the collector has stopped.
pub struct Source<Q, A> {
    fetch: Arc<dyn Fn(Q) -> Future<A> + Send + Sync>,
    timeout: Duration,
}

/// Source of heat maps; `None` for an unknown process.
pub type Heat = Source<HeatRequest, Option<HeatMap>>;
/// Request for the last calls of a process, so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallsRequest {
    /// Process.
    pub process: ProcessId,
    /// Maximum number of calls.
    pub count: usize,
}

/// Reason why no calls of a process are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrecorded(pub String);

impl Unrecorded {
    /// The helper records nothing in the program.
    #[must_use]
    pub fn without_helper() -> Self {
        Self("the helper is not in it, or is off, as under a seccomp filter (docs/troubleshooting.md)".to_owned())
    }
}

/// Refusal of a request for recorded calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallsRefusal {
    /// There are no such calls.
    Unrecorded(Unrecorded),
    /// The maximum of responses with calls is being made: the detail for the client.
    Busy(String),
}

impl From<Unrecorded> for CallsRefusal {
    fn from(unrecorded: Unrecorded) -> Self {
        Self::Unrecorded(unrecorded)
    }
}

/// Source of recorded calls.
pub type OpsSource = Source<CallsRequest, Result<api::Ops, CallsRefusal>>;
/// Source of recorded calls as a trace, in JSON, or the reason why there is no trace of as many calls.
pub type TraceSource = Source<CallsRequest, Result<Result<Vec<u8>, String>, CallsRefusal>>;
/// Source of recent counts; `None` if the subject is unknown.
pub type HistorySource = Source<HistoryRequest, Option<History>>;

/// Source of snapshots, with counts no older than the request.
#[derive(Clone, Debug)]
pub struct Snapshots(Source<(), Arc<Snapshot>>);

/// Source of the current verdicts.
#[derive(Clone)]
pub struct VerdictSource(Arc<dyn Fn() -> Arc<Verdicts> + Send + Sync>);

/// Sources of all responses.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Snapshots of the collector.
    pub snapshots: Snapshots,
    /// Heat maps of processes.
    pub heat: Heat,
    /// Recent counts.
    pub history: HistorySource,
    /// Recorded calls.
    pub ops: OpsSource,
    /// Recorded calls as traces.
    pub traces: TraceSource,
    /// Verdicts on processes.
    pub verdicts: VerdictSource,
    /// Decisions of policies.
    pub decisions: DecisionSource,
    /// Stream of events.
    pub events: Events,
    /// Overrides and the kill switch.
    pub controls: Controls,
}

// === impl Source ===

impl<Q, A> Source<Q, A> {
    /// Source that calls `fetch`.
    pub fn new<F>(fetch: impl Fn(Q) -> F + Send + Sync + 'static) -> Self
    where
        F: std::future::Future<Output = Option<A>> + Send + 'static,
    {
        Self { fetch: Arc::new(move |request| Box::pin(fetch(request))), timeout: TIMEOUT }
    }

    /// Requests data, with a time limit.
    pub(crate) async fn request(&self, request: Q) -> Result<A, Problem> {
        let Self { fetch, timeout } = self;
        match tokio::time::timeout(*timeout, fetch(request)).await {
            Ok(Some(data)) => Ok(data),
            Ok(None) => Err(Problem::new(Kind::CollectorUnavailable, "the collector has stopped".to_owned())),
            Err(_) => Err(timed_out(*timeout)),
        }
    }
}

/// Problem of a collector that exceeded the time limit.
pub(crate) fn timed_out(timeout: Duration) -> Problem {
    let detail = format!("the collector did not respond within {} s", timeout.as_secs());
    Problem::new(Kind::CollectorUnavailable, detail)
}

impl<Q, A> Clone for Source<Q, A> {
    fn clone(&self) -> Self {
        Self { fetch: Arc::clone(&self.fetch), timeout: self.timeout }
    }
}

impl<Q, A> fmt::Debug for Source<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

// === impl Snapshots ===

impl Snapshots {
    /// Snapshots taken by `take`.
    pub fn new<F>(take: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: std::future::Future<Output = Option<Arc<Snapshot>>> + Send + 'static,
    {
        Self(Source::new(move |()| take()))
    }

    /// Sets the time limit of a request: 5 s by default.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        Self(Source { timeout, ..self.0 })
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.0.timeout
    }

    pub(crate) async fn take(&self) -> Result<Arc<Snapshot>, Problem> {
        self.0.request(()).await
    }
}

// === impl VerdictSource ===

impl VerdictSource {
    /// Source that calls `verdicts`.
    pub fn new(verdicts: impl Fn() -> Arc<Verdicts> + Send + Sync + 'static) -> Self {
        Self(Arc::new(verdicts))
    }

    pub(crate) fn now(&self) -> Arc<Verdicts> {
        let Self(verdicts) = self;
        verdicts()
    }
}

impl fmt::Debug for VerdictSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerdictSource")
    }
}

// === impl Sources ===

impl From<Snapshots> for Sources {
    /// Sources with snapshots alone: no heat maps, histories, recordings, verdicts or decisions, and no
    /// changes.
    fn from(snapshots: Snapshots) -> Self {
        Self {
            snapshots,
            heat: Source::new(|_| std::future::ready(Some(None))),
            history: Source::new(|_| std::future::ready(Some(None))),
            ops: Source::new(|_| std::future::ready(Some(Err(Unrecorded::without_helper().into())))),
            traces: Source::new(|_| std::future::ready(Some(Err(Unrecorded::without_helper().into())))),
            verdicts: VerdictSource::new(Arc::default),
            decisions: DecisionSource::new(Arc::default),
            events: Events::default(),
            controls: Controls::new(NoControl),
        }
    }
}

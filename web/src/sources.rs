//! Where answers come from: any asynchronous functions, one for each kind of question.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use model::{HeatMap, HeatRequest, History, HistoryRequest, Snapshot, Verdicts};

use crate::{
    control::{Controls, DecisionSource, NoControl},
    events::Events,
    problem::{Kind, Problem},
};

/// How long a request waits for its answer, unless another limit is set. Reading every counter takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

type Future<A> = Pin<Box<dyn std::future::Future<Output = Option<A>> + Send>>;

/// Responses questions of one kind. No answer at all means that the collector is gone.
pub struct Source<Q, A> {
    answer: Arc<dyn Fn(Q) -> Future<A> + Send + Sync>,
    patience: Duration,
}

/// Responses with the memory of a process in cells; `None` if the process is not known.
pub type Heat = Source<HeatRequest, Option<HeatMap>>;
/// Responses with what was counted lately; `None` if nothing is known of it.
pub type HistorySource = Source<HistoryRequest, Option<History>>;

/// Takes a snapshot for each request, with counts no older than the moment of asking.
#[derive(Clone, Debug)]
pub struct Snapshots(Source<(), Arc<Snapshot>>);

/// Tells the verdicts as they are now.
#[derive(Clone)]
pub struct VerdictSource(Arc<dyn Fn() -> Arc<Verdicts> + Send + Sync>);

/// All of them.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Everything known at one moment.
    pub snapshots: Snapshots,
    /// Where in a process's memory it happens.
    pub heat: Heat,
    /// What was counted lately.
    pub history: HistorySource,
    /// What is wrong.
    pub verdicts: VerdictSource,
    /// What was decided about it.
    pub decisions: DecisionSource,
    /// What happens.
    pub events: Events,
    /// What operators change.
    pub controls: Controls,
}

// === impl Source ===

impl<Q, A> Source<Q, A> {
    /// Responses by `answer`.
    pub fn new<F>(answer: impl Fn(Q) -> F + Send + Sync + 'static) -> Self
    where
        F: std::future::Future<Output = Option<A>> + Send + 'static,
    {
        Self { answer: Arc::new(move |question| Box::pin(answer(question))), patience: PATIENCE }
    }

    /// Asks, and does not wait for ever.
    pub(crate) async fn ask(&self, question: Q) -> Result<A, Problem> {
        let Self { answer, patience } = self;
        match tokio::time::timeout(*patience, answer(question)).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(Problem::new(Kind::CollectorUnavailable, "the collector has stopped".to_owned())),
            Err(_) => Err(no_answer(*patience)),
        }
    }
}

/// The collector takes longer than this.
pub(crate) fn no_answer(patience: Duration) -> Problem {
    let detail = format!("the collector did not answer within {} s", patience.as_secs());
    Problem::new(Kind::CollectorUnavailable, detail)
}

impl<Q, A> Clone for Source<Q, A> {
    fn clone(&self) -> Self {
        Self { answer: Arc::clone(&self.answer), patience: self.patience }
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

    /// The same, where a request waits for as long as this at most: 5 s unless it is set.
    #[must_use]
    pub fn within(self, patience: Duration) -> Self {
        Self(Source { patience, ..self.0 })
    }

    pub(crate) const fn patience(&self) -> Duration {
        self.0.patience
    }

    pub(crate) async fn take(&self) -> Result<Arc<Snapshot>, Problem> {
        self.0.ask(()).await
    }
}

// === impl VerdictSource ===

impl VerdictSource {
    /// Verdicts that `verdicts` tells.
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
    /// Of snapshots alone: nothing is known of the rest, nothing is wrong, and nothing can be changed.
    fn from(snapshots: Snapshots) -> Self {
        Self {
            snapshots,
            heat: Source::new(|_| std::future::ready(Some(None))),
            history: Source::new(|_| std::future::ready(Some(None))),
            verdicts: VerdictSource::new(Arc::default),
            decisions: DecisionSource::new(Arc::default),
            events: Events::default(),
            controls: Controls::new(NoControl),
        }
    }
}

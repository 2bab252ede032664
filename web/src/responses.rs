//! Responses that may be large: each is made once of what was read at one moment, off the event loop, and shared by all who ask for the same.
//!
//! * [`readings`]: what they are made of
//! * [`flight`]: those that are being made, which others wait for too
//! * [`lane`]: where they are made, so many at a time; the metrics have a lane of their own
//! * [`budget`]: the memory that they may take until they are sent

mod budget;
mod flight;
mod lane;
mod readings;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use axum::{
    Extension,
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use budget::{Budget, Reservation};
use flight::{Flights, Make, Since};
pub(crate) use lane::on_a_thread;
use lane::{Lane, failed};
use model::Distribution;
use readings::Readings;
pub(crate) use readings::{Observation, Reading};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, value::RawValue};

use crate::{
    Sources,
    connection::BudgetKind,
    connection_table::ConnectionTable,
    paging::{PAGE_BYTES_MAX, Page},
    peers::{PeerKey, Shares},
    problem::Problem,
};

/// Responses made at once: as many as the event loop has threads, so that it always gets its share.
const BUILDS: usize = 2;
/// Others that wait for that, of all and of one peer.
const WAITING_MAX: usize = 64;
const WAITING_OF_PEER_MAX: usize = 16;
/// Memory for answers.
const BUDGET_BYTES: usize = 24 << 20;
/// What an answer is expected to take before it is made: a page of a list takes no more, and few others do.
const RESPONSE_BYTES: usize = PAGE_BYTES_MAX + (64 << 10);

const EXPOSITIONS_WAITING_MAX: usize = 4;
const EXPOSITION_BUDGET_BYTES: usize = 16 << 20;
/// The metrics of 256 owners on 8 GPUs are 6 MiB.
const EXPOSITION_BYTES: usize = 8 << 20;

/// Makes answers. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Responses {
    /// Who asks.
    asker: PeerKey,
    readings: Arc<Readings>,
    flights: Arc<Flights>,
    lists: Arc<Lane>,
    exposition: Arc<Lane>,
}

/// The text of an answer, and the memory reserved for it.
pub(crate) struct Payload {
    content_type: &'static str,
    text: Vec<u8>,
    reservation: Reservation,
}

/// An answer, which others may have as well.
#[derive(Debug)]
pub(crate) struct SharedResponse(Arc<Payload>);

/// The text of an answer as it was made.
pub(crate) struct Text {
    content_type: &'static str,
    text: Vec<u8>,
}

/// What making answers is like, for the metrics.
pub(crate) struct Figures {
    /// Bytes held for answers.
    pub(crate) bytes: usize,
    /// Responses made.
    pub(crate) built: u64,
    /// Requests turned away as too many waited.
    pub(crate) rejected_by_queue: u64,
    /// Requests turned away for want of memory.
    pub(crate) rejected_by_budget: u64,
}

// === impl Text ===

impl Text {
    pub(crate) fn json(body: &impl Serialize) -> Self {
        // Nothing in it has keys that are no text.
        Self { content_type: "application/json", text: serde_json::to_vec(body).unwrap_or_default() }
    }

    /// A page of a list: the fields beside its list, and that; or those, where it has several.
    pub(crate) fn page(fields: &[(&str, Value)], lists: &[(&str, &[Box<RawValue>])], page: &Page) -> Self {
        // Nothing in it has keys that are no text.
        Self { content_type: "application/json", text: written(fields, lists, page).unwrap_or_default() }
    }

    pub(crate) fn of_type(content_type: &'static str, text: Vec<u8>) -> Self {
        Self { content_type, text }
    }
}

fn written(
    fields: &[(&str, Value)],
    lists: &[(&str, &[Box<RawValue>])],
    Page { items, r#continue, remaining, .. }: &Page,
) -> serde_json::Result<Vec<u8>> {
    const BESIDE_ITEMS: usize = 4 << 10;
    let bytes: usize = items.iter().map(|item| item.get().len() + 1).sum();
    let mut text = Vec::with_capacity(bytes + BESIDE_ITEMS);
    let mut serializer = serde_json::Serializer::new(&mut text);
    let mut body = serializer.serialize_map(None)?;
    for (name, value) in fields {
        body.serialize_entry(name, value)?;
    }
    for (name, items) in lists {
        body.serialize_entry(name, items)?;
    }
    body.serialize_entry("continue", r#continue)?;
    body.serialize_entry("remaining", remaining)?;
    body.end()?;
    Ok(text)
}

// === impl SharedResponse ===

impl AsRef<[u8]> for SharedResponse {
    fn as_ref(&self) -> &[u8] {
        &self.0.text
    }
}

impl IntoResponse for SharedResponse {
    fn into_response(self) -> Response {
        let content_type = self.0.content_type;
        let holding = self.0.reservation.holding();
        // Held until the last byte of it is sent.
        let body = Body::from(Bytes::from_owner(self));
        ([(header::CONTENT_TYPE, content_type)], Extension(holding), body).into_response()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.text.len())
    }
}

// === impl Responses ===

impl Responses {
    pub(crate) fn new(
        Sources { snapshots, verdicts, decisions, .. }: &Sources,
        directory: &Arc<ConnectionTable>,
    ) -> Self {
        let budget = |kind, bytes| Budget::new(kind, bytes, Arc::clone(directory));
        let readings = Arc::new(Readings::new(snapshots.clone(), verdicts.clone(), decisions.clone()));
        let waiting = Shares::new(WAITING_MAX, WAITING_OF_PEER_MAX);
        // All of them are the same answer.
        let expositions = Shares::new(EXPOSITIONS_WAITING_MAX, EXPOSITIONS_WAITING_MAX);
        let (lists, metrics) =
            (budget(BudgetKind::Api, BUDGET_BYTES), budget(BudgetKind::Metrics, EXPOSITION_BUDGET_BYTES));
        Self {
            asker: PeerKey::Nobody,
            flights: Arc::new(Flights::new(Arc::clone(&readings))),
            readings,
            lists: Arc::new(Lane::new(BUILDS, waiting, RESPONSE_BYTES, lists)),
            exposition: Arc::new(Lane::new(1, expositions, EXPOSITION_BYTES, metrics)),
        }
    }

    /// The same, as this peer has them.
    pub(crate) fn for_peer(self, asker: PeerKey) -> Self {
        Self { asker, ..self }
    }

    /// What was read since the request came.
    pub(crate) async fn reading(&self) -> Result<Arc<Reading>, Problem> {
        self.readings.visit().fresh().await
    }

    /// An answer made of what was read since the request came. `question` is what is asked, by whom as far as that matters, in one form however the
    /// request wrote it.
    pub(crate) async fn of_observation(
        &self,
        question: String,
        make: impl FnOnce(&Observation) -> Result<Text, Problem> + Send + 'static,
    ) -> Result<SharedResponse, Problem> {
        self.of_reading(&self.lists, question, on_a_thread_of(make)).await
    }

    /// The same, where it takes another question to the collector.
    pub(crate) async fn of_question<F>(
        &self,
        question: String,
        make: impl FnOnce(Arc<Reading>) -> F + Send + 'static,
    ) -> Result<SharedResponse, Problem>
    where
        F: Future<Output = Result<Text, Problem>> + Send + 'static,
    {
        let make = |reading: Option<Arc<Reading>>| async move { make(reading.ok_or_else(failed)?).await };
        self.of_reading(&self.lists, question, Box::new(|reading| Box::pin(make(reading)))).await
    }

    /// The metrics, which nothing else holds up.
    pub(crate) async fn exposition(
        &self,
        make: impl FnOnce(&Observation) -> Result<Text, Problem> + Send + 'static,
    ) -> Result<SharedResponse, Problem> {
        self.of_reading(&self.exposition, "metrics".to_owned(), on_a_thread_of(make)).await
    }

    /// An answer that is made of no reading.
    pub(crate) async fn of_now(
        &self,
        question: String,
        make: impl FnOnce() -> Result<Text, Problem> + Send + 'static,
    ) -> Result<SharedResponse, Problem> {
        self.shared(&self.lists, question, Since::Now, Box::new(|_| Box::pin(on_a_thread(make)))).await
    }

    /// Works where answers are made, and shares nothing.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = self.lists.queue(self.asker)?.turn().await?;
        on_a_thread(move || {
            let _turn = turn;
            work()
        })
        .await
    }

    /// Times that snapshots for requests took.
    pub(crate) fn snapshot_durations(&self) -> Distribution {
        self.readings.taken.durations()
    }

    /// Of the API's answers, and of the metrics.
    pub(crate) fn figures(&self) -> [Figures; 2] {
        [&self.lists, &self.exposition].map(|lane| Figures {
            bytes: lane.budget.used(),
            built: lane.built.load(Ordering::Relaxed),
            rejected_by_queue: lane.rejected_by_queue(),
            rejected_by_budget: lane.rejected_by_budget.load(Ordering::Relaxed),
        })
    }

    async fn of_reading(&self, lane: &Arc<Lane>, question: String, make: Make) -> Result<SharedResponse, Problem> {
        // Until the end: what is made of the newest reading needs it to be held.
        let visit = self.readings.visit();
        let begun = {
            let reading = visit.fresh().await?;
            if let Some(payload) = reading.response(&question) {
                return Ok(SharedResponse(payload));
            }
            reading.begun
        };
        self.shared(lane, question, Since::Reading(begun), make).await
    }

    async fn shared(
        &self,
        lane: &Arc<Lane>,
        question: String,
        since: Since,
        make: Make,
    ) -> Result<SharedResponse, Problem> {
        let mut outcome = self.flights.join(lane, question, since, self.asker, make)?;
        let outcome = outcome.wait_for(Option::is_some).await.map_err(|_| failed())?.clone();
        outcome.unwrap_or_else(|| Err(failed())).map(SharedResponse)
    }
}

fn on_a_thread_of(make: impl FnOnce(&Observation) -> Result<Text, Problem> + Send + 'static) -> Make {
    let make = |reading: Option<Arc<Reading>>| async move {
        let reading = reading.ok_or_else(failed)?;
        on_a_thread(move || make(&reading.known)).await
    };
    Box::new(|reading| Box::pin(make(reading)))
}

//! Responses that may be large. Each is built once from one reading, off the event loop, and shared
//! by equal requests.
//!
//! * [`readings`]: readings that responses are built from
//! * [`flight`]: responses being built, which equal requests wait for
//! * [`lane`]: threads that build responses, a limited number at a time; metrics have a separate
//!   lane
//! * [`budget`]: memory of responses until they are sent

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

/// Responses built at once: as many as the event loop has threads, so that it always gets its
/// share.
const BUILDS: usize = 2;
/// Maximum of requests that wait for a build, of all and of one peer.
const WAITING_MAX: usize = 64;
const WAITING_OF_PEER_MAX: usize = 16;
/// Memory for responses.
const BUDGET_BYTES: usize = 24 << 20;
/// Expected size of a response before it is built: a page of a list takes no more, and few others
/// do.
const RESPONSE_BYTES: usize = PAGE_BYTES_MAX + (64 << 10);

const EXPOSITIONS_WAITING_MAX: usize = 4;
const EXPOSITION_BUDGET_BYTES: usize = 24 << 20;
/// Expected size of an exposition. The metrics of 256 owners on 8 GPUs are more than 8 MiB.
const EXPOSITION_BYTES: usize = 12 << 20;

/// Builder of responses. Cheap to clone; all clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Responses {
    /// Peer that sent the request.
    peer: PeerKey,
    readings: Arc<Readings>,
    flights: Arc<Flights>,
    lists: Arc<Lane>,
    exposition: Arc<Lane>,
}

/// Text of a response, and the memory reserved for it.
pub(crate) struct Payload {
    content_type: &'static str,
    text: Vec<u8>,
    reservation: Reservation,
}

/// Response that may be shared with other requests.
#[derive(Debug)]
pub(crate) struct SharedResponse(Arc<Payload>);

/// Text of a response as it was built.
pub(crate) struct Text {
    content_type: &'static str,
    text: Vec<u8>,
}

/// Figures of the building of responses, for the metrics.
pub(crate) struct Figures {
    /// Bytes held for responses.
    pub(crate) bytes: usize,
    /// Responses built.
    pub(crate) built: u64,
    /// Requests rejected because too many waited.
    pub(crate) rejected_by_queue: u64,
    /// Requests rejected for want of memory.
    pub(crate) rejected_by_budget: u64,
    /// Requests rejected because their source had the maximum of others.
    pub(crate) rejected_by_source: u64,
}

// === impl Text ===

impl Text {
    pub(crate) fn json(body: &impl Serialize) -> Self {
        // Serialization fails for keys that are not text alone, and there are none.
        Self { content_type: "application/json", text: serde_json::to_vec(body).unwrap_or_default() }
    }

    /// Page of a list: other fields, and the list under its name; or several lists.
    pub(crate) fn page(fields: &[(&str, Value)], lists: &[(&str, &[Box<RawValue>])], page: &Page) -> Self {
        // Serialization fails for keys that are not text alone, and there are none.
        Self { content_type: "application/json", text: serialize_page(fields, lists, page).unwrap_or_default() }
    }

    pub(crate) fn of_type(content_type: &'static str, text: Vec<u8>) -> Self {
        Self { content_type, text }
    }
}

fn serialize_page(
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
        // Held until its last byte is sent.
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
    pub(crate) fn new(Sources { snapshots, verdicts, decisions, .. }: &Sources, table: &Arc<ConnectionTable>) -> Self {
        let budget = |kind, bytes| Budget::new(kind, bytes, Arc::clone(table));
        let readings = Arc::new(Readings::new(snapshots.clone(), verdicts.clone(), decisions.clone()));
        let waiting = Shares::new(WAITING_MAX, WAITING_OF_PEER_MAX);
        // One peer may have all of them, as they share one response.
        let expositions = Shares::new(EXPOSITIONS_WAITING_MAX, EXPOSITIONS_WAITING_MAX);
        let (lists, metrics) =
            (budget(BudgetKind::Api, BUDGET_BYTES), budget(BudgetKind::Metrics, EXPOSITION_BUDGET_BYTES));
        Self {
            peer: PeerKey::Unidentified,
            flights: Arc::new(Flights::new(Arc::clone(&readings))),
            readings,
            lists: Arc::new(Lane::new(BUILDS, waiting, RESPONSE_BYTES, lists)),
            exposition: Arc::new(Lane::new(1, expositions, EXPOSITION_BYTES, metrics)),
        }
    }

    /// Builder of responses for this peer.
    pub(crate) fn for_peer(self, peer: PeerKey) -> Self {
        Self { peer, ..self }
    }

    /// Reading that began after the request came.
    pub(crate) async fn reading(&self) -> Result<Arc<Reading>, Problem> {
        self.readings.visit().fresh().await
    }

    /// Response built from a reading that began after the request came. `cache_key` is the
    /// canonical text of the request, with the permission of its sender if that matters.
    pub(crate) async fn of_observation(
        &self,
        cache_key: String,
        make: impl FnOnce(&Observation) -> Result<Text, Problem> + Send + 'static,
    ) -> Result<SharedResponse, Problem> {
        self.of_reading(&self.lists, cache_key, on_a_thread_of(make)).await
    }

    /// Response built from a reading and from a further query of the collector.
    pub(crate) async fn of_query<F>(
        &self,
        cache_key: String,
        make: impl FnOnce(Arc<Reading>) -> F + Send + 'static,
    ) -> Result<SharedResponse, Problem>
    where
        F: Future<Output = Result<Text, Problem>> + Send + 'static,
    {
        let make = |reading: Option<Arc<Reading>>| async move { make(reading.ok_or_else(failed)?).await };
        self.of_reading(&self.lists, cache_key, Box::new(|reading| Box::pin(make(reading)))).await
    }

    /// The metrics, which have a separate lane.
    pub(crate) async fn exposition(
        &self,
        make: impl FnOnce(&Observation) -> Result<Text, Problem> + Send + 'static,
    ) -> Result<SharedResponse, Problem> {
        self.of_reading(&self.exposition, "metrics".to_owned(), on_a_thread_of(make)).await
    }

    /// Response that needs no reading.
    pub(crate) async fn of_now(
        &self,
        cache_key: String,
        make: impl FnOnce() -> Result<Text, Problem> + Send + 'static,
    ) -> Result<SharedResponse, Problem> {
        self.shared(&self.lists, cache_key, Since::Now, Box::new(|_| Box::pin(on_a_thread(make)))).await
    }

    /// Runs work in the lane of responses, without sharing its result.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = self.lists.queue(self.peer)?.turn().await?;
        on_a_thread(move || {
            let _turn = turn;
            work()
        })
        .await
    }

    /// Problem of a request whose source has the maximum of others, which is counted.
    pub(crate) fn busy_source(&self, reason: &str) -> Problem {
        self.lists.busy_source(reason)
    }

    /// Durations of snapshots for requests.
    pub(crate) fn snapshot_durations(&self) -> Distribution {
        self.readings.stopwatch.durations()
    }

    /// Figures of the API's responses and of the metrics.
    pub(crate) fn figures(&self) -> [Figures; 2] {
        [&self.lists, &self.exposition].map(|lane| Figures {
            bytes: lane.budget.used(),
            built: lane.built.load(Ordering::Relaxed),
            rejected_by_queue: lane.rejected_by_queue(),
            rejected_by_budget: lane.rejected_by_budget.load(Ordering::Relaxed),
            rejected_by_source: lane.rejected_by_source.load(Ordering::Relaxed),
        })
    }

    async fn of_reading(&self, lane: &Arc<Lane>, cache_key: String, make: Make) -> Result<SharedResponse, Problem> {
        // Held until the end: a response is built from the newest reading as long as that is held.
        let visit = self.readings.visit();
        let begun = {
            let reading = visit.fresh().await?;
            if let Some(payload) = reading.response(&cache_key) {
                return Ok(SharedResponse(payload));
            }
            reading.begun
        };
        self.shared(lane, cache_key, Since::Reading(begun), make).await
    }

    async fn shared(
        &self,
        lane: &Arc<Lane>,
        cache_key: String,
        since: Since,
        make: Make,
    ) -> Result<SharedResponse, Problem> {
        let mut outcome = self.flights.join(lane, cache_key, since, self.peer, make)?;
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

//! What happens, as a stream.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::HeaderMap,
    response::{
        IntoResponse, Sse,
        sse::{self, KeepAlive},
    },
};
use futures_util::{Stream, stream};
use model::api::decision::Event;
use tokio::time::Instant;

use crate::{
    auth::ReadPermission,
    connection::Endless,
    events::{Events, Reader},
    peers::{Held, PeerKey, Shares},
    problem::{Kind, Problem},
    query::{NoParameters, Parameters},
};

/// Something is sent at least as often, so that both ends know that the other is there.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A stream ends by itself, a little before its connection would be closed; who reads it comes back for more.
const AGE_MAX: Duration = Duration::from_secs(290);
/// How soon, in its own time.
const COME_BACK_AFTER: Duration = Duration::from_secs(1);

/// Stream events
///
/// Server-sent events from now on: verdicts that start and end, decisions, their effects, and the switch. `data` is an `Event`. An idle stream sends a comment
/// every 15 s. With `Last-Event-ID`, it continues after that event, if it is among the last 1024; a slow reader gets the number of events that it missed.
/// Ranges require read permission, and are null without it.
#[utoipa::path(
    get,
    path = "/api/v1/events",
    params(("last-event-id" = Option<String>, Header, description = "`id` of the last event that was read")),
    responses((status = OK, description = "A stream of events", content_type = "text/event-stream", body = Event)),
    security((), ("token" = []))
)]
pub(crate) async fn events(
    ReadPermission(all): ReadPermission,
    peer: PeerKey,
    _: Parameters<NoParameters>,
    State(events): State<Events>,
    State(streams): State<Shares>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Problem> {
    let held = streams.take(peer).ok_or_else(|| {
        let detail = "the limit of event streams is reached, for this peer or in total: close one, or retry later";
        Problem::new(Kind::Overloaded, detail.to_owned()).retry_after(HEARTBEAT)
    })?;
    // What is no text names no event.
    let last = headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default());
    let stream = Sse::new(stream(events.read(last), all, held)).keep_alive(KeepAlive::new().interval(HEARTBEAT));
    Ok((Extension(Endless), stream))
}

fn stream(reader: Reader, all: bool, held: Held) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    let end = Instant::now() + AGE_MAX;
    let first = stream::once(async { Ok(sse::Event::default().retry(COME_BACK_AFTER)) });
    let rest = stream::unfold((reader, held), move |(mut reader, held)| async move {
        let (id, event) = tokio::time::timeout_at(end, reader.next()).await.ok()??;
        Some((Ok(written(id, event, all)), (reader, held)))
    });
    stream::StreamExt::chain(first, rest)
}

fn written(id: String, event: Arc<Event>, all: bool) -> sse::Event {
    let event = if all { Arc::unwrap_or_clone(event) } else { Arc::unwrap_or_clone(event).redacted() };
    // Nothing in it has keys that are no text.
    let data = serde_json::to_string(&event).unwrap_or_default();
    sse::Event::default().id(id).event(event.r#type).data(data)
}

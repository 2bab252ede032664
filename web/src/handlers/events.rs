//! Stream of events.

use std::{convert::Infallible, sync::Arc, time::Duration};

use api::decision::Event;
use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, header},
    response::{
        IntoResponse, Sse,
        sse::{self, KeepAlive},
    },
};
use futures_util::{Stream, stream};
use tokio::time::Instant;

use crate::{
    auth::ReadPermission,
    connection::Endless,
    events::{Events, Reader},
    peers::PeerKey,
    problem::{Kind, Problem},
    query::{NoParameters, Parameters},
    streams::{StreamPlace, Streams},
};

/// Maximum interval between lines on a stream, by which both ends notice a broken connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Maximum age of a stream, a little below that of its connection; clients reconnect.
const AGE_MAX: Duration = Duration::from_secs(290);
/// Last line of a stream that ends for another one.
const DISPLACED: &str = "stream_displaced: all event streams were open, and another client had fewer";
/// Time after which a client reconnects.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

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
    State(streams): State<Streams>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Problem> {
    let place = streams.take(peer).ok_or_else(|| {
        let detail = "the limit of event streams is reached, for this peer or in total: close one, or retry later";
        Problem::new(Kind::Overloaded, detail.to_owned()).retry_after(HEARTBEAT)
    })?;
    // A value that is not text is no event id.
    let last = headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default());
    let stream = Sse::new(stream(events.read(last), all, place)).keep_alive(KeepAlive::new().interval(HEARTBEAT));
    // The connection ends with the stream.
    Ok((Extension(Endless), [(header::CONNECTION, "close")], stream))
}

fn stream(reader: Reader, all: bool, place: StreamPlace) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    let end = Instant::now() + AGE_MAX;
    let first = stream::once(async { Ok(sse::Event::default().retry(RECONNECT_DELAY)) });
    let rest = stream::unfold(Some((reader, place)), move |open| async move {
        let (mut reader, mut place) = open?;
        tokio::select! {
            () = place.displaced() => Some((Ok(sse::Event::default().comment(DISPLACED)), None)),
            next = tokio::time::timeout_at(end, reader.next()) => {
                let (id, event) = next.ok()??;
                Some((Ok(serialize(id, event, all)), Some((reader, place))))
            }
        }
    });
    stream::StreamExt::chain(first, rest)
}

fn serialize(id: String, event: Arc<Event>, all: bool) -> sse::Event {
    let event = if all { Arc::unwrap_or_clone(event) } else { Arc::unwrap_or_clone(event).redacted() };
    // Serialization fails for keys that are not text alone, and there are none.
    let data = serde_json::to_string(&event).unwrap_or_default();
    sse::Event::default().id(id).event(event.r#type).data(data)
}

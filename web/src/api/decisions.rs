//! What was decided, and what happens.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{
        IntoResponse, Sse,
        sse::{self, KeepAlive},
    },
};
use futures_util::{Stream, stream};
use model::{
    Stage,
    api::{
        decision::{Decision, Decisions, Event},
        text::time,
    },
};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::parameters::UpTo;
use crate::{
    authority::MayReadAll,
    control::Decided,
    events::{Events, Reader},
    problem::{NoParameters, Parameters, Problem},
};

/// Decisions unless the request says.
const LIMIT: u32 = 100;
const LIMIT_MAX: u32 = 10_000;

/// Which decisions.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionFilter {
    /// Those about the process with this pid.
    process: Option<u32>,
    /// Those that stand there.
    #[param(inline)]
    stage: Option<StageName>,
    /// How many at most; 100 unless given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 10_000)]
    limit: Option<UpTo<LIMIT_MAX>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum StageName {
    Refused,
    Shadow,
    Trial,
    Kept,
    Undone,
    Over,
}

impl StageName {
    const fn is_of(self, stage: &Stage) -> bool {
        matches!(
            (self, stage),
            (Self::Refused, Stage::Refused(_))
                | (Self::Shadow, Stage::Shadow(_))
                | (Self::Trial, Stage::Trial)
                | (Self::Kept, Stage::Kept)
                | (Self::Undone, Stage::Undone(_))
                | (Self::Over, Stage::Over(_))
        )
    }
}

/// What was decided, the newest first. The oldest that are over are forgotten. Ranges need read authority, and are null without.
#[utoipa::path(
    get,
    path = "/api/v1/decisions",
    params(DecisionFilter),
    responses((status = OK, body = Decisions)),
    security((), ("token" = []))
)]
pub(crate) async fn decisions(
    MayReadAll(all): MayReadAll,
    Parameters(DecisionFilter { process, stage, limit }): Parameters<DecisionFilter>,
    State(decided): State<Decided>,
) -> Json<Decisions> {
    let limit = limit.map_or(LIMIT, |UpTo(limit)| limit) as usize;
    let is_wanted = |decision: &&model::Decision| {
        process.is_none_or(|pid| decision.process.pid == pid) && stage.is_none_or(|stage| stage.is_of(&decision.stage))
    };
    let decisions = decided.now().iter().filter(is_wanted).take(limit).map(|decision| told(decision, all)).collect();
    Json(Decisions { time: time(std::time::SystemTime::now()), decisions })
}

/// One decision.
#[utoipa::path(
    get,
    path = "/api/v1/decisions/{id}",
    params(("id" = u64, Path, description = "Its name")),
    responses((status = OK, body = Decision)),
    security((), ("token" = []))
)]
pub(crate) async fn decision(
    MayReadAll(all): MayReadAll,
    Path(id): Path<String>,
    _: Parameters<NoParameters>,
    State(decided): State<Decided>,
) -> Result<Json<Decision>, Problem> {
    let decisions = decided.now();
    let named = decisions.iter().find(|decision| decision.id.to_string() == id);
    named.map(|decision| Json(told(decision, all))).ok_or_else(|| {
        let detail = format!("no decision {id} is known; /api/v1/decisions lists those that are");
        Problem::new(StatusCode::NOT_FOUND, detail)
    })
}

fn told(decision: &model::Decision, all: bool) -> Decision {
    let decision = Decision::from(decision);
    if all { decision } else { decision.redacted() }
}

/// Something is sent at least as often, so that both ends know that the other is there.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A stream ends by itself, a little before its connection would be closed; who reads it comes back for more.
const AGE_MAX: Duration = Duration::from_secs(290);
/// How soon, in its own time.
const COME_BACK_AFTER: Duration = Duration::from_secs(1);

/// What happens from now on: verdicts that begin and end, decisions, what is done for them, and the switch. Server-sent events, each of its `type` and
/// with `data` as `Event` in this document; a comment when nothing has happened for 15 s. Who sends `Last-Event-ID` goes on behind that event, if it is
/// among the last 1024; who is too slow is told how many it missed. Ranges need read authority, and are null without.
#[utoipa::path(
    get,
    path = "/api/v1/events",
    params(("last-event-id" = Option<String>, Header, description = "The `id` of the last event that was read")),
    responses((status = OK, description = "A stream of events", content_type = "text/event-stream", body = Event)),
    security((), ("token" = []))
)]
pub(crate) async fn events(
    MayReadAll(all): MayReadAll,
    _: Parameters<NoParameters>,
    State(events): State<Events>,
    headers: HeaderMap,
) -> impl IntoResponse {
    // What is no text names no event.
    let last = headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default());
    Sse::new(stream(events.read(last), all)).keep_alive(KeepAlive::new().interval(HEARTBEAT))
}

fn stream(reader: Reader, all: bool) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    let end = Instant::now() + AGE_MAX;
    let first = stream::once(async { Ok(sse::Event::default().retry(COME_BACK_AFTER)) });
    let rest = stream::unfold(reader, move |mut reader| async move {
        let (id, event) = tokio::time::timeout_at(end, reader.next()).await.ok()??;
        Some((Ok(written(id, event, all)), reader))
    });
    stream::StreamExt::chain(first, rest)
}

fn written(id: String, event: Arc<Event>, all: bool) -> sse::Event {
    let event = if all { Arc::unwrap_or_clone(event) } else { Arc::unwrap_or_clone(event).redacted() };
    // Nothing in it has keys that are no text.
    let data = serde_json::to_string(&event).unwrap_or_default();
    sse::Event::default().id(id).event(event.r#type).data(data)
}

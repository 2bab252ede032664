//! Overrides of operators.

use std::{fmt, sync::Arc, time::Duration};

use api::rule::{self, EffectivePolicy, OverrideStatus, Overrides};
use axum::{
    Json,
    extract::{FromRequestParts, Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use model::Selector;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time;

use super::{Pid, choose, memory::InstanceSelector};
use crate::{
    auth::{ReadPermission, Writer},
    body,
    control::{ChangeError, Controls, Precondition, PutOutcome, etag},
    entity_tags::EntityTags,
    paging::Cursors,
    problem::{Kind, Problem},
    query::{ListParameters, NoParameters, NoSelector, PageParameters, Parameters},
    responses::{Observation, Responses, SharedResponse, Text},
};

/// Maximum time that the response to a change waits for the number of matching processes.
const COUNT_TIME_MAX: Duration = Duration::from_secs(2);

/// List overrides
///
/// Overrides of the file and of the API, in order of precedence. Ranges require read permission, and are null without it.
#[utoipa::path(
    get,
    path = "/api/v1/overrides",
    params(PageParameters),
    responses((status = OK, body = Overrides)),
    security((), ("token" = []))
)]
pub(crate) async fn overrides(
    ReadPermission(all): ReadPermission,
    list: ListParameters<NoSelector, NoSelector>,
    State(controls): State<Controls>,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let (.., page_request) = list.page("overrides", &cursors)?;
    let cache_key = format!("{page_request} all={all}");
    let make = move || {
        let Overrides { overrides, file_error, .. } = controls.now().overrides();
        let show = |each: &OverrideStatus| if all { each.clone() } else { each.clone().redacted() };
        let page = cursors.page_in_order(&page_request, &overrides, name, show)?;
        Ok(Text::page(&[("file_error", file_error.into())], &[("overrides", &page.items)], &page))
    };
    responses.of_now(cache_key, make).await
}

fn name(current: &OverrideStatus) -> &str {
    current.r#override.id.as_deref().unwrap_or_default()
}

/// Get an override
///
/// One override. Its range requires read permission, and is null without it. `ETag` identifies its current state, for `If-None-Match` here and `If-Match` in
/// changes.
#[utoipa::path(
    get,
    path = "/api/v1/overrides/{id}",
    params(("id" = String, Path, description = "Id of the override")),
    responses((status = OK, body = OverrideStatus), (status = NOT_MODIFIED, description = "It matches `If-None-Match`")),
    security((), ("token" = []))
)]
pub(crate) async fn one_override(
    ReadPermission(all): ReadPermission,
    Path(id): Path<String>,
    _: Parameters<NoParameters>,
    State(controls): State<Controls>,
    responses: Responses,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let find = move || {
        let known = controls.now().overrides().overrides;
        known.into_iter().find(|each| name(each) == id).ok_or_else(|| {
            let detail = format!("there is no override {id}; /api/v1/overrides lists all");
            Problem::new(Kind::NotFound, detail)
        })
    };
    let current = responses.work(find).await?;
    let current = if all { current } else { current.redacted() };
    let known = EntityTags::of(&headers, &header::IF_NONE_MATCH)?;
    let is_known = known.is_some_and(|known| known.match_weakly(&etag(&current.r#override)));
    Ok(if is_known {
        (StatusCode::NOT_MODIFIED, tagged(&current)).into_response()
    } else {
        respond(StatusCode::OK, current)
    })
}

/// Add an override
///
/// An equal override with the same id changes nothing; a different one is a conflict, unless `If-Match` has the `ETag` of the existing one.
#[utoipa::path(
    post,
    path = "/api/v1/overrides",
    request_body = rule::Override,
    responses((status = OK, description = "An equal override existed", body = OverrideStatus), (status = CREATED, body = OverrideStatus)),
    security(("token" = []))
)]
pub(crate) async fn add_override(
    Writer(by): Writer,
    _: Parameters<NoParameters>,
    State(controls): State<Controls>,
    responses: Responses,
    conditions: Preconditions,
    body::Json(body): body::Json<rule::Override>,
) -> Result<Response, Problem> {
    let rule = parse(rule::Override { id: body.id.clone().or_else(|| Some(derived_id(&body))), ..body })?;
    let requested = rule::Override::from(&rule);
    let selector = rule.selector.clone();
    let is_conditional = conditions.is_conditional();
    let precondition: Precondition = Box::new(move |existing| {
        if is_conditional {
            conditions.hold(existing)
        } else {
            existing.is_none_or(|existing| existing.r#override.is_as_asked(&requested))
        }
    });
    let put = controls.change(move |control| {
        let as_conflict = |error| {
            if error == ChangeError::PreconditionFailed && !is_conditional { ChangeError::Exists } else { error }
        };
        control.put(rule, &by, &precondition).map_err(as_conflict)
    });
    let outcome = put.await?;
    Ok(put_response(outcome, matching_processes(&controls, &responses, selector).await))
}

/// Put an override
///
/// Replaces the override of this id, or adds it. `If-Match` and `If-None-Match: *` are preconditions on the existing one.
#[utoipa::path(
    put,
    path = "/api/v1/overrides/{id}",
    params(("id" = String, Path, description = "Id of the override; the body may omit its own")),
    request_body = rule::Override,
    responses((status = OK, body = OverrideStatus), (status = CREATED, description = "The override was added", body = OverrideStatus)),
    security(("token" = []))
)]
pub(crate) async fn put_override(
    Writer(by): Writer,
    Path(id): Path<String>,
    _: Parameters<NoParameters>,
    State(controls): State<Controls>,
    responses: Responses,
    conditions: Preconditions,
    body::Json(body): body::Json<rule::Override>,
) -> Result<Response, Problem> {
    if body.id.as_ref().is_some_and(|body_id| *body_id != id) {
        return Err(Problem::of_field("id", format!("expected {id:?}, as in the path, or none")));
    }
    let rule = parse(rule::Override { id: Some(id), ..body })?;
    let precondition: Precondition = Box::new(move |existing| conditions.hold(existing));
    let selector = rule.selector.clone();
    let outcome = controls.change(move |control| control.put(rule, &by, &precondition)).await?;
    Ok(put_response(outcome, matching_processes(&controls, &responses, selector).await))
}

/// Delete an override
///
/// Deletes an override of the API. `If-Match` is a precondition on it.
#[utoipa::path(
    delete,
    path = "/api/v1/overrides/{id}",
    params(("id" = String, Path, description = "Id of the override")),
    responses((status = NO_CONTENT, description = "The override was deleted")),
    security(("token" = []))
)]
pub(crate) async fn remove_override(
    Writer(by): Writer,
    Path(id): Path<String>,
    _: Parameters<NoParameters>,
    State(controls): State<Controls>,
    conditions: Preconditions,
    _: body::EmptyBody,
) -> Result<StatusCode, Problem> {
    let precondition: Precondition = Box::new(move |existing| conditions.hold(existing));
    controls.change(move |control| control.remove(&id, &by, &precondition)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Get the policy in effect for a process
///
/// The selected override, all candidates, and the restrictions that currently prevent action. The range requires read permission, and is null without it.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}/override",
    params(("pid" = u32, Path, description = "Process id"), InstanceSelector),
    responses((status = OK, body = EffectivePolicy)),
    security((), ("token" = []))
)]
pub(crate) async fn process_override(
    ReadPermission(all): ReadPermission,
    pid: Pid,
    Parameters(InstanceSelector { start_ticks }): Parameters<InstanceSelector>,
    State(controls): State<Controls>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let make = move |known: &Observation| {
        let policy = controls.now().wanted(choose(&known.snapshot, pid, start_ticks)?);
        Ok(Text::json(&if all { policy } else { EffectivePolicy { range: None, ..policy } }))
    };
    responses.of_observation(format!("override of {pid:?} {start_ticks:?} all={all}"), make).await
}

fn parse(body: rule::Override) -> Result<model::Override, Problem> {
    let problem = |rule::Invalid { field, detail }| Problem::of_field(&field, detail);
    let rule = model::Override::try_from(body).map_err(problem)?;
    rule::check_matchable(&rule.selector).map_err(problem)?;
    Ok(rule)
}

/// Id for an override that was given none; equal overrides have equal ids.
fn derived_id(body: &rule::Override) -> String {
    format!("auto-{}", etag(body).trim_matches('"'))
}

fn put_response(PutOutcome { now, is_new }: PutOutcome, matching_processes: Option<u64>) -> Response {
    let now = OverrideStatus { matching_processes, ..now };
    respond(if is_new { StatusCode::CREATED } else { StatusCode::OK }, now)
}

/// Running processes that a selector matches. `None` if these cannot be counted in time: the change is made already,
/// and is reported as such.
async fn matching_processes(controls: &Controls, responses: &Responses, selector: Selector) -> Option<u64> {
    let counted = async {
        let reading = responses.reading().await?;
        let controls = controls.clone();
        let count = move || {
            let running = reading.known.snapshot.processes.iter().filter(|process| process.exited_at.is_none());
            Ok(running.filter(|process| controls.now().is_match(&selector, process)).count() as u64)
        };
        responses.work(count).await
    };
    time::timeout(COUNT_TIME_MAX, counted).await.ok()?.ok()
}

fn respond(status: StatusCode, current: OverrideStatus) -> Response {
    let id = current.r#override.id.clone().unwrap_or_default();
    let mut response = (status, tagged(&current), Json(current)).into_response();
    if let (StatusCode::CREATED, Ok(location)) =
        (status, HeaderValue::try_from(format!("/api/v1/overrides/{}", path_segment(&id))))
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Percent-encoded segment of a path.
fn path_segment(id: &str) -> impl fmt::Display {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(id, RESERVED)
}

fn tagged(current: &OverrideStatus) -> [(header::HeaderName, String); 1] {
    [(header::ETAG, etag(&current.r#override))]
}

/// Preconditions of a change, from a request's headers.
#[derive(Debug)]
pub(crate) struct Preconditions {
    if_match: Option<EntityTags>,
    if_none_match: Option<EntityTags>,
}

impl<S: Send + Sync> FromRequestParts<S> for Preconditions {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let tags = |name| EntityTags::of(&parts.headers, &name);
        Ok(Self { if_match: tags(header::IF_MATCH)?, if_none_match: tags(header::IF_NONE_MATCH)? })
    }
}

impl Preconditions {
    const fn is_conditional(&self) -> bool {
        self.if_match.is_some() || self.if_none_match.is_some()
    }

    /// Whether the existing override meets the conditions, as in RFC 9110, 13.1: `*` matches any
    /// override, and no tag matches a missing one.
    fn hold(&self, existing: Option<&OverrideStatus>) -> bool {
        let tag = existing.map(|existing| etag(&existing.r#override));
        let matches = |required: &EntityTags| tag.as_ref().is_some_and(|tag| required.match_strongly(tag));
        let differs = |known: &EntityTags| tag.as_ref().is_none_or(|tag| !known.match_weakly(tag));
        self.if_match.as_ref().is_none_or(matches) && self.if_none_match.as_ref().is_none_or(differs)
    }
}

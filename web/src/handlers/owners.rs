//! Owners: pods, jobs, containers and units.

use std::sync::Arc;

use api::{OwnerDetail, OwnerReport, Owners};
use axum::{
    extract::{FromRequestParts, Path, State},
    http::{Uri, request::Parts},
};
use model::{OwnerKey, OwnerTotals, text::time};
use serde::Deserialize;
use utoipa::IntoParams;

use super::selector::OwnerSelector;
use crate::{
    auth::ReadPermission,
    convert,
    paging::{Cursors, Order},
    problem::{self, Kind, Problem},
    query::{ListParameters, NoParameters, PageParameters, Parameters},
    responses::{Observation, Responses, SharedResponse, Text},
};

/// Order of the list.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OwnerFilter {
    /// `activity`, the default: busiest first. `id`: by kind and id.
    #[param(inline, value_type = Option<Order>)]
    #[serde(default)]
    order: Order,
}

/// List owners
///
/// Sums by pod, job, container and unit, which outlive processes.
#[utoipa::path(
    get,
    path = "/api/v1/owners",
    params(OwnerSelector, OwnerFilter, PageParameters),
    responses((status = OK, body = Owners))
)]
pub(crate) async fn owners(
    list: ListParameters<OwnerSelector, OwnerFilter>,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let (selector, OwnerFilter { order }, page_request) = list.page("owners", &cursors)?;
    let cache_key = page_request.to_string();
    let make = move |known: &Observation| {
        let snapshot = &known.snapshot;
        let with_verdict = selector.with_verdict(snapshot, &known.verdicts);
        let is_selected = |key: &OwnerKey, totals: &OwnerTotals| {
            let gpus = totals.gpus.keys().chain(totals.reuse.keys()).copied();
            selector.has(snapshot, key, gpus) && with_verdict.as_ref().is_none_or(|with| with.contains(key))
        };
        let page = convert::owners(snapshot, order, is_selected, &cursors, &page_request)?;
        Ok(Text::page(&[("time", time(snapshot.taken).into())], &[("owners", &page.items)], &page))
    };
    responses.of_observation(cache_key, make).await
}

/// Owner in a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes the path")]
pub(crate) struct OwnerPath {
    /// Kind of owner. `other` is no single owner, and has no page.
    #[param(pattern = "^(pod|job|container|unit)$")]
    kind: String,
    /// Id within the kind; a `/` in it is written as `%2F`.
    #[param(min_length = 1, max_length = 1024)]
    id: String,
}

/// Extractor of the owner in a path. Another value there is the problem of an unknown path.
pub(crate) struct OwnerInPath(pub(crate) OwnerKey);

impl<S: Send + Sync> FromRequestParts<S> for OwnerInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        match path.ok().and_then(|Path((kind, id))| OwnerKey::parse(&kind, &id)) {
            Some(owner) => Ok(Self(owner)),
            None => Err(problem::not_found(Uri::clone(&parts.uri)).await),
        }
    }
}

pub(crate) fn unknown(owner: &OwnerKey) -> Problem {
    Problem::new(Kind::NotFound, format!("no {owner} is known; /api/v1/owners lists those that are"))
}

/// Get an owner
///
/// Sums of one owner, with its processes, their verdicts, and the evictions that it inflicted and suffered.
#[utoipa::path(
    get,
    path = "/api/v1/owners/{kind}/{id}",
    params(OwnerPath),
    responses((status = OK, body = OwnerDetail))
)]
pub(crate) async fn owner(
    OwnerInPath(owner): OwnerInPath,
    _: Parameters<NoParameters>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let cache_key = format!("owner {owner:?}");
    let make = move |known: &Observation| {
        convert::owner_detail(&known.view(), &owner).map(|detail| Text::json(&detail)).ok_or_else(|| unknown(&owner))
    };
    responses.of_observation(cache_key, make).await
}

/// Report on an owner
///
/// Usage of managed memory by an owner and the steps of its job, also after its processes have exited: traffic, time under verdicts, peaks,
/// evictions, and the worst verdict with remedies. Those that depend on ranges, and `ranges`, require read permission.
#[utoipa::path(
    get,
    path = "/api/v1/owners/{kind}/{id}/report",
    params(OwnerPath),
    responses((status = OK, body = OwnerReport)),
    security((), ("token" = []))
)]
pub(crate) async fn report(
    ReadPermission(ranges): ReadPermission,
    OwnerInPath(owner): OwnerInPath,
    _: Parameters<NoParameters>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let cache_key = format!("report {owner:?} ranges={ranges}");
    let make = move |known: &Observation| {
        let report = convert::owner_report(&known.snapshot, &known.verdicts, &owner, ranges);
        report.map(|report| Text::json(&report)).ok_or_else(|| unknown(&owner))
    };
    responses.of_observation(cache_key, make).await
}

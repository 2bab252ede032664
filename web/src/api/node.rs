//! What concerns the whole node.

use std::sync::Arc;

use axum::extract::State;
use model::api::{Evictions, Gpus, Owners, Status, text::time};
use serde::Deserialize;
use utoipa::IntoParams;

use super::parameters::UpTo;
use crate::{
    Node,
    auth::{ReadPermission, WritePermission},
    control::Controls,
    convert,
    paging::{Cursor, Cursors, LIMIT_MAX, Order},
    problem::{NoParameters, Parameters, Problem},
    responses::{Observation, Responses, SharedResponse, Text},
};

/// The source of events, its probes, the GPUs, and sums over everything.
#[utoipa::path(get, path = "/api/v1/status", responses((status = OK, body = Status)))]
pub(crate) async fn status(
    _: Parameters<NoParameters>,
    ReadPermission(may_read): ReadPermission,
    WritePermission(may_write): WritePermission,
    State(node): State<Arc<Node>>,
    State(controls): State<Controls>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let make = move |known: &Observation| {
        let controls = controls.now();
        let journal = controls.journal().map(|journal| journal.warnings).unwrap_or_default();
        let warnings = controls.state().file_error.into_iter().chain(journal);
        Ok(Text::json(&convert::status(&node, &known.snapshot, [may_read, may_write], warnings)))
    };
    responses.of_observation(format!("status read={may_read} write={may_write}"), make).await
}

/// The GPUs with their memory.
#[utoipa::path(get, path = "/api/v1/gpus", responses((status = OK, body = Gpus)))]
pub(crate) async fn gpus(_: Parameters<NoParameters>, responses: Responses) -> Result<SharedResponse, Problem> {
    responses.of_observation("gpus".to_owned(), |known| Ok(Text::json(&convert::gpus(&known.snapshot)))).await
}

/// Which part of the list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnerPage {
    /// `activity`: the busiest first; `id`: by kind and id.
    #[param(inline, value_type = Option<Order>)]
    #[serde(default)]
    order: Order,
    /// How many at most; 100 unless given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<UpTo<LIMIT_MAX>>,
    /// From where the page before told.
    #[param(value_type = Option<String>)]
    r#continue: Option<Cursor>,
}

/// Sums by pod, job, container and unit, which outlive processes.
#[utoipa::path(get, path = "/api/v1/owners", params(OwnerPage), responses((status = OK, body = Owners)))]
pub(crate) async fn owners(
    Parameters(OwnerPage { order, limit, r#continue }): Parameters<OwnerPage>,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let part = cursors.part(format!("owners order={order:?}"), limit, r#continue)?;
    let question = part.to_string();
    let make = move |known: &Observation| {
        let page = convert::owners(&known.snapshot, order, &cursors, &part)?;
        Ok(Text::page(&[("time", time(known.snapshot.taken).into())], &[("owners", &page.items)], &page))
    };
    responses.of_observation(question, make).await
}

/// Which part of the list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EvictionPage {
    /// `activity`: most bytes first; `id`: by GPU, victim, evictor and cause.
    #[param(inline, value_type = Option<Order>)]
    #[serde(default)]
    order: Order,
    /// How many pairs at most; 100 unless given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<UpTo<LIMIT_MAX>>,
    /// From where the page before told.
    #[param(value_type = Option<String>)]
    r#continue: Option<Cursor>,
}

/// Who pushed whose memory out, since uvmd counts.
#[utoipa::path(get, path = "/api/v1/evictions", params(EvictionPage), responses((status = OK, body = Evictions)))]
pub(crate) async fn evictions(
    Parameters(EvictionPage { order, limit, r#continue }): Parameters<EvictionPage>,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let part = cursors.part(format!("evictions order={order:?}"), limit, r#continue)?;
    let question = part.to_string();
    let make = move |known: &Observation| {
        let page = convert::evictions(&known.view(), order, &cursors, &part)?;
        let fields = [("time", time(known.snapshot.taken).into()), ("inferred", convert::INFERRED.into())];
        Ok(Text::page(&fields, &[("pairs", &page.items)], &page))
    };
    responses.of_observation(question, make).await
}

//! What concerns the whole node.

use std::sync::Arc;

use axum::extract::State;
use model::api::{Evictions, Gpus, Owners, Status, text::time};
use serde::Deserialize;
use utoipa::IntoParams;

use super::parameters::UpTo;
use crate::{
    Node,
    answers::{Answer, Answers, Known, Text},
    authority::{MayReadAll, MayWrite},
    control::Controls,
    convert,
    paging::{Cursor, LIMIT_MAX, Order, Positions},
    problem::{NoParameters, Parameters, Problem},
};

/// The source of events, its probes, the GPUs, and sums over everything.
#[utoipa::path(get, path = "/api/v1/status", responses((status = OK, body = Status)))]
pub(crate) async fn status(
    _: Parameters<NoParameters>,
    MayReadAll(may_read): MayReadAll,
    MayWrite(may_write): MayWrite,
    State(node): State<Arc<Node>>,
    State(controls): State<Controls>,
    answers: Answers,
) -> Result<Answer, Problem> {
    let make = move |known: &Known| {
        let controls = controls.now();
        let journal = controls.journal().map(|journal| journal.warnings).unwrap_or_default();
        let warnings = controls.state().file_error.into_iter().chain(journal);
        Ok(Text::json(&convert::status(&node, &known.snapshot, [may_read, may_write], warnings)))
    };
    answers.of_known(format!("status read={may_read} write={may_write}"), make).await
}

/// The GPUs with their memory.
#[utoipa::path(get, path = "/api/v1/gpus", responses((status = OK, body = Gpus)))]
pub(crate) async fn gpus(_: Parameters<NoParameters>, answers: Answers) -> Result<Answer, Problem> {
    answers.of_known("gpus".to_owned(), |known| Ok(Text::json(&convert::gpus(&known.snapshot)))).await
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
    State(positions): State<Arc<Positions>>,
    answers: Answers,
) -> Result<Answer, Problem> {
    let part = positions.part(format!("owners order={order:?}"), limit, r#continue)?;
    let question = part.to_string();
    let make = move |known: &Known| {
        let page = convert::owners(&known.snapshot, order, &positions, &part)?;
        Ok(Text::page(&[("time", time(known.snapshot.taken).into())], &[("owners", &page.items)], &page))
    };
    answers.of_known(question, make).await
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
    State(positions): State<Arc<Positions>>,
    answers: Answers,
) -> Result<Answer, Problem> {
    let part = positions.part(format!("evictions order={order:?}"), limit, r#continue)?;
    let question = part.to_string();
    let make = move |known: &Known| {
        let page = convert::evictions(&known.view(), order, &positions, &part)?;
        let fields = [("time", time(known.snapshot.taken).into()), ("inferred", convert::INFERRED.into())];
        Ok(Text::page(&fields, &[("pairs", &page.items)], &page))
    };
    answers.of_known(question, make).await
}

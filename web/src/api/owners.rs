//! Owners: pods, jobs, containers and units.

use std::sync::Arc;

use axum::extract::State;
use model::{
    OwnerKey, OwnerTotals,
    api::{Owners, text::time},
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::selector::OwnerSelector;
use crate::{
    convert,
    paging::{Cursors, Order},
    problem::Problem,
    query::{ListParameters, PageParameters},
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
    let (selector, OwnerFilter { order }, part) = list.page("owners", &cursors)?;
    let question = part.to_string();
    let make = move |known: &Observation| {
        let snapshot = &known.snapshot;
        let with_verdict = selector.with_verdict(snapshot, &known.verdicts);
        let wanted = |key: &OwnerKey, totals: &OwnerTotals| {
            let gpus = totals.gpus.keys().chain(totals.reuse.keys()).copied();
            selector.has(snapshot, key, gpus) && with_verdict.as_ref().is_none_or(|with| with.contains(key))
        };
        let page = convert::owners(snapshot, order, wanted, &cursors, &part)?;
        Ok(Text::page(&[("time", time(snapshot.taken).into())], &[("owners", &page.items)], &page))
    };
    responses.of_observation(question, make).await
}

//! Evictors and victims.

use std::sync::Arc;

use api::Evictions;
use axum::extract::State;
use model::{EvictionPair, Party, Quantity, text::time};
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::selector::{OwnerSelector, ProcessIds, ProcessSelector};
use crate::{
    convert,
    paging::{Cursors, Order},
    problem::Problem,
    query::{ListParameters, PageParameters},
    responses::{Observation, Responses, SharedResponse, Text},
};

/// Side of an eviction to select, and order of the list.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EvictionFilter {
    /// Side that the process and its owner are on: `victim` or `evictor`; either by default.
    #[param(inline)]
    role: Option<Role>,
    /// `activity`, the default: most bytes first. `id`: by GPU, victim, evictor and cause.
    #[param(inline, value_type = Option<Order>)]
    #[serde(default)]
    order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Role {
    Victim,
    Evictor,
}

/// List evictions
///
/// Evictor and victim of every eviction since uvmd counts, as pairs with sums.
#[utoipa::path(
    get,
    path = "/api/v1/evictions",
    params(ProcessIds, OwnerSelector, EvictionFilter, PageParameters),
    responses((status = OK, body = Evictions))
)]
pub(crate) async fn evictions(
    list: ListParameters<ProcessSelector, EvictionFilter>,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let (selector, EvictionFilter { role, order }, page_request) = list.page("evictions", &cursors)?;
    let cache_key = page_request.to_string();
    let make = move |known: &Observation| {
        let (view, snapshot) = (known.view(), &known.snapshot);
        let with_verdict = selector.with_verdict(&known.verdicts);
        let is_party = |party: Party| match party {
            Party::Process(id) => {
                selector.has_process(&known.snapshot, id, view.process(id))
                    && with_verdict.as_ref().is_none_or(|with| with.contains(&id))
            }
            Party::Forgotten | Party::Unknown => selector.has_all_processes(),
        };
        let is_selected = |pair: &EvictionPair| {
            let is_victim = role != Some(Role::Evictor) && is_party(pair.victim);
            let is_evictor = role != Some(Role::Victim) && is_party(pair.evictor);
            selector.has_gpu(snapshot, pair.gpu) && (is_victim || is_evictor)
        };
        let page = convert::evictions(&view, order, is_selected, &cursors, &page_request)?;
        let unavailable = Quantity::EvictionPairs.unavailable(snapshot);
        let is_counted = unavailable.is_none();
        let mut fields = vec![
            ("time", time(snapshot.taken).into()),
            ("inferred", convert::INFERRED.into()),
            ("unavailable", unavailable.into()),
        ];
        if is_counted {
            return Ok(Text::page(&fields, &[("pairs", &page.items)], &page));
        }
        fields.push(("pairs", Value::Null));
        Ok(Text::page(&fields, &[], &page))
    };
    responses.of_observation(cache_key, make).await
}

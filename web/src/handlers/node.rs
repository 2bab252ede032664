//! Status of the node, and its GPUs.

use std::sync::Arc;

use api::{Gpus, Status};
use axum::extract::State;

use crate::{
    Node,
    auth::{ReadPermission, WritePermission},
    control::Controls,
    convert,
    problem::Problem,
    query::{NoParameters, Parameters},
    responses::{Observation, Responses, SharedResponse, Text},
};

/// Get the status
///
/// Source of events, its probes, the GPUs, and sums over everything.
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

/// List GPUs
///
/// The GPUs, with their counts and memory.
#[utoipa::path(get, path = "/api/v1/gpus", responses((status = OK, body = Gpus)))]
pub(crate) async fn gpus(_: Parameters<NoParameters>, responses: Responses) -> Result<SharedResponse, Problem> {
    responses.of_observation("gpus".to_owned(), |known| Ok(Text::json(&convert::gpus(&known.snapshot)))).await
}

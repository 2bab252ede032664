//! What concerns the whole node.

use std::sync::Arc;

use axum::{Json, extract::State};
use model::api::{Evictions, Gpus, Owners, Status};

use super::Known;
use crate::{
    Node,
    authority::{MayReadAll, MayWrite},
    control::Controls,
    convert,
    problem::{NoParameters, Parameters},
    source::Fresh,
};

/// The source of events, its probes, the GPUs, and sums over everything.
#[utoipa::path(get, path = "/api/v1/status", responses((status = OK, body = Status)))]
pub(crate) async fn status(
    _: Parameters<NoParameters>,
    MayReadAll(may_read): MayReadAll,
    MayWrite(may_write): MayWrite,
    State(node): State<Arc<Node>>,
    State(controls): State<Controls>,
    Fresh(snapshot): Fresh,
) -> Json<Status> {
    Json(convert::status(&node, &snapshot, [may_read, may_write], controls.now().state().file_error))
}

/// The GPUs with their memory.
#[utoipa::path(get, path = "/api/v1/gpus", responses((status = OK, body = Gpus)))]
pub(crate) async fn gpus(_: Parameters<NoParameters>, Fresh(snapshot): Fresh) -> Json<Gpus> {
    Json(convert::gpus(&snapshot))
}

/// Sums by pod, job, container and unit, which outlive processes.
#[utoipa::path(get, path = "/api/v1/owners", responses((status = OK, body = Owners)))]
pub(crate) async fn owners(_: Parameters<NoParameters>, Fresh(snapshot): Fresh) -> Json<Owners> {
    Json(convert::owners(&snapshot))
}

/// Who pushed whose memory out, since uvmd counts.
#[utoipa::path(get, path = "/api/v1/evictions", responses((status = OK, body = Evictions)))]
pub(crate) async fn evictions(_: Parameters<NoParameters>, known: Known) -> Json<Evictions> {
    Json(convert::evictions(&known.view()))
}

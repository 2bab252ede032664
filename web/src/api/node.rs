//! What concerns the whole node.

use std::sync::Arc;

use axum::{Json, extract::State};
use model::api::{Evictions, Gpus, Owners, Status};

use super::Known;
use crate::{
    Node,
    authority::MayReadAll,
    convert,
    problem::{NoParameters, Parameters},
    source::Fresh,
};

pub(crate) async fn status(
    _: Parameters<NoParameters>,
    MayReadAll(read_authority): MayReadAll,
    State(node): State<Arc<Node>>,
    Fresh(snapshot): Fresh,
) -> Json<Status> {
    Json(convert::status(&node, &snapshot, read_authority))
}

pub(crate) async fn gpus(_: Parameters<NoParameters>, Fresh(snapshot): Fresh) -> Json<Gpus> {
    Json(convert::gpus(&snapshot))
}

pub(crate) async fn owners(_: Parameters<NoParameters>, Fresh(snapshot): Fresh) -> Json<Owners> {
    Json(convert::owners(&snapshot))
}

pub(crate) async fn evictions(_: Parameters<NoParameters>, known: Known) -> Json<Evictions> {
    Json(convert::evictions(known.view()))
}

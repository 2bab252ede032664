//! `/api/v1`: the JSON form of a snapshot.

use std::sync::Arc;

use axum::{Json, extract::State};
use model::api::{Processes, Status};
use serde::Deserialize;

use crate::{
    Node, convert,
    problem::{NoParameters, Parameters},
    source::Fresh,
};

pub(crate) async fn status(
    _: Parameters<NoParameters>,
    State(node): State<Arc<Node>>,
    Fresh(snapshot): Fresh,
) -> Json<Status> {
    Json(convert::status(&node, &snapshot))
}

/// Which processes to list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessFilter {
    state: Option<ProcessState>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProcessState {
    Running,
    Ended,
}

pub(crate) async fn processes(
    Parameters(filter): Parameters<ProcessFilter>,
    Fresh(snapshot): Fresh,
) -> Json<Processes> {
    let wanted = |process: &model::Process| match filter.state {
        None => true,
        Some(ProcessState::Running) => process.ended.is_none(),
        Some(ProcessState::Ended) => process.ended.is_some(),
    };
    Json(convert::processes(&snapshot, wanted))
}

//! `/api/v1`: the JSON form of a snapshot.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use model::api::{ProcessDetail, Processes, Status};
use serde::Deserialize;

use crate::{
    Node, convert,
    problem::{NoParameters, Parameters, Problem},
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

/// Blocks shown of a process.
const BLOCKS_MAX: usize = 64;

/// One process. Pids are reused: the living one, else the one that ended last.
pub(crate) async fn process(
    _: Parameters<NoParameters>,
    Path(pid): Path<u32>,
    Fresh(snapshot): Fresh,
) -> Result<Json<ProcessDetail>, Problem> {
    let named = snapshot.processes.iter().filter(|process| process.id.pid == pid);
    let latest = named.max_by_key(|process| (process.ended.is_none(), process.ended, process.id.start_ticks));
    let process = latest.ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, format!("no process {pid} has used managed memory since uvmd counts"))
    })?;
    Ok(Json(convert::detail(&snapshot, process, BLOCKS_MAX)))
}

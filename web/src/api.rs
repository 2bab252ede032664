//! `/api/v1`: the JSON form of a snapshot.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
    http::{StatusCode, Uri},
};
use model::api::{ProcessDetail, Processes, Status};
use serde::Deserialize;

use crate::{
    Node, convert,
    problem::{self, NoParameters, Parameters, Problem},
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

/// How many blocks are shown of a process unless the request says.
const BLOCKS: usize = 64;

/// Which process, where a pid was used again, and how much of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessChoice {
    start_ticks: Option<u64>,
    blocks: Option<usize>,
}

/// One process. Of those that had this pid the living one, else the one that ended last, unless the request says which.
pub(crate) async fn process(
    pid: Result<Path<u32>, PathRejection>,
    Parameters(ProcessChoice { start_ticks, blocks }): Parameters<ProcessChoice>,
    Fresh(snapshot): Fresh,
    uri: Uri,
) -> Result<Json<ProcessDetail>, Problem> {
    let Ok(Path(pid)) = pid else { return Err(problem::not_found(uri).await) };
    let named = snapshot.processes.iter().filter(|process| process.id.pid == pid);
    let wanted = named.filter(|process| start_ticks.is_none_or(|ticks| process.id.start_ticks == ticks));
    let latest = wanted.max_by_key(|process| (process.ended.is_none(), process.ended, process.id.start_ticks));
    let process = latest.ok_or_else(|| {
        let which = start_ticks.map(|ticks| format!(" with start_ticks {ticks}")).unwrap_or_default();
        let detail = format!(
            "no process {pid}{which} is known to use managed memory, nor to have used it lately; /api/v1/processes lists those that are"
        );
        Problem::new(StatusCode::NOT_FOUND, detail)
    })?;
    Ok(Json(convert::detail(&snapshot, process, blocks.unwrap_or(BLOCKS))))
}

//! Processes, all and one.

use axum::Json;
use model::api::{ProcessDetail, Processes};
use serde::Deserialize;

use super::{Known, Pid, choose};
use crate::{
    authority::MayReadAll,
    convert,
    problem::{Parameters, Problem},
};

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

pub(crate) async fn processes(Parameters(filter): Parameters<ProcessFilter>, known: Known) -> Json<Processes> {
    let wanted = |process: &model::Process| match filter.state {
        None => true,
        Some(ProcessState::Running) => process.ended.is_none(),
        Some(ProcessState::Ended) => process.ended.is_some(),
    };
    Json(convert::processes(known.view(), wanted))
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

pub(crate) async fn process(
    MayReadAll(all): MayReadAll,
    pid: Pid,
    Parameters(ProcessChoice { start_ticks, blocks }): Parameters<ProcessChoice>,
    known: Known,
) -> Result<Json<ProcessDetail>, Problem> {
    let process = choose(&known.snapshot, pid, start_ticks)?;
    let detail = convert::detail(known.view(), process, blocks.unwrap_or(BLOCKS));
    Ok(Json(if all { detail } else { convert::redacted(detail) }))
}

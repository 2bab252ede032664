//! Processes, all and one.

use axum::Json;
use model::api::{ProcessDetail, Processes};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{Known, Pid, choose};
use crate::{
    authority::MayReadAll,
    convert,
    problem::{Parameters, Problem},
};

/// Which processes to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessFilter {
    /// Those that run, or those that have ended; all unless given.
    #[param(inline)]
    state: Option<ProcessState>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ProcessState {
    Running,
    Ended,
}

/// What each process did: living ones first, busiest first, then those that ended lately.
#[utoipa::path(get, path = "/api/v1/processes", params(ProcessFilter), responses((status = OK, body = Processes)))]
pub(crate) async fn processes(Parameters(filter): Parameters<ProcessFilter>, known: Known) -> Json<Processes> {
    let wanted = |process: &model::Process| match filter.state {
        None => true,
        Some(ProcessState::Running) => process.ended.is_none(),
        Some(ProcessState::Ended) => process.ended.is_some(),
    };
    Json(convert::processes(&known.view(), wanted))
}

/// How many blocks are shown of a process unless the request says.
const BLOCKS: usize = 64;

/// Which process, where a pid was used again, and how much of it.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessChoice {
    /// Of the processes that had this pid the one with this start time; else the living one, else the one that ended last.
    start_ticks: Option<u64>,
    /// How many blocks at most; 64 unless given.
    blocks: Option<usize>,
}

/// One process, with the busiest 2 MiB blocks of its memory. Blocks and its command line need read authority, and are left out without.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}",
    params(("pid" = u32, Path, description = "Process id"), ProcessChoice),
    responses((status = OK, body = ProcessDetail)),
    security((), ("token" = []))
)]
pub(crate) async fn process(
    MayReadAll(all): MayReadAll,
    pid: Pid,
    Parameters(ProcessChoice { start_ticks, blocks }): Parameters<ProcessChoice>,
    known: Known,
) -> Result<Json<ProcessDetail>, Problem> {
    let process = choose(&known.snapshot, pid, start_ticks)?;
    let detail = convert::detail(&known.view(), process, blocks.unwrap_or(BLOCKS));
    Ok(Json(if all { detail } else { convert::redacted(detail) }))
}

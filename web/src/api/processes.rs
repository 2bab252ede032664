//! Processes, all and one.

use std::sync::Arc;

use axum::extract::State;
use model::{
    api::{ProcessDetail, ProcessSummaries, Processes},
    text::time,
};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{
    Pid, choose,
    selector::{OwnerSelector, ProcessIds, ProcessSelector},
};
use crate::parameters::UpTo;
use crate::{
    auth::ReadPermission,
    convert,
    paging::{Cursors, Order},
    problem::Problem,
    query::{ListParameters, PageParameters, Parameters},
    responses::{Observation, Responses, SharedResponse, Text},
};

/// State of processes, and order of the list.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ProcessFilter {
    /// Running or exited processes; both by default.
    #[param(inline)]
    state: Option<ProcessState>,
    /// `activity`, the default: running processes first, busiest first. `id`: by pid and start.
    #[param(inline, value_type = Option<Order>)]
    #[serde(default)]
    order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ProcessState {
    Running,
    Exited,
}

type ProcessList = ListParameters<ProcessSelector, ProcessFilter>;

impl ProcessState {
    const fn of(process: &model::Process) -> Self {
        if process.exited_at.is_some() { Self::Exited } else { Self::Running }
    }
}

fn wanted<'a>(
    known: &'a Observation,
    selector: &'a ProcessSelector,
    ProcessFilter { state, .. }: ProcessFilter,
) -> impl Fn(&model::Process) -> bool + use<'a> {
    let with_verdict = selector.with_verdict(&known.verdicts);
    move |process| {
        state.is_none_or(|state| state == ProcessState::of(process))
            && selector.has(&known.snapshot, process, with_verdict.as_ref())
    }
}

/// List processes
///
/// Counts of each process: running ones first, busiest first, then those that exited recently.
#[utoipa::path(
    get,
    path = "/api/v1/processes",
    params(ProcessIds, OwnerSelector, ProcessFilter, PageParameters),
    responses((status = OK, body = Processes))
)]
pub(crate) async fn processes(
    list: ProcessList,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let (selector, filter, part) = list.page("processes", &cursors)?;
    let question = part.to_string();
    let make = move |known: &Observation| {
        let wanted = wanted(known, &selector, filter);
        let page = convert::processes(&known.view(), filter.order, wanted, &cursors, &part)?;
        Ok(Text::page(&[("time", time(known.snapshot.taken).into())], &[("processes", &page.items)], &page))
    };
    responses.of_observation(question, make).await
}

/// List processes in short
///
/// The same without breakdowns of the counts, and without the counts of each GPU.
#[utoipa::path(
    get,
    path = "/api/v1/processes/summary",
    params(ProcessIds, OwnerSelector, ProcessFilter, PageParameters),
    responses((status = OK, body = ProcessSummaries))
)]
pub(crate) async fn summary(
    list: ProcessList,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let (selector, filter, part) = list.page("processes/summary", &cursors)?;
    let question = part.to_string();
    let make = move |known: &Observation| {
        let wanted = wanted(known, &selector, filter);
        let page = convert::summaries(&known.view(), filter.order, wanted, &cursors, &part)?;
        Ok(Text::page(&[("time", time(known.snapshot.taken).into())], &[("processes", &page.items)], &page))
    };
    responses.of_observation(question, make).await
}

/// How many blocks are shown of a process unless the request says, and at most.
const BLOCKS: u32 = 64;
const BLOCKS_MAX: u32 = 64;

/// Which process, where a pid was used again, and how much of it.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessChoice {
    /// Of the processes that had this pid the one with this start time; else the living one, else the one that ended last.
    start_ticks: Option<u64>,
    /// How many blocks at most; 64 unless given.
    #[param(value_type = Option<u32>, minimum = 0, maximum = 64)]
    blocks: Option<UpTo<BLOCKS_MAX, 0>>,
}

/// Get a process
///
/// One process, with the busiest 2 MiB blocks of its memory. Blocks and the command line require read permission, and are omitted without it.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}",
    params(("pid" = u32, Path, description = "Process id"), ProcessChoice),
    responses((status = OK, body = ProcessDetail)),
    security((), ("token" = []))
)]
pub(crate) async fn process(
    ReadPermission(all): ReadPermission,
    pid: Pid,
    Parameters(ProcessChoice { start_ticks, blocks }): Parameters<ProcessChoice>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    // Those who may not see any are all answered the same.
    let blocks = if all { blocks.map_or(BLOCKS, |UpTo(blocks)| blocks) } else { 0 };
    let question = format!("process {pid:?} {start_ticks:?} blocks={blocks} all={all}");
    let make = move |known: &Observation| {
        let detail = convert::detail(&known.view(), choose(&known.snapshot, pid, start_ticks)?, blocks as usize);
        Ok(Text::json(&if all { detail } else { convert::redacted(detail) }))
    };
    responses.of_observation(question, make).await
}

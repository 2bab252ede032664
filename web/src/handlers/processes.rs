//! Lists and details of processes.

use std::sync::Arc;

use api::{ProcessDetail, ProcessSummaries, Processes};
use axum::extract::State;
use model::text::time;
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

fn is_selected<'a>(
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
    let (selector, filter, page_request) = list.page("processes", &cursors)?;
    let cache_key = page_request.to_string();
    let make = move |known: &Observation| {
        let is_selected = is_selected(known, &selector, filter);
        let page = convert::processes(&known.view(), filter.order, is_selected, &cursors, &page_request)?;
        Ok(Text::page(&[("time", time(known.snapshot.taken).into())], &[("processes", &page.items)], &page))
    };
    responses.of_observation(cache_key, make).await
}

/// List processes in short
///
/// Processes without breakdowns of the counts, and without the counts of each GPU.
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
    let (selector, filter, page_request) = list.page("processes/summary", &cursors)?;
    let cache_key = page_request.to_string();
    let make = move |known: &Observation| {
        let is_selected = is_selected(known, &selector, filter);
        let page = convert::summaries(&known.view(), filter.order, is_selected, &cursors, &page_request)?;
        Ok(Text::page(&[("time", time(known.snapshot.taken).into())], &[("processes", &page.items)], &page))
    };
    responses.of_observation(cache_key, make).await
}

/// Default and maximum number of a process's blocks in a response.
const BLOCKS: u32 = 64;
const BLOCKS_MAX: u32 = 64;

/// Selector of a process, and number of its blocks.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessParameters {
    /// Start time of the process, in clock ticks after boot; by default the running process with
    /// this pid, else the last one to exit.
    start_ticks: Option<u64>,
    /// Maximum number of blocks; 64 by default.
    #[param(value_type = Option<u32>, minimum = 0, maximum = 64)]
    blocks: Option<UpTo<BLOCKS_MAX, 0>>,
}

/// Get a process
///
/// One process, with the busiest 2 MiB blocks of its memory. Blocks and the command line require read permission, and are omitted without it.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}",
    params(("pid" = u32, Path, description = "Process id"), ProcessParameters),
    responses((status = OK, body = ProcessDetail)),
    security((), ("token" = []))
)]
pub(crate) async fn process(
    ReadPermission(all): ReadPermission,
    pid: Pid,
    Parameters(ProcessParameters { start_ticks, blocks }): Parameters<ProcessParameters>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    // Requests without read permission share one response, whatever number they have.
    let blocks = if all { blocks.map_or(BLOCKS, |UpTo(blocks)| blocks) } else { 0 };
    let cache_key = format!("process {pid:?} {start_ticks:?} blocks={blocks} all={all}");
    let make = move |known: &Observation| {
        let detail = convert::detail(&known.view(), choose(&known.snapshot, pid, start_ticks)?, blocks as usize);
        Ok(Text::json(&if all { detail } else { convert::redacted(detail) }))
    };
    responses.of_observation(cache_key, make).await
}

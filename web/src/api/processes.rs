//! Processes, all and one.

use std::sync::Arc;

use axum::extract::State;
use model::api::{ProcessDetail, ProcessSummaries, Processes, text::time};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{Pid, choose, parameters::UpTo};
use crate::{
    auth::ReadPermission,
    convert,
    paging::{Cursor, Cursors, LIMIT_MAX, Order, PageRequest},
    problem::{Parameters, Problem},
    responses::{Observation, Responses, SharedResponse, Text},
};

/// Which processes to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessFilter {
    /// Those that run, or those that have ended; all unless given.
    #[param(inline)]
    state: Option<ProcessState>,
    /// Those of the user with this id.
    uid: Option<u32>,
    /// `activity`: living ones first, busiest first; `id`: by pid and start.
    #[param(inline, value_type = Option<Order>)]
    #[serde(default)]
    order: Order,
    /// How many at most; 100 unless given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<UpTo<LIMIT_MAX>>,
    /// From where the page before told.
    #[param(value_type = Option<String>)]
    r#continue: Option<Cursor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ProcessState {
    Running,
    Exited,
}

impl ProcessFilter {
    fn has(&self, process: &model::Process) -> bool {
        let is_in_state = match self.state {
            None => true,
            Some(ProcessState::Running) => process.exited_at.is_none(),
            Some(ProcessState::Exited) => process.exited_at.is_some(),
        };
        is_in_state && self.uid.is_none_or(|uid| process.uid == uid)
    }

    fn part(&mut self, list: &str, cursors: &Cursors) -> Result<PageRequest, Problem> {
        let Self { state, uid, order, limit, r#continue } = self;
        let list = format!("{list} state={state:?} uid={uid:?} order={order:?}");
        cursors.part(list, limit.take(), r#continue.take())
    }
}

/// What each process did: living ones first, busiest first, then those that ended lately.
#[utoipa::path(get, path = "/api/v1/processes", params(ProcessFilter), responses((status = OK, body = Processes)))]
pub(crate) async fn processes(
    Parameters(mut filter): Parameters<ProcessFilter>,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let part = filter.part("processes", &cursors)?;
    let question = part.to_string();
    let make = move |known: &Observation| {
        let wanted = |process: &model::Process| filter.has(process);
        let page = convert::processes(&known.view(), filter.order, wanted, &cursors, &part)?;
        Ok(Text::page(&[("time", time(known.snapshot.taken).into())], &[("processes", &page.items)], &page))
    };
    responses.of_observation(question, make).await
}

/// The same in short: without breakdowns of what was counted, and without the counts of each GPU.
#[utoipa::path(
    get,
    path = "/api/v1/processes/summary",
    params(ProcessFilter),
    responses((status = OK, body = ProcessSummaries))
)]
pub(crate) async fn summary(
    Parameters(mut filter): Parameters<ProcessFilter>,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let part = filter.part("processes/summary", &cursors)?;
    let question = part.to_string();
    let make = move |known: &Observation| {
        let wanted = |process: &model::Process| filter.has(process);
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

/// One process, with the busiest 2 MiB blocks of its memory. Blocks and its command line need read permission, and are left out without.
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

//! Lists of verdicts.

use std::sync::Arc;

use api::Verdicts;
use axum::extract::State;
use model::{Mode, Process, Verdict, text::time};
use serde::Deserialize;
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::{
    Pid, choose,
    memory::InstanceSelector,
    selector::{OwnerSelector, ProcessIds, ProcessSelector},
};
use crate::{
    auth::ReadPermission,
    control::Controls,
    convert,
    paging::{Cursors, Order},
    problem::Problem,
    query::{ListParameters, PageParameters, Parameters},
    responses::{Observation, Responses, SharedResponse, Text},
};

/// State of verdicts, and order of the list.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct VerdictFilter {
    /// Active or ended verdicts; both by default.
    #[param(inline)]
    state: Option<VerdictState>,
    /// `activity`, the default: most traffic first, and of ended ones the latest. `id`: by process, GPU and kind. Active ones come first.
    #[param(inline, value_type = Option<Order>)]
    #[serde(default)]
    order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum VerdictState {
    Active,
    Ended,
}

impl VerdictState {
    const fn of(verdict: &Verdict) -> Self {
        if verdict.ended_at.is_some() { Self::Ended } else { Self::Active }
    }
}

/// List verdicts
///
/// Active and ended verdicts, with their evidence. `ranges` requires read permission, and is null without it.
#[utoipa::path(
    get,
    path = "/api/v1/verdicts",
    params(ProcessIds, OwnerSelector, VerdictFilter, PageParameters),
    responses((status = OK, body = Verdicts)),
    security((), ("token" = []))
)]
pub(crate) async fn verdicts(
    ReadPermission(ranges): ReadPermission,
    list: ListParameters<ProcessSelector, VerdictFilter>,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let (selector, VerdictFilter { state, order }, page_request) = list.page("verdicts", &cursors)?;
    let cache_key = format!("{page_request} ranges={ranges}");
    let make = move |known: &Observation| {
        let (view, snapshot) = (known.view(), &known.snapshot);
        let is_selected = |each: &Verdict| {
            state.is_none_or(|state| state == VerdictState::of(each))
                && selector.has_verdict(each.kind)
                && selector.has_gpu(snapshot, each.gpu)
                && selector.has_process(&known.snapshot, each.process, view.process(each.process))
        };
        let active = known.verdicts.active.iter().filter(|each| is_selected(each)).count();
        let page = convert::verdicts(&view, ranges, order, is_selected, &cursors, &page_request)?;
        let (active, ended) = page.items.split_at(active.saturating_sub(page.begin).min(page.items.len()));
        let fields = [
            ("time", time(snapshot.taken).into()),
            ("unavailable", json!(convert::unavailable(snapshot))),
            ("remarks", json!([])),
        ];
        Ok(Text::page(&fields, &[("active", active), ("ended", ended)], &page))
    };
    responses.of_observation(cache_key, make).await
}

/// List the verdicts of a process
///
/// Active and ended verdicts of one process. `ranges` requires read permission, and is null without it.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}/verdict",
    params(("pid" = u32, Path, description = "Process id"), InstanceSelector),
    responses((status = OK, body = Verdicts)),
    security((), ("token" = []))
)]
pub(crate) async fn process_verdicts(
    ReadPermission(ranges): ReadPermission,
    pid: Pid,
    Parameters(InstanceSelector { start_ticks }): Parameters<InstanceSelector>,
    State(controls): State<Controls>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let cache_key = format!("verdict {pid:?} {start_ticks:?} ranges={ranges}");
    let make = move |known: &Observation| {
        let id = choose(&known.snapshot, pid, start_ticks)?.id;
        let in_mode_act = |process: &Process| controls.now().wanted(process).mode == Mode::Act.name();
        Ok(Text::json(&convert::verdicts_of(&known.view(), ranges, id, in_mode_act)))
    };
    responses.of_observation(cache_key, make).await
}

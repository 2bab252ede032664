//! What is wrong.

use std::sync::Arc;

use axum::extract::State;
use model::api::{Verdicts, text::time};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use super::{Pid, choose, memory::Which, parameters::UpTo};
use crate::{
    auth::ReadPermission,
    convert,
    paging::{Cursor, Cursors, LIMIT_MAX, Order},
    problem::{Parameters, Problem},
    responses::{Observation, Responses, SharedResponse, Text},
};

/// Which part of the list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerdictPage {
    /// `activity`: the one with most traffic first, and of those that are over the latest; `id`: by process, GPU and kind. Those in force come first.
    #[param(inline, value_type = Option<Order>)]
    #[serde(default)]
    order: Order,
    /// How many at most, in force and over; 100 unless given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<UpTo<LIMIT_MAX>>,
    /// From where the page before told.
    #[param(value_type = Option<String>)]
    r#continue: Option<Cursor>,
}

/// What is wrong, and what was, with what that rests on. The ranges involved need read permission, and are null without.
#[utoipa::path(
    get,
    path = "/api/v1/verdicts",
    params(VerdictPage),
    responses((status = OK, body = Verdicts)),
    security((), ("token" = []))
)]
pub(crate) async fn verdicts(
    ReadPermission(ranges): ReadPermission,
    Parameters(VerdictPage { order, limit, r#continue }): Parameters<VerdictPage>,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let part = cursors.part(format!("verdicts order={order:?}"), limit, r#continue)?;
    let question = format!("{part} ranges={ranges}");
    let make = move |known: &Observation| {
        let page = convert::verdicts(&known.view(), ranges, order, &cursors, &part)?;
        let active = known.verdicts.active.len().saturating_sub(page.begin).min(page.items.len());
        let (active, ended) = page.items.split_at(active);
        let fields = [
            ("time", time(known.snapshot.taken).into()),
            ("unavailable", json!(convert::unavailable(&known.snapshot))),
        ];
        Ok(Text::page(&fields, &[("active", active), ("ended", ended)], &page))
    };
    responses.of_observation(question, make).await
}

/// What is wrong with one process, and what was.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}/verdict",
    params(("pid" = u32, Path, description = "Process id"), Which),
    responses((status = OK, body = Verdicts)),
    security((), ("token" = []))
)]
pub(crate) async fn process_verdicts(
    ReadPermission(ranges): ReadPermission,
    pid: Pid,
    Parameters(Which { start_ticks }): Parameters<Which>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let question = format!("verdict {pid:?} {start_ticks:?} ranges={ranges}");
    let make = move |known: &Observation| {
        let id = choose(&known.snapshot, pid, start_ticks)?.id;
        Ok(Text::json(&convert::verdicts_of(&known.view(), ranges, id)))
    };
    responses.of_observation(question, make).await
}

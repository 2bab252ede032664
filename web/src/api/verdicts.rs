//! What is wrong.

use axum::Json;
use model::api::Verdicts;

use super::{Known, Pid, choose, memory::Which};
use crate::{
    authority::MayReadAll,
    convert,
    problem::{NoParameters, Parameters, Problem},
};

/// What is wrong, and what was, with what that rests on. The ranges involved need read authority, and are null without.
#[utoipa::path(
    get,
    path = "/api/v1/verdicts",
    responses((status = OK, body = Verdicts)),
    security((), ("token" = []))
)]
pub(crate) async fn verdicts(
    MayReadAll(ranges): MayReadAll,
    _: Parameters<NoParameters>,
    known: Known,
) -> Json<Verdicts> {
    Json(convert::verdicts(&known.view(), ranges, |_| true))
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
    MayReadAll(ranges): MayReadAll,
    pid: Pid,
    Parameters(Which { start_ticks }): Parameters<Which>,
    known: Known,
) -> Result<Json<Verdicts>, Problem> {
    let id = choose(&known.snapshot, pid, start_ticks)?.id;
    Ok(Json(convert::verdicts(&known.view(), ranges, |verdict| verdict.process == id)))
}

//! What is wrong.

use axum::Json;
use model::api::Verdicts;

use super::{Known, Pid, choose, memory::Which};
use crate::{
    authority::MayReadAll,
    convert,
    problem::{NoParameters, Parameters, Problem},
};

pub(crate) async fn verdicts(
    MayReadAll(ranges): MayReadAll,
    _: Parameters<NoParameters>,
    known: Known,
) -> Json<Verdicts> {
    Json(convert::verdicts(known.view(), ranges, |_| true))
}

pub(crate) async fn verdicts_of_process(
    MayReadAll(ranges): MayReadAll,
    pid: Pid,
    Parameters(Which { start_ticks }): Parameters<Which>,
    known: Known,
) -> Result<Json<Verdicts>, Problem> {
    let id = choose(&known.snapshot, pid, start_ticks)?.id;
    Ok(Json(convert::verdicts(known.view(), ranges, |verdict| verdict.process == id)))
}

//! What is wrong.

use axum::Json;
use model::api::Verdicts;

use super::{Known, Pid, choose, memory::Which};
use crate::{
    convert,
    problem::{NoParameters, Parameters, Problem},
};

pub(crate) async fn verdicts(_: Parameters<NoParameters>, known: Known) -> Json<Verdicts> {
    Json(convert::verdicts(known.view(), true, |_| true))
}

pub(crate) async fn verdicts_of_process(
    pid: Pid,
    Parameters(Which { start_ticks }): Parameters<Which>,
    known: Known,
) -> Result<Json<Verdicts>, Problem> {
    let id = choose(&known.snapshot, pid, start_ticks)?.id;
    Ok(Json(convert::verdicts(known.view(), true, |verdict| verdict.process == id)))
}

//! Where in a process's memory it happens.

use axum::{Json, extract::State};
use model::{
    HeatRequest,
    api::{HeatMap, Ranges},
};
use serde::Deserialize;

use super::{
    Pid, choose,
    parameters::{Address, UpTo},
};
use crate::{
    authority::Reader,
    convert,
    problem::{Parameters, Problem},
    source::{Fresh, Heat},
};

/// Which process, where a pid was used again.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    pub(super) start_ticks: Option<u64>,
}

pub(crate) async fn ranges(
    _: Reader,
    pid: Pid,
    Parameters(Which { start_ticks }): Parameters<Which>,
    Fresh(snapshot): Fresh,
) -> Result<Json<Ranges>, Problem> {
    Ok(Json(convert::ranges(&snapshot, choose(&snapshot, pid, start_ticks)?)))
}

/// Cells of each range unless the request says.
const CELLS: u32 = 64;
/// Blocks of 8 GiB.
const CELLS_MAX: u32 = 4096;

/// Which process, which of its memory, and how fine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeatChoice {
    start_ticks: Option<u64>,
    begin: Option<Address>,
    end: Option<Address>,
    cells: Option<UpTo<CELLS_MAX>>,
}

pub(crate) async fn heat_map(
    _: Reader,
    pid: Pid,
    Parameters(HeatChoice { start_ticks, begin, end, cells }): Parameters<HeatChoice>,
    State(heat): State<Heat>,
    Fresh(snapshot): Fresh,
) -> Result<Json<HeatMap>, Problem> {
    let process = choose(&snapshot, pid, start_ticks)?.id;
    let request = HeatRequest {
        process,
        begin: begin.map_or(0, |Address(begin)| begin),
        end: end.map_or(u64::MAX, |Address(end)| end),
        cells_max: cells.map_or(CELLS, |UpTo(cells)| cells) as usize,
    };
    // One that is forgotten between the two questions has no memory any more.
    let map = heat.ask(request).await?.unwrap_or_default();
    Ok(Json(convert::heat_map(snapshot.taken, &map)))
}

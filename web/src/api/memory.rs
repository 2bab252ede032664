//! Where in a process's memory it happens.

use std::sync::Arc;

use axum::extract::State;
use model::{
    HeatRequest,
    api::{HeatMap, Ranges},
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Pid, choose};
use crate::parameters::{Address, UpTo};
use crate::{
    auth::Reader,
    capabilities::Capabilities,
    convert,
    problem::Problem,
    query::Parameters,
    responses::{Observation, Reading, Responses, SharedResponse, Text, on_a_thread},
    sources::Heat,
};

/// Which process, where a pid was used again.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    /// Of the processes that had this pid the one with this start time; else the living one, else the one that ended last.
    pub(super) start_ticks: Option<u64>,
}

/// List the ranges of a process
///
/// Ranges of managed memory, busiest first, with their access patterns.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}/ranges",
    params(("pid" = u32, Path, description = "Process id"), Which),
    responses((status = OK, body = Ranges)),
    security(("token" = []))
)]
pub(crate) async fn ranges(
    _: Reader,
    pid: Pid,
    Parameters(Which { start_ticks }): Parameters<Which>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let make = move |known: &Observation| {
        let process = choose(&known.snapshot, pid, start_ticks)?;
        Ok(Text::json(&convert::ranges(&known.snapshot, process)))
    };
    responses.of_observation(format!("ranges of {pid:?} {start_ticks:?}"), make).await
}

/// Cells of each range unless the request says.
const CELLS: u32 = 64;
/// Blocks of 8 GiB.
const CELLS_MAX: u32 = 4096;

/// Which process, which of its memory, and how fine.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeatChoice {
    /// Of the processes that had this pid the one with this start time; else the living one, else the one that ended last.
    start_ticks: Option<u64>,
    /// From this address, in hexadecimal with `0x`; from the first unless given.
    #[param(value_type = Option<String>, pattern = "^0x[0-9a-fA-F]{1,16}$")]
    begin: Option<Address>,
    /// Up to this address, exclusive; to the last unless given.
    #[param(value_type = Option<String>, pattern = "^0x[0-9a-fA-F]{1,16}$")]
    end: Option<Address>,
    /// How many cells of each range at most; 64 unless given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 4096)]
    cells: Option<UpTo<CELLS_MAX>>,
}

/// Get the heat map of a process
///
/// Memory of a process in cells, in the order of addresses.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}/heatmap",
    params(("pid" = u32, Path, description = "Process id"), HeatChoice),
    responses((status = OK, body = HeatMap)),
    security(("token" = []))
)]
pub(crate) async fn heat_map(
    _: Reader,
    pid: Pid,
    Parameters(HeatChoice { start_ticks, begin, end, cells }): Parameters<HeatChoice>,
    State(heat): State<Heat>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let (begin, end) = (begin.map_or(0, |Address(begin)| begin), end.map_or(u64::MAX, |Address(end)| end));
    let cells_max = cells.map_or(CELLS, |UpTo(cells)| cells) as usize;
    let question = format!("heat map of {pid:?} {start_ticks:?} {begin:#x} {end:#x} {cells_max}");
    let make = async move |reading: Arc<Reading>| {
        let process = choose(&reading.known.snapshot, pid, start_ticks)?.id;
        let (taken, capabilities) = (reading.known.snapshot.taken, Capabilities::of(&reading.known.snapshot));
        drop(reading);
        // One that is forgotten between the two questions has no memory any more.
        let map = heat.ask(HeatRequest { process, begin, end, cells_max }).await?.unwrap_or_default();
        on_a_thread(move || Ok(Text::json(&convert::heat_map(taken, &map, capabilities)))).await
    };
    responses.of_question(question, make).await
}

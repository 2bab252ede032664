//! Ranges of a process's memory, heat maps, and sites of CPU faults on it.

use std::sync::Arc;

use api::{HeatMap, Ranges, Sites};
use axum::extract::State;
use model::{Capabilities, HeatRequest, Process, Snapshot};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::{Pid, choose};
use crate::parameters::{Address, UpTo};
use crate::{
    auth::Reader,
    convert,
    problem::Problem,
    query::Parameters,
    responses::{Observation, Reading, Responses, SharedResponse, Text, on_a_thread},
    sources::Heat,
};

/// Selector of a process among those with the same pid.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstanceSelector {
    /// Start time of the process, in clock ticks after boot; by default the running process with
    /// this pid, else the last one to exit.
    pub(super) start_ticks: Option<u64>,
}

/// List the ranges of a process
///
/// Ranges of managed memory, busiest first, with their access patterns.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}/ranges",
    params(("pid" = u32, Path, description = "Process id"), InstanceSelector),
    responses((status = OK, body = Ranges)),
    security(("token" = []))
)]
pub(crate) async fn ranges(
    _: Reader,
    pid: Pid,
    Parameters(InstanceSelector { start_ticks }): Parameters<InstanceSelector>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    of_process("ranges", pid, start_ticks, &responses, convert::ranges).await
}

/// List the sites of a process
///
/// Instructions that raise CPU faults on managed memory, busiest first, with their functions.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}/sites",
    params(("pid" = u32, Path, description = "Process id"), InstanceSelector),
    responses((status = OK, body = Sites)),
    security(("token" = []))
)]
pub(crate) async fn sites(
    _: Reader,
    pid: Pid,
    Parameters(InstanceSelector { start_ticks }): Parameters<InstanceSelector>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    of_process("sites", pid, start_ticks, &responses, convert::sites).await
}

/// Response about one process of the last snapshot. `subject` is the response's name in the cache.
async fn of_process<T: Serialize + 'static>(
    subject: &str,
    pid: Pid,
    start_ticks: Option<u64>,
    responses: &Responses,
    convert: fn(&Snapshot, &Process) -> T,
) -> Result<SharedResponse, Problem> {
    let make = move |known: &Observation| {
        let process = choose(&known.snapshot, pid, start_ticks)?;
        Ok(Text::json(&convert(&known.snapshot, process)))
    };
    responses.of_observation(format!("{subject} of {pid:?} {start_ticks:?}"), make).await
}

/// Default number of cells of each range.
const CELLS: u32 = 64;
/// Maximum number of cells: the blocks of 8 GiB.
const CELLS_MAX: u32 = 4096;

/// Parameters of a heat map: process, addresses and resolution.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeatMapParameters {
    /// Start time of the process, in clock ticks after boot; by default the running process with
    /// this pid, else the last one to exit.
    start_ticks: Option<u64>,
    /// First address, in hexadecimal with `0x`; that of the first range by default.
    #[param(value_type = Option<String>, pattern = "^0x[0-9a-fA-F]{1,16}$")]
    begin: Option<Address>,
    /// End address, exclusive; that of the last range by default.
    #[param(value_type = Option<String>, pattern = "^0x[0-9a-fA-F]{1,16}$")]
    end: Option<Address>,
    /// Maximum number of cells of each range; 64 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 4096)]
    cells: Option<UpTo<CELLS_MAX>>,
}

/// Get the heat map of a process
///
/// Memory of a process in cells, in the order of addresses.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}/heatmap",
    params(("pid" = u32, Path, description = "Process id"), HeatMapParameters),
    responses((status = OK, body = HeatMap)),
    security(("token" = []))
)]
pub(crate) async fn heat_map(
    _: Reader,
    pid: Pid,
    Parameters(HeatMapParameters { start_ticks, begin, end, cells }): Parameters<HeatMapParameters>,
    State(heat): State<Heat>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let (begin, end) = (begin.map_or(0, |Address(begin)| begin), end.map_or(u64::MAX, |Address(end)| end));
    let cells_max = cells.map_or(CELLS, |UpTo(cells)| cells) as usize;
    let cache_key = format!("heat map of {pid:?} {start_ticks:?} {begin:#x} {end:#x} {cells_max}");
    let make = async move |reading: Arc<Reading>| {
        let process = choose(&reading.known.snapshot, pid, start_ticks)?.id;
        let (taken, capabilities) = (reading.known.snapshot.taken, Capabilities::of(&reading.known.snapshot));
        drop(reading);
        // A process that was dropped between the two requests has no memory.
        let map = heat.request(HeatRequest { process, begin, end, cells_max }).await?.unwrap_or_default();
        on_a_thread(move || Ok(Text::json(&convert::heat_map(taken, &map, capabilities)))).await
    };
    responses.of_query(cache_key, make).await
}

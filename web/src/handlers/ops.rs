//! Calls of a process to the CUDA driver, as the helper in it records them.

use std::sync::Arc;

use api::Ops;
use axum::extract::State;
use model::ProcessId;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{Pid, choose};
use crate::{
    auth::Reader,
    parameters::UpTo,
    problem::{Kind, Problem},
    query::Parameters,
    responses::{Reading, Responses, SharedResponse, Text, on_a_thread},
    sources::{CallsRefusal, CallsRequest, OpsSource, TraceSource, Unrecorded},
};

/// Default and maximum number of calls in a response.
const CALLS: u32 = 100;
const CALLS_MAX: u32 = 1000;
/// Maximum number of calls in a trace: more than a recording holds.
const TRACE_CALLS_MAX: u32 = 1_000_000;

/// Process, and number of its calls.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpsParameters {
    /// Start time of the process, in clock ticks after boot; by default the running process with
    /// this pid, else the last one to exit.
    start_ticks: Option<u64>,
    /// Maximum number of calls, the last ones; 100 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    last: Option<UpTo<CALLS_MAX>>,
}

/// Process, and number of its calls.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceParameters {
    /// Start time of the process, in clock ticks after boot; by default the running process with
    /// this pid, else the last one to exit.
    start_ticks: Option<u64>,
    /// Maximum number of calls, the last ones; all that are retained by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    last: Option<UpTo<TRACE_CALLS_MAX>>,
}

/// Operations of a program, as `uvmctl sim` and `uvmctl plan` read them.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the document alone")]
pub(crate) struct Trace {
    /// Allocations: `bytes` and `address`.
    #[schema(value_type = Vec<Object>)]
    blocks: (),
    /// Functions with their launch configuration: `name`, `grid` and `block`.
    #[schema(value_type = Vec<Object>)]
    signatures: (),
    /// Launches: `signature`, `stream`, and the blocks of their `arguments`.
    #[schema(value_type = Vec<Object>)]
    launches: (),
    /// Operations in order: `time_ns`, and a `malloc`, `free` or `launch` by number.
    #[schema(value_type = Vec<Object>)]
    ops: (),
}

/// List recorded calls of a process
///
/// The last calls that a process made to the CUDA driver. It has to run with the helper.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}/ops",
    params(("pid" = u32, Path, description = "Process id"), OpsParameters),
    responses((status = OK, body = Ops)),
    security(("token" = []))
)]
pub(crate) async fn ops(
    _: Reader,
    pid: Pid,
    Parameters(OpsParameters { start_ticks, last }): Parameters<OpsParameters>,
    State(source): State<OpsSource>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let count = last.map_or(CALLS, |UpTo(last)| last) as usize;
    let cache_key = format!("ops of {pid:?} {start_ticks:?} {count}");
    let queue = responses.clone();
    let make = async move |reading: Arc<Reading>| {
        let process = choose(&reading.known.snapshot, pid, start_ticks)?.id;
        drop(reading);
        let ops = source.request(CallsRequest { process, count }).await?;
        let ops = ops.map_err(|refusal| refused(&queue, process, refusal))?;
        on_a_thread(move || Ok(Text::json(&ops))).await
    };
    responses.of_query(cache_key, make).await
}

/// Get recorded calls of a process as a trace
///
/// The calls as a stream of operations, which begins with the memory that the program had before.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}/ops/trace",
    params(("pid" = u32, Path, description = "Process id"), TraceParameters),
    responses((status = OK, body = Trace)),
    security(("token" = []))
)]
pub(crate) async fn trace(
    _: Reader,
    pid: Pid,
    Parameters(TraceParameters { start_ticks, last }): Parameters<TraceParameters>,
    State(source): State<TraceSource>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let count = last.map_or(TRACE_CALLS_MAX, |UpTo(last)| last) as usize;
    let cache_key = format!("trace of {pid:?} {start_ticks:?} {count}");
    let queue = responses.clone();
    let make = async move |reading: Arc<Reading>| {
        let process = choose(&reading.known.snapshot, pid, start_ticks)?.id;
        drop(reading);
        let trace = source.request(CallsRequest { process, count }).await?;
        let trace = trace.map_err(|refusal| refused(&queue, process, refusal))?;
        let text = trace.map_err(|reason| Problem::new(Kind::InvalidParameter, reason))?;
        Ok(Text::of_type("application/json", text))
    };
    responses.of_query(cache_key, make).await
}

fn refused(responses: &Responses, ProcessId { pid, .. }: ProcessId, refusal: CallsRefusal) -> Problem {
    match refusal {
        CallsRefusal::Unrecorded(Unrecorded(reason)) => {
            Problem::new(Kind::NotFound, format!("no calls of process {pid} are recorded: {reason}"))
        }
        CallsRefusal::Busy(reason) => responses.busy_source(&reason),
    }
}

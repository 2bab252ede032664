//! Histories of processes, GPUs and owners.

use std::{sync::Arc, time::Duration};

use api::History;
use axum::extract::{Path, State};
use model::{Capabilities, GpuKey, HistoryOf, HistoryRequest, Snapshot};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    Pid, choose,
    owners::{OwnerInPath, OwnerPath, unknown},
};
use crate::parameters::UpTo;
use crate::{
    convert,
    problem::{Kind, Problem},
    query::Parameters,
    responses::{Reading, Responses, SharedResponse, Text, on_a_thread},
    sources::HistorySource,
};

/// Default span and number of samples.
const SECONDS: u32 = 300;
const SAMPLES: u32 = 300;
/// Maximum span, for which samples are retained.
const SECONDS_MAX: u32 = 86_400;
/// Samples of a day at the coarsest resolution.
const SAMPLES_MAX: u32 = 8640;

/// Parameters of a process's history.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessHistoryParameters {
    /// Start time of the process, in clock ticks after boot; by default the running process with
    /// this pid, else the last one to exit.
    start_ticks: Option<u64>,
    /// Span in seconds; 300 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 86_400)]
    seconds: Option<UpTo<SECONDS_MAX>>,
    /// Maximum number of samples; 300 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 8640)]
    samples: Option<UpTo<SAMPLES_MAX>>,
}

/// Parameters of the history of a GPU or owner.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryParameters {
    /// Span in seconds; 300 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 86_400)]
    seconds: Option<UpTo<SECONDS_MAX>>,
    /// Maximum number of samples; 300 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 8640)]
    samples: Option<UpTo<SAMPLES_MAX>>,
}

/// Get the history of a process
///
/// Recent counts of a process over time, all GPUs together.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}/history",
    params(("pid" = u32, Path, description = "Process id"), ProcessHistoryParameters),
    responses((status = OK, body = History))
)]
pub(crate) async fn process_history(
    pid: Pid,
    Parameters(ProcessHistoryParameters { start_ticks, seconds, samples }): Parameters<ProcessHistoryParameters>,
    State(source): State<HistorySource>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let span = Span::new(seconds, samples);
    let cache_key = format!("history of {pid:?} {start_ticks:?} {span:?}");
    let make = async move |reading: Arc<Reading>| {
        let known = &reading.known.snapshot;
        let (id, capabilities) = (choose(known, pid, start_ticks)?.id, Capabilities::of(known));
        drop(reading);
        span.of(HistoryOf::Process(id), capabilities, &source).await
    };
    responses.of_query(cache_key, make).await
}

/// Get the history of a GPU
///
/// Recent counts of a GPU over time, all processes together.
#[utoipa::path(
    get,
    path = "/api/v1/gpus/{uuid}/history",
    params(("uuid" = String, Path, description = "UUID of the GPU", pattern = "^GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"), HistoryParameters),
    responses((status = OK, body = History))
)]
pub(crate) async fn gpu_history(
    Path(uuid): Path<String>,
    Parameters(HistoryParameters { seconds, samples }): Parameters<HistoryParameters>,
    State(source): State<HistorySource>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let span = Span::new(seconds, samples);
    let cache_key = format!("history of {:?} {span:?}", uuid.to_ascii_lowercase());
    let make = async move |reading: Arc<Reading>| {
        let known = &reading.known.snapshot;
        let (key, capabilities) = (gpu(known, &uuid)?, Capabilities::of(known));
        drop(reading);
        span.of(HistoryOf::Gpu(key), capabilities, &source).await
    };
    responses.of_query(cache_key, make).await
}

/// Get the history of an owner
///
/// Recent counts of an owner over time: all its processes on all GPUs together, exited ones
/// included. `resident_bytes` is that of the listed processes.
#[utoipa::path(
    get,
    path = "/api/v1/owners/{kind}/{id}/history",
    params(OwnerPath, HistoryParameters),
    responses((status = OK, body = History))
)]
pub(crate) async fn owner_history(
    OwnerInPath(owner): OwnerInPath,
    Parameters(HistoryParameters { seconds, samples }): Parameters<HistoryParameters>,
    State(source): State<HistorySource>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let span = Span::new(seconds, samples);
    let cache_key = format!("history of {owner:?} {span:?}");
    let make = async move |reading: Arc<Reading>| {
        let known = &reading.known.snapshot;
        if !known.owners.contains_key(&owner) {
            return Err(unknown(&owner));
        }
        let capabilities = Capabilities::of(known);
        drop(reading);
        span.of(HistoryOf::Owner(owner), capabilities, &source).await
    };
    responses.of_query(cache_key, make).await
}

fn gpu(snapshot: &Snapshot, uuid: &str) -> Result<GpuKey, Problem> {
    let keys = snapshot.gpus.keys().chain(snapshot.gpu_totals.keys());
    let found = keys.filter(|key| key.uuid().is_some_and(|known| known.to_string().eq_ignore_ascii_case(uuid)));
    found.copied().next().ok_or_else(|| {
        let detail = format!("there is no GPU {uuid}; /api/v1/gpus lists them");
        Problem::new(Kind::NotFound, detail)
    })
}

/// Span of a history, and its number of samples.
#[derive(Clone, Copy, Debug)]
struct Span {
    seconds: u32,
    samples: u32,
}

impl Span {
    fn new(seconds: Option<UpTo<SECONDS_MAX>>, samples: Option<UpTo<SAMPLES_MAX>>) -> Self {
        Self {
            seconds: seconds.map_or(SECONDS, |UpTo(seconds)| seconds),
            samples: samples.map_or(SAMPLES, |UpTo(samples)| samples),
        }
    }

    async fn of(self, of: HistoryOf, capabilities: Capabilities, source: &HistorySource) -> Result<Text, Problem> {
        let Self { seconds, samples } = self;
        let back = Duration::from_secs(seconds.into());
        let history = source.request(HistoryRequest { of, back, samples_max: samples as usize }).await?;
        let no_history = || Problem::new(Kind::NotFound, "there is no history of it yet".to_owned());
        let history = history.ok_or_else(no_history)?;
        on_a_thread(move || Ok(Text::json(&convert::history(&history, capabilities)))).await
    }
}

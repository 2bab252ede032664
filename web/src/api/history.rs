//! Histories of processes, GPUs and owners.

use std::{sync::Arc, time::Duration};

use axum::extract::{Path, State};
use model::{GpuKey, HistoryOf, HistoryRequest, Snapshot, api::History};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    Pid, choose,
    owners::{OwnerInPath, OwnerPath, unknown},
};
use crate::parameters::UpTo;
use crate::{
    capabilities::Capabilities,
    convert,
    problem::{Kind, Problem},
    query::Parameters,
    responses::{Reading, Responses, SharedResponse, Text, on_a_thread},
    sources::HistorySource,
};

/// How far back, and how finely, unless the request says.
const SECONDS: u32 = 300;
const SAMPLES: u32 = 300;
/// As long as anything is kept.
const SECONDS_MAX: u32 = 86_400;
/// A day of the coarsest samples that are kept.
const SAMPLES_MAX: u32 = 8640;

/// Of a process.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfProcess {
    /// Of the processes that had this pid the one with this start time; else the living one, else the one that ended last.
    start_ticks: Option<u64>,
    /// How far back; 300 unless given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 86_400)]
    seconds: Option<UpTo<SECONDS_MAX>>,
    /// In how many samples at most; 300 unless given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 8640)]
    samples: Option<UpTo<SAMPLES_MAX>>,
}

/// Of a GPU.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfGpu {
    /// How far back; 300 unless given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 86_400)]
    seconds: Option<UpTo<SECONDS_MAX>>,
    /// In how many samples at most; 300 unless given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 8640)]
    samples: Option<UpTo<SAMPLES_MAX>>,
}

/// Get the history of a process
///
/// Recent counts of a process over time, all GPUs together.
#[utoipa::path(
    get,
    path = "/api/v1/processes/{pid}/history",
    params(("pid" = u32, Path, description = "Process id"), OfProcess),
    responses((status = OK, body = History))
)]
pub(crate) async fn process_history(
    pid: Pid,
    Parameters(OfProcess { start_ticks, seconds, samples }): Parameters<OfProcess>,
    State(lately): State<HistorySource>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let span = Span::new(seconds, samples);
    let question = format!("history of {pid:?} {start_ticks:?} {span:?}");
    let make = async move |reading: Arc<Reading>| {
        let known = &reading.known.snapshot;
        let (id, capabilities) = (choose(known, pid, start_ticks)?.id, Capabilities::of(known));
        drop(reading);
        span.of(HistoryOf::Process(id), capabilities, &lately).await
    };
    responses.of_question(question, make).await
}

/// Get the history of a GPU
///
/// Recent counts of a GPU over time, all processes together.
#[utoipa::path(
    get,
    path = "/api/v1/gpus/{uuid}/history",
    params(("uuid" = String, Path, description = "UUID of the GPU", pattern = "^GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"), OfGpu),
    responses((status = OK, body = History))
)]
pub(crate) async fn gpu_history(
    Path(uuid): Path<String>,
    Parameters(OfGpu { seconds, samples }): Parameters<OfGpu>,
    State(lately): State<HistorySource>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let span = Span::new(seconds, samples);
    let question = format!("history of {:?} {span:?}", uuid.to_ascii_lowercase());
    let make = async move |reading: Arc<Reading>| {
        let known = &reading.known.snapshot;
        let (key, capabilities) = (gpu(known, &uuid)?, Capabilities::of(known));
        drop(reading);
        span.of(HistoryOf::Gpu(key), capabilities, &lately).await
    };
    responses.of_question(question, make).await
}

/// Get the history of an owner
///
/// Recent counts of an owner over time: all its processes on all GPUs together, exited ones included. `resident_bytes` is of those that are listed.
#[utoipa::path(
    get,
    path = "/api/v1/owners/{kind}/{id}/history",
    params(OwnerPath, OfGpu),
    responses((status = OK, body = History))
)]
pub(crate) async fn owner_history(
    OwnerInPath(owner): OwnerInPath,
    Parameters(OfGpu { seconds, samples }): Parameters<OfGpu>,
    State(lately): State<HistorySource>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let span = Span::new(seconds, samples);
    let question = format!("history of {owner:?} {span:?}");
    let make = async move |reading: Arc<Reading>| {
        let known = &reading.known.snapshot;
        if !known.owners.contains_key(&owner) {
            return Err(unknown(&owner));
        }
        let capabilities = Capabilities::of(known);
        drop(reading);
        span.of(HistoryOf::Owner(owner), capabilities, &lately).await
    };
    responses.of_question(question, make).await
}

fn gpu(snapshot: &Snapshot, uuid: &str) -> Result<GpuKey, Problem> {
    let keys = snapshot.gpus.keys().chain(snapshot.gpu_totals.keys());
    let named = keys.filter(|key| key.uuid().is_some_and(|known| known.to_string().eq_ignore_ascii_case(uuid)));
    named.copied().next().ok_or_else(|| {
        let detail = format!("there is no GPU {uuid}; /api/v1/gpus lists them");
        Problem::new(Kind::NotFound, detail)
    })
}

/// How far back, and how finely.
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

    async fn of(self, of: HistoryOf, capabilities: Capabilities, lately: &HistorySource) -> Result<Text, Problem> {
        let Self { seconds, samples } = self;
        let back = Duration::from_secs(seconds.into());
        let history = lately.ask(HistoryRequest { of, back, samples_max: samples as usize }).await?;
        let nothing = || Problem::new(Kind::NotFound, "it has no history".to_owned());
        let history = history.ok_or_else(nothing)?;
        on_a_thread(move || Ok(Text::json(&convert::history(&history, capabilities)))).await
    }
}

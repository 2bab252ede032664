//! Thread that queries the daemon, so that the view responds while the daemon does not.

use std::{
    io,
    sync::mpsc::{self, Sender},
    thread,
};

use api::{Evictions, Gpus, HeatMap, ProcessDetail, Processes, Ranges, Status, Verdicts};
use serde::de::DeserializeOwned;

use super::process_key::ProcessKey;
use crate::{
    client::{Client, Error, PAGE},
    evictions, explain, heat, policy, ps,
};

/// Request to the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A sample with these optional parts.
    Sample(OptionalParts),
    /// Details of this process, requested when its pane opens.
    Detail(ProcessKey),
}

/// Parts of a sample that are requested only while they are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionalParts {
    /// Details of this process.
    pub(crate) detail: Option<ProcessKey>,
    /// Evictions by victim and evictor.
    pub(crate) evictions: bool,
}

/// Responses of one reading.
pub(crate) struct Sample {
    pub(crate) status: Status,
    /// Whether uvmd may act; `None` if unknown.
    pub(crate) acting: Option<bool>,
    pub(crate) processes: Processes,
    pub(crate) gpus: Gpus,
    pub(crate) verdicts: Verdicts,
    pub(crate) evictions: Option<Evictions>,
    pub(crate) detail: Option<Detail>,
}

/// Response about one process.
pub(crate) struct Detail {
    pub(crate) key: ProcessKey,
    pub(crate) response: Result<Box<Detailed>, Error>,
}

/// Details of one process.
pub(crate) struct Detailed {
    pub(crate) process: ProcessDetail,
    /// Ranges; `None` without read permission.
    pub(crate) ranges: Option<Ranges>,
    /// Heat map; `None` without read permission.
    pub(crate) heat: Option<HeatMap>,
}

/// Result of a request.
pub(crate) enum Response {
    Sample(Result<Box<Sample>, Error>),
    Detail(Detail),
}

/// Cells of a heat map, wider than most terminals.
const HEAT_CELLS: usize = 128;

pub(crate) fn sample(client: &Client, parts: OptionalParts) -> Result<Box<Sample>, Error> {
    let OptionalParts { detail, evictions } = parts;
    Ok(Box::new(Sample {
        status: client.get("/api/v1/status")?.body,
        acting: policy::acting(client)?,
        // Summaries of all processes, as any may have the highest rate.
        processes: ps::busiest_first(client.list(&format!("/api/v1/processes/summary?order=id&limit={PAGE}"))?),
        gpus: client.get("/api/v1/gpus")?.body,
        verdicts: client.list(&format!("/api/v1/verdicts?order=id&limit={PAGE}"))?,
        evictions: if evictions { Some(evictions::fetch(client)?) } else { None },
        detail: detail.map(|key| self::detail(client, key)),
    }))
}

fn detail(client: &Client, key: ProcessKey) -> Detail {
    let ProcessKey { pid, start_ticks } = key;
    let fetch = || {
        Ok(Box::new(Detailed {
            process: client.get(&explain::path(pid, Some(start_ticks), ""))?.body,
            ranges: permitted(client, &explain::path(pid, Some(start_ticks), "/ranges"))?,
            heat: permitted(client, &heat::path(pid, Some(start_ticks), HEAT_CELLS))?,
        }))
    };
    Detail { key, response: fetch() }
}

/// Fetches a document; `None` without read permission.
fn permitted<T: DeserializeOwned>(client: &Client, path: &str) -> Result<Option<T>, Error> {
    match client.get(path) {
        Ok(answer) => Ok(Some(answer.body)),
        Err(Error::Denied { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Starts the thread. It ends when either channel is closed.
pub(crate) fn start<E: Send + 'static>(
    client: Client,
    responses: Sender<E>,
    event: fn(Response) -> E,
) -> io::Result<Sender<Request>> {
    let (sender, requests) = mpsc::channel();
    thread::Builder::new().name("fetch".to_owned()).spawn(move || {
        for request in requests {
            let response = match request {
                Request::Sample(parts) => Response::Sample(sample(&client, parts)),
                Request::Detail(key) => Response::Detail(detail(&client, key)),
            };
            if responses.send(event(response)).is_err() {
                break;
            }
        }
    })?;
    Ok(sender)
}

//! Asks the daemon on a thread of its own, so that the view stays alive while the daemon does not answer.

use std::{
    io,
    sync::mpsc::{self, Sender},
    thread,
};

use model::api::{Evictions, Gpus, HeatMap, ProcessDetail, Processes, Ranges, Status, Verdicts};
use serde::de::DeserializeOwned;

use super::process_key::ProcessKey;
use crate::{
    client::{Client, Error, PAGE},
    evictions, explain, heat, ps,
};

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Everything that is shown always, and this.
    Sample(Wanted),
    /// The details of this process, now that somebody wants to see them.
    Detail(ProcessKey),
}

/// What is asked for only while somebody looks at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The details of this process.
    pub(crate) detail: Option<ProcessKey>,
    /// Who pushed whose memory out.
    pub(crate) evictions: bool,
}

/// Everything at one moment.
pub(crate) struct Sample {
    pub(crate) status: Status,
    pub(crate) processes: Processes,
    pub(crate) gpus: Gpus,
    pub(crate) verdicts: Verdicts,
    pub(crate) evictions: Option<Evictions>,
    pub(crate) detail: Option<Detail>,
}

/// What was said of one process.
pub(crate) struct Detail {
    pub(crate) of: ProcessKey,
    pub(crate) answer: Result<Box<Detailed>, Error>,
}

/// Everything about one process.
pub(crate) struct Detailed {
    pub(crate) process: ProcessDetail,
    /// `None` where whoever asks may not be told.
    pub(crate) ranges: Option<Ranges>,
    /// Likewise.
    pub(crate) heat: Option<HeatMap>,
}

/// What came of it.
pub(crate) enum Answer {
    Sample(Result<Box<Sample>, Error>),
    Detail(Detail),
}

/// More than most terminals have room for.
const HEAT_CELLS: usize = 128;

pub(crate) fn sample(client: &Client, wanted: Wanted) -> Result<Box<Sample>, Error> {
    let Wanted { detail, evictions } = wanted;
    Ok(Box::new(Sample {
        status: client.get("/api/v1/status")?.body,
        // What the table shows of them; all, as any may be the one with the highest rate.
        processes: ps::busiest_first(client.list(&format!("/api/v1/processes/summary?order=id&limit={PAGE}"))?),
        gpus: client.get("/api/v1/gpus")?.body,
        verdicts: client.list(&format!("/api/v1/verdicts?order=id&limit={PAGE}"))?,
        evictions: if evictions { Some(evictions::ask(client)?) } else { None },
        detail: detail.map(|of| self::detail(client, of)),
    }))
}

fn detail(client: &Client, of: ProcessKey) -> Detail {
    let ProcessKey { pid, start_ticks } = of;
    let ask = || {
        Ok(Box::new(Detailed {
            process: client.get(&explain::path(pid, Some(start_ticks), ""))?.body,
            ranges: permitted(client, &explain::path(pid, Some(start_ticks), "/ranges"))?,
            heat: permitted(client, &heat::path(pid, Some(start_ticks), HEAT_CELLS))?,
        }))
    };
    Detail { of, answer: ask() }
}

/// What not everybody is told.
fn permitted<T: DeserializeOwned>(client: &Client, path: &str) -> Result<Option<T>, Error> {
    match client.get(path) {
        Ok(answer) => Ok(Some(answer.body)),
        Err(Error::NoAuthority { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Starts the thread. It ends when nobody asks or listens any more.
pub(crate) fn start<E: Send + 'static>(
    client: Client,
    answers: Sender<E>,
    event: fn(Answer) -> E,
) -> io::Result<Sender<Ask>> {
    let (asks, asked) = mpsc::channel();
    thread::Builder::new().name("fetch".to_owned()).spawn(move || {
        for ask in asked {
            let answer = match ask {
                Ask::Sample(wanted) => Answer::Sample(sample(&client, wanted)),
                Ask::Detail(of) => Answer::Detail(detail(&client, of)),
            };
            if answers.send(event(answer)).is_err() {
                break;
            }
        }
    })?;
    Ok(asks)
}

//! Asks the daemon on a thread of its own, so that the view stays alive while the daemon does not answer.

use std::{
    io,
    sync::mpsc::{self, Sender},
    thread,
};

use model::api::{ProcessDetail, Processes, Status};

use super::samples::ProcessKey;
use crate::client::{Client, Error};

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Everything, with the details of this process.
    Sample(Option<ProcessKey>),
    /// The details of this process, now that somebody wants to see them.
    Detail(ProcessKey),
}

/// Everything at one moment.
pub(crate) struct Sample {
    pub(crate) status: Status,
    pub(crate) processes: Processes,
    pub(crate) detail: Option<Detail>,
}

/// What was said of one process.
pub(crate) struct Detail {
    pub(crate) of: ProcessKey,
    pub(crate) answer: Result<Box<ProcessDetail>, Error>,
}

/// What came of it.
pub(crate) enum Answer {
    Sample(Result<Box<Sample>, Error>),
    Detail(Detail),
}

pub(crate) fn sample(client: &Client, detailed: Option<ProcessKey>) -> Result<Box<Sample>, Error> {
    let status = client.get("/api/v1/status")?.body;
    let processes = client.get("/api/v1/processes")?.body;
    let detail = detailed.map(|of| detail(client, of));
    Ok(Box::new(Sample { status, processes, detail }))
}

fn detail(client: &Client, of: ProcessKey) -> Detail {
    let ProcessKey { pid, start_ticks } = of;
    let answer = client.get(&format!("/api/v1/processes/{pid}?start_ticks={start_ticks}"));
    Detail { of, answer: answer.map(|answer| Box::new(answer.body)) }
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
                Ask::Sample(detailed) => Answer::Sample(sample(&client, detailed)),
                Ask::Detail(of) => Answer::Detail(detail(&client, of)),
            };
            if answers.send(event(answer)).is_err() {
                break;
            }
        }
    })?;
    Ok(asks)
}

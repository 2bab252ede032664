//! Asks for everything that bears on one process.

use model::api::{GpuDetail, Gpus, Process, ProcessDetail, Ranges, Verdict, Verdicts};

use super::case::Case;
use crate::client::{Answer, Client, Error};

/// What uvmd says of one process.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) process: Process,
    /// In force and over.
    pub(crate) verdicts: Verdicts,
    /// `None` where whoever asks may not be told.
    pub(crate) ranges: Option<Ranges>,
    pub(crate) gpus: Gpus,
}

/// Which process: of those that had a pid the living one, else the last, unless it is said which.
pub(crate) fn path(pid: u32, start_ticks: Option<u64>, what: &str) -> String {
    let which = start_ticks.map(|ticks| format!("?start_ticks={ticks}")).unwrap_or_default();
    format!("/api/v1/processes/{pid}{what}{which}")
}

/// The verdicts on it, as the daemon says it.
pub(crate) fn verdicts(client: &Client, pid: u32, start_ticks: Option<u64>) -> Result<Answer<Verdicts>, Error> {
    client.get(&path(pid, start_ticks, "/verdict"))
}

pub(crate) fn ask(client: &Client, pid: u32, start_ticks: Option<u64>) -> Result<Evidence, Error> {
    let ProcessDetail { process, .. } = client.get(&path(pid, start_ticks, ""))?.body;
    // From here on it is the same process, even should its pid be used again.
    let start_ticks = Some(process.start_ticks);
    let ranges = match client.get(&path(pid, start_ticks, "/ranges")) {
        Ok(answer) => Some(answer.body),
        Err(Error::NoAuthority { .. }) => None,
        Err(error) => return Err(error),
    };
    let verdicts = verdicts(client, pid, start_ticks)?.body;
    Ok(Evidence::new(process, &verdicts, ranges, client.get("/api/v1/gpus")?.body))
}

impl Evidence {
    /// Of all verdicts there are.
    pub(crate) fn new(process: Process, verdicts: &Verdicts, ranges: Option<Ranges>, gpus: Gpus) -> Self {
        let is_its = |verdict: &Verdict| (verdict.pid, verdict.start_ticks) == (process.pid, process.start_ticks);
        let Verdicts { time, active, ended, unavailable, .. } = verdicts;
        let its = |verdicts: &[Verdict]| verdicts.iter().filter(|verdict| is_its(verdict)).cloned().collect();
        let verdicts = Verdicts {
            time: time.clone(),
            active: its(active),
            ended: its(ended),
            unavailable: unavailable.clone(),
            ..Verdicts::default()
        };
        Self { process, verdicts, ranges, gpus }
    }

    pub(crate) fn case<'a>(&'a self, verdict: &'a Verdict) -> Case<'a> {
        let has_uuid = |gpu: &&GpuDetail| gpu.gpu.id.uuid.is_some() && gpu.gpu.id.uuid == verdict.gpu_uuid;
        let gpu = self.gpus.gpus.iter().find(has_uuid);
        Case { verdict, process: &self.process, ranges: self.ranges.as_ref(), gpu }
    }
}

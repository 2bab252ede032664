//! Fetches the evidence about one process.

use api::{GpuDetail, Gpus, Ops, Process, ProcessDetail, Ranges, Sites, Verdict, Verdicts, rule::EffectivePolicy};

use super::finding;
use crate::client::{Client, Error, Response};

/// Responses of uvmd about one process.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) process: Process,
    /// Active and ended verdicts.
    pub(crate) verdicts: Verdicts,
    /// `None` without read permission.
    pub(crate) ranges: Option<Ranges>,
    /// Sites of its CPU faults; `None` without read permission, or without an active verdict that involves CPUs.
    pub(crate) sites: Option<Sites>,
    pub(crate) gpus: Gpus,
    /// Recording of its calls; `None` without one, or without read permission.
    pub(crate) recording: Option<Ops>,
    /// Policy in effect; `None` of a process that has exited.
    pub(crate) effective: Option<EffectivePolicy>,
}

/// Path of a process; without `start_ticks`, of the running process with this pid, else the last
/// one.
pub(crate) fn path(pid: u32, start_ticks: Option<u64>, suffix: &str) -> String {
    let query = start_ticks.map(|ticks| format!("?start_ticks={ticks}")).unwrap_or_default();
    format!("/api/v1/processes/{pid}{suffix}{query}")
}

/// Fetches the verdicts on a process.
pub(crate) fn verdicts(client: &Client, pid: u32, start_ticks: Option<u64>) -> Result<Response<Verdicts>, Error> {
    client.get(&path(pid, start_ticks, "/verdict"))
}

pub(crate) fn fetch(client: &Client, pid: u32, start_ticks: Option<u64>) -> Result<Evidence, Error> {
    let ProcessDetail { process, .. } = client.get(&path(pid, start_ticks, ""))?.body;
    // The start time identifies the process even if its pid is reused.
    let start_ticks = Some(process.start_ticks);
    let ranges = match client.get(&path(pid, start_ticks, "/ranges")) {
        Ok(answer) => Some(answer.body),
        Err(Error::Denied { .. }) => None,
        Err(error) => return Err(error),
    };
    let verdicts = verdicts(client, pid, start_ticks)?.body;
    let recording = optional(client.get(&format!("{}&last=1", path(pid, start_ticks, "/ops"))))?;
    let effective = optional(client.get(&path(pid, start_ticks, "/override")))?;
    let involves_cpus = verdicts.active.iter().any(finding::involves_cpus);
    let sites = if involves_cpus { optional(client.get(&path(pid, start_ticks, "/sites")))? } else { None };
    Ok(Evidence {
        sites,
        recording,
        effective,
        ..Evidence::new(process, &verdicts, ranges, client.get("/api/v1/gpus")?.body)
    })
}

/// `None` where the API refuses it, or has none of this process.
fn optional<T>(answer: Result<Response<T>, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer.body)),
        Err(Error::Denied { .. } | Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Evidence {
    /// Selects the verdicts on the process, without its sites, its recording and its policy.
    pub(crate) fn new(process: Process, verdicts: &Verdicts, ranges: Option<Ranges>, gpus: Gpus) -> Self {
        let is_of_process =
            |verdict: &Verdict| (verdict.pid, verdict.start_ticks) == (process.pid, process.start_ticks);
        let Verdicts { time, active, ended, unavailable, .. } = verdicts;
        let of_process =
            |verdicts: &[Verdict]| verdicts.iter().filter(|verdict| is_of_process(verdict)).cloned().collect();
        let verdicts = Verdicts {
            time: time.clone(),
            active: of_process(active),
            ended: of_process(ended),
            unavailable: unavailable.clone(),
            ..Verdicts::default()
        };
        Self { process, verdicts, ranges, sites: None, gpus, recording: None, effective: None }
    }

    /// GPU of a verdict.
    pub(crate) fn gpu(&self, verdict: &Verdict) -> Option<&GpuDetail> {
        let has_uuid = |gpu: &&GpuDetail| gpu.gpu.id.uuid.is_some() && gpu.gpu.id.uuid == verdict.gpu_uuid;
        self.gpus.gpus.iter().find(has_uuid)
    }
}

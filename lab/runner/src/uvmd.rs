//! Client of uvmd's HTTP API. Parses only the compared figures.

use std::{
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    figures::{DROPPED_EVENTS, Figures},
    matrix::Pair,
    residency::Told,
};

/// Time limit for a newly started uvmd to begin counting.
const START_TIMEOUT: Duration = Duration::from_mins(2);
/// Time limit for a response with a newer snapshot, of a uvmd that has responded before.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// State of uvmd at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: Status,
    processes: Vec<Process>,
    /// Evictions by victim and evictor, since uvmd started counting.
    pub(crate) evictions: Vec<Pair>,
}

/// Body of `/api/v1/status`. [`crate::figures`] parses the figures of counts.
#[derive(Clone, Debug, Deserialize)]
struct Status {
    state: String,
    /// Name of its source.
    backend: String,
    reasons: Vec<String>,
    /// Time of its snapshot.
    time: String,
    /// Start of counting; changes when uvmd is restarted.
    counting_started_at: Option<String>,
    /// Dropped events for all reasons, with or without a known process.
    dropped_events: u64,
    gpus: Vec<Gpu>,
    total: Value,
}

#[derive(Clone, Debug, Deserialize)]
struct Gpu {
    uuid: Option<String>,
    #[serde(flatten)]
    counts: Value,
}

/// Process of `/api/v1/processes`.
#[derive(Clone, Debug, Deserialize)]
struct Process {
    pid: u32,
    start_ticks: u64,
    gpus: Vec<ProcessGpu>,
    reuse: Reuse,
    #[serde(flatten)]
    counts: Value,
}

/// Causes by which memory that had left a GPU came back.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Reuse {
    pub(crate) fetched_bytes: u64,
    pub(crate) refetched_bytes: u64,
    pub(crate) cpu_reclaimed_bytes: u64,
    pub(crate) bounces: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct ProcessGpu {
    uuid: Option<String>,
    /// Resident memory; `None` if unknown.
    resident: Option<Told>,
}

#[derive(Deserialize)]
struct Processes {
    processes: Vec<Process>,
    r#continue: Option<String>,
}

/// Body of `/api/v1/evictions`.
#[derive(Deserialize)]
struct Evictions {
    /// `None` where the source does not count them.
    pairs: Option<Vec<Pair>>,
    r#continue: Option<String>,
}

/// Identity of a process: pids are reused, pairs with start times are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
}

impl ProcessId {
    /// Whether uvmd's pid and start time name this process; the time is 0 for a process that exited
    /// before uvmd could read it.
    pub(crate) fn is(self, pid: u32, start_ticks: u64) -> bool {
        self.pid == pid && [self.start_ticks, 0].contains(&start_ticks)
    }
}

/// Client of uvmd.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    url: String,
    agent: ureq::Agent,
}

// === impl Client ===

impl Client {
    pub(crate) fn new(url: &str) -> Self {
        let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(5))).build();
        Self { url: url.trim_end_matches('/').to_owned(), agent: config.into() }
    }

    /// First state in which uvmd counts. uvmd must attach before the work begins, or its counts
    /// cannot be exact.
    pub(crate) fn ask_when_counting(&self) -> anyhow::Result<Answer> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.ask().and_then(|answer| answer.counting().map(|()| answer)) {
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => thread::sleep(POLL_INTERVAL),
                answer => return answer,
            }
        }
    }

    /// First state after a moment. An older one may be right by chance, and may change yet.
    pub(crate) fn ask_after(&self, moment: SystemTime) -> anyhow::Result<Answer> {
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        loop {
            match self.ask() {
                Err(error) if Instant::now() > deadline => return Err(error),
                Ok(answer) if answer.is_after(moment)? => return Ok(answer),
                Ok(_) if Instant::now() > deadline => bail!("uvmd's figures stay those of before the end of the work"),
                Ok(_) | Err(_) => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Waits until uvmd counts a process. Sources without probes find it after its start.
    pub(crate) fn wait_for(&self, id: ProcessId) -> anyhow::Result<()> {
        // A search has a budget of processor time, which a busy host uses up.
        let deadline = Instant::now() + START_TIMEOUT;
        while self.ask()?.process(id).is_none() {
            if Instant::now() > deadline {
                bail!("uvmd does not find process {}", id.pid);
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Current state.
    pub(crate) fn ask(&self) -> anyhow::Result<Answer> {
        // Processes are read before the status, so that the total is at least their sum.
        let processes = self.list("processes", |Processes { processes, r#continue }| (processes, r#continue))?;
        let evictions =
            self.list("evictions", |Evictions { pairs, r#continue }| (pairs.unwrap_or_default(), r#continue))?;
        Ok(Answer { status: self.get("/api/v1/status")?, processes, evictions })
    }

    /// Reads all pages of a list. `parts` splits a page into its items and the next page's cursor.
    fn list<P: DeserializeOwned, T>(
        &self,
        name: &str,
        parts: impl Fn(P) -> (Vec<T>, Option<String>),
    ) -> anyhow::Result<Vec<T>> {
        let path = format!("/api/v1/{name}?order=id&limit=1000");
        let (mut all, mut next) = parts(self.get(&path)?);
        while let Some(cursor) = next {
            let (items, following) = parts(self.get(&format!("{path}&continue={cursor}"))?);
            all.extend(items);
            next = following;
        }
        Ok(all)
    }

    /// Parsed body of a path.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.url);
        let body = self.agent.get(&url).call().and_then(|mut response| response.body_mut().read_to_string());
        let body = body.with_context(|| format!("{url} does not answer"))?;
        serde_json::from_str(&body).with_context(|| format!("{url} returned a body that cannot be understood"))
    }
}

// === impl Answer ===

impl Answer {
    /// Checks that it counts events, and is not waiting or refusing.
    pub(crate) fn counting(&self) -> anyhow::Result<()> {
        match self.status.state.as_str() {
            "counting" => Ok(()),
            state => bail!("uvmd is {state}: {}", self.status.reasons.join("; ")),
        }
    }

    /// Whether its source is the driver's tools, which count less than probes, and what they count
    /// only from the attachment on.
    pub(crate) fn is_of_tools(&self) -> bool {
        self.status.backend == "tools"
    }

    /// Whether its snapshot was taken after a moment.
    pub(crate) fn is_after(&self, moment: SystemTime) -> anyhow::Result<bool> {
        let taken = humantime::parse_rfc3339(&self.status.time)
            .with_context(|| format!("uvmd's time {:?}", self.status.time))?;
        Ok(taken > moment)
    }

    /// Figures of one process; `None` if uvmd does not know it.
    pub(crate) fn process(&self, id: ProcessId) -> Option<Figures> {
        self.find(id).map(|process| Figures::of_uvmd(&process.counts))
    }

    /// Resident memory of a process at a GPU, by the end of the GPU's UUID.
    pub(crate) fn resident(&self, id: ProcessId, uuid: &str) -> Option<Told> {
        let gpu = |gpu: &&ProcessGpu| gpu.uuid.as_ref().is_some_and(|known| known.ends_with(uuid));
        self.find(id)?.gpus.iter().find(gpu)?.resident
    }

    /// Reuse of a process's memory.
    pub(crate) fn reuse(&self, id: ProcessId) -> Option<Reuse> {
        self.find(id).map(|process| process.reuse)
    }

    fn find(&self, id: ProcessId) -> Option<&Process> {
        self.processes.iter().find(|process| id.is(process.pid, process.start_ticks))
    }

    /// Total since an earlier state of the same uvmd, dropped events without a process included.
    pub(crate) fn total_since(&self, before: &Self) -> anyhow::Result<Figures> {
        if self.status.counting_started_at != before.status.counting_started_at {
            bail!("uvmd was restarted during the run");
        }
        since(&self.status.total(), &before.status.total())
    }

    /// Figures of one GPU since an earlier state, by the end of its UUID.
    pub(crate) fn gpu_since(&self, before: &Self, uuid: &str) -> anyhow::Result<Figures> {
        since(&self.status.gpu(uuid), &before.status.gpu(uuid))
    }
}

fn since(now: &Figures, before: &Figures) -> anyhow::Result<Figures> {
    now.since(before).map_err(|name| anyhow!("{name} of uvmd went back"))
}

impl Status {
    fn total(&self) -> Figures {
        let mut figures = Figures::of_uvmd(&self.total);
        figures.set(&DROPPED_EVENTS, self.dropped_events);
        figures
    }

    /// Figures of a GPU; empty for one that it has not seen yet.
    fn gpu(&self, uuid: &str) -> Figures {
        let found = self.gpus.iter().find(|gpu| gpu.uuid.as_ref().is_some_and(|known| known.ends_with(uuid)));
        found.map(|gpu| Figures::of_uvmd(&gpu.counts)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use serde_json::json;

    use super::*;
    use crate::figures::{BYTES_DTOH, FAULT_ENTRIES, FAULT_INSTANCES};

    const COUNTS: &str = r#""fault_entries":10,"fault_instances":12,"bytes_dtoh":4096,"dropped_events":0"#;

    const GPU: &str = r#"{"uuid":"GPU-00-01","resident":{"bytes":2,"min_bytes":1,"max_bytes":3}}"#;

    fn answer(counting_started_at: &str, dropped: u64, faults: u64) -> Answer {
        let status = json!({
            "state": "counting", "backend": "ebpf", "reasons": [], "time": "2026-01-02T03:04:05Z", "counting_started_at": counting_started_at,
            "dropped_events": dropped, "gpus": [{ "gpu": 1, "uuid": "GPU-00-01", "fault_instances": faults }],
            "total": { "fault_entries": faults, "dropped_events": 0 },
        });
        Answer { status: serde_json::from_value(status).unwrap(), processes: Vec::new(), evictions: Vec::new() }
    }

    /// Serves these bodies, one per request, then closes.
    fn serve(bodies: Vec<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        thread::spawn(move || {
            for body in bodies {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]).unwrap();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).unwrap();
            }
        });
        url
    }

    #[test]
    fn the_two_bodies_are_read_and_processes_found_by_pid_and_start() {
        let processes = format!(
            r#"{{"processes":[{{"pid":7,"start_ticks":99,"name":"old","gpus":[],"reuse":{{"fetched_bytes":0,"refetched_bytes":0,"cpu_reclaimed_bytes":0,"bounces":0}},{COUNTS}}},{{"pid":7,"start_ticks":500,"name":"a","gpus":[{GPU}],"reuse":{{"fetched_bytes":0,"refetched_bytes":0,"cpu_reclaimed_bytes":0,"bounces":0}},{COUNTS}}}]}}"#
        );
        let status = format!(
            r#"{{"version":"0.1.0","state":"counting","backend":"ebpf","reasons":[],"time":"2026-01-02T03:04:05.5Z","counting_started_at":"x",
                "dropped_events":0,"gpus":[],"total":{{{COUNTS}}}}}"#
        );
        let evictions = r#"{"time":"x","inferred":true,"pairs":[]}"#.to_owned();
        let answer = Client::new(&serve(vec![processes, evictions, status])).ask().unwrap();
        answer.counting().unwrap();
        let figures = answer.process(ProcessId { pid: 7, start_ticks: 500 }).unwrap();
        assert_eq!((figures.get(&FAULT_ENTRIES), figures.get(&BYTES_DTOH)), (Some(10), Some(4096)));
        let resident = answer.resident(ProcessId { pid: 7, start_ticks: 500 }, "00-01").unwrap();
        assert_eq!(resident, Told { bytes: 2, min_bytes: 1, max_bytes: 3 });
        assert!(answer.process(ProcessId { pid: 7, start_ticks: 501 }).is_none());
        assert!(answer.process(ProcessId { pid: 8, start_ticks: 500 }).is_none());
        assert!(answer.is_after(SystemTime::UNIX_EPOCH).unwrap());
    }

    #[test]
    fn an_answer_that_is_not_uvmds_is_refused() {
        for body in ["", "[]", "{\"processes\":[{\"pid\":1}]}", "<html>"] {
            let error = Client::new(&serve(vec![body.to_owned()])).ask().unwrap_err();
            assert!(error.to_string().contains("cannot be understood"), "{body}: {error}");
        }
    }

    #[test]
    fn a_uvmd_that_is_not_running_does_not_answer() {
        let error = Client::new("http://127.0.0.1:1").ask().unwrap_err();
        assert!(error.to_string().ends_with("does not answer"), "{error}");
    }

    #[test]
    fn a_waiting_uvmd_reports_its_reason() {
        let mut waiting = answer("x", 0, 0);
        (waiting.status.state, waiting.status.reasons) =
            ("waiting".to_owned(), vec!["nvidia-uvm is not loaded".to_owned()]);
        assert_eq!(waiting.counting().unwrap_err().to_string(), "uvmd is waiting: nvidia-uvm is not loaded");
    }

    #[test]
    fn a_total_has_only_additions_during_the_run() {
        let total = answer("x", 5, 110).total_since(&answer("x", 2, 100)).unwrap();
        assert_eq!((total.get(&FAULT_ENTRIES), total.get(&DROPPED_EVENTS)), (Some(10), Some(3)));
        let gpu = answer("x", 5, 110).gpu_since(&answer("x", 2, 100), "00-01").unwrap();
        assert_eq!(gpu.get(&FAULT_INSTANCES), Some(10));
        let error = answer("y", 0, 10).total_since(&answer("x", 0, 0)).unwrap_err();
        assert_eq!(error.to_string(), "uvmd was restarted during the run");
        let error = answer("x", 0, 0).total_since(&answer("x", 0, 1)).unwrap_err();
        assert_eq!(error.to_string(), "fault_entries of uvmd went back");
    }
}

//! uvmd's side: its HTTP API, read as anyone would. Only what is compared is parsed.

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

/// How long a uvmd that was just started may take until it counts.
const START: Duration = Duration::from_mins(2);
/// How long a uvmd that answered before is given when it does not answer any more, or not with a newer snapshot.
const SILENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(250);

/// uvmd at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: Status,
    processes: Vec<Process>,
    /// Who lost memory to whom, since uvmd counts.
    pub(crate) evictions: Vec<Pair>,
}

/// Of `/api/v1/status`. The figures of counts are [`crate::figures`]' business.
#[derive(Clone, Debug, Deserialize)]
struct Status {
    state: String,
    reasons: Vec<String>,
    /// When what it says was true.
    time: String,
    /// Changes when uvmd starts anew.
    counting_started_at: Option<String>,
    /// Over all reasons, whether a process is known for them or not.
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

/// Of `/api/v1/processes`.
#[derive(Clone, Debug, Deserialize)]
struct Process {
    pid: u32,
    start_ticks: u64,
    gpus: Vec<ProcessGpu>,
    reuse: Reuse,
    #[serde(flatten)]
    counts: Value,
}

/// What brought back what was at a GPU before.
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
    /// Nothing where it cannot be told.
    resident: Option<Told>,
}

#[derive(Deserialize)]
struct Processes {
    processes: Vec<Process>,
    r#continue: Option<String>,
}

/// Of `/api/v1/evictions`.
#[derive(Deserialize)]
struct Evictions {
    pairs: Vec<Pair>,
    r#continue: Option<String>,
}

/// Names one process: pids are reused, start times are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
}

impl ProcessId {
    /// Whether it is the one that uvmd calls so; uvmd has 0 for a process that was gone before it could look.
    pub(crate) fn is(self, pid: u32, start_ticks: u64) -> bool {
        self.pid == pid && [self.start_ticks, 0].contains(&start_ticks)
    }
}

/// Asks uvmd.
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

    /// What it says once it counts: it attaches before the work begins, or its counts cannot be exact.
    pub(crate) fn ask_when_counting(&self) -> anyhow::Result<Answer> {
        let deadline = Instant::now() + START;
        loop {
            match self.ask().and_then(|answer| answer.counting().map(|()| answer)) {
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => thread::sleep(POLL),
                answer => return answer,
            }
        }
    }

    /// The first that it says of the time after a moment. An older answer may be right by chance, and may yet become wrong.
    pub(crate) fn ask_after(&self, moment: SystemTime) -> anyhow::Result<Answer> {
        let deadline = Instant::now() + SILENCE;
        loop {
            match self.ask() {
                Err(error) if Instant::now() > deadline => return Err(error),
                Ok(answer) if answer.is_after(moment)? => return Ok(answer),
                Ok(_) if Instant::now() > deadline => bail!("uvmd's figures stay those of before the end of the work"),
                Ok(_) | Err(_) => thread::sleep(POLL),
            }
        }
    }

    /// What it says now.
    pub(crate) fn ask(&self) -> anyhow::Result<Answer> {
        // Processes first: the total is then at least their sum.
        let processes = self.list("processes", |Processes { processes, r#continue }| (processes, r#continue))?;
        let evictions = self.list("evictions", |Evictions { pairs, r#continue }| (pairs, r#continue))?;
        Ok(Answer { status: self.get("/api/v1/status")?, processes, evictions })
    }

    /// A whole list, each page of which `parts` takes apart into its items and where the next one begins.
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

    /// One of its answers.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.url);
        let body = self.agent.get(&url).call().and_then(|mut response| response.body_mut().read_to_string());
        let body = body.with_context(|| format!("{url} does not answer"))?;
        serde_json::from_str(&body).with_context(|| format!("{url} answered what cannot be understood"))
    }
}

// === impl Answer ===

impl Answer {
    /// Whether it counts events, rather than waiting for something or refusing.
    pub(crate) fn counting(&self) -> anyhow::Result<()> {
        match self.status.state.as_str() {
            "counting" => Ok(()),
            state => bail!("uvmd is {state}: {}", self.status.reasons.join("; ")),
        }
    }

    /// Whether it was taken after a moment.
    pub(crate) fn is_after(&self, moment: SystemTime) -> anyhow::Result<bool> {
        let taken = humantime::parse_rfc3339(&self.status.time)
            .with_context(|| format!("uvmd's time {:?}", self.status.time))?;
        Ok(taken > moment)
    }

    /// One process's figures; none if uvmd does not know the process.
    pub(crate) fn process(&self, id: ProcessId) -> Option<Figures> {
        self.find(id).map(|process| Figures::of_uvmd(&process.counts))
    }

    /// What a process has in the memory of a GPU, by the end of its UUID.
    pub(crate) fn resident(&self, id: ProcessId, uuid: &str) -> Option<Told> {
        let gpu = |gpu: &&ProcessGpu| gpu.uuid.as_ref().is_some_and(|known| known.ends_with(uuid));
        self.find(id)?.gpus.iter().find(gpu)?.resident
    }

    /// What of a process's traffic came back.
    pub(crate) fn reuse(&self, id: ProcessId) -> Option<Reuse> {
        self.find(id).map(|process| process.reuse)
    }

    fn find(&self, id: ProcessId) -> Option<&Process> {
        self.processes.iter().find(|process| id.is(process.pid, process.start_ticks))
    }

    /// Everything since an earlier answer of the same uvmd, dropped events without a process too.
    pub(crate) fn total_since(&self, before: &Self) -> anyhow::Result<Figures> {
        if self.status.counting_started_at != before.status.counting_started_at {
            bail!("uvmd was restarted during the run");
        }
        since(&self.status.total(), &before.status.total())
    }

    /// The same of one GPU, by the end of its UUID.
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

    /// Nothing for a GPU that it did not see yet.
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
            "state": "counting", "reasons": [], "time": "2026-01-02T03:04:05Z", "counting_started_at": counting_started_at,
            "dropped_events": dropped, "gpus": [{ "gpu": 1, "uuid": "GPU-00-01", "fault_instances": faults }],
            "total": { "fault_entries": faults, "dropped_events": 0 },
        });
        Answer { status: serde_json::from_value(status).unwrap(), processes: Vec::new(), evictions: Vec::new() }
    }

    /// Answers requests with these bodies, in order, then is gone.
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
            r#"{{"version":"0.1.0","state":"counting","reasons":[],"time":"2026-01-02T03:04:05.5Z","counting_started_at":"x",
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
    fn a_uvmd_that_is_not_there_does_not_answer() {
        let error = Client::new("http://127.0.0.1:1").ask().unwrap_err();
        assert!(error.to_string().ends_with("does not answer"), "{error}");
    }

    #[test]
    fn one_that_waits_says_for_what() {
        let mut waiting = answer("x", 0, 0);
        (waiting.status.state, waiting.status.reasons) =
            ("waiting".to_owned(), vec!["nvidia-uvm is not loaded".to_owned()]);
        assert_eq!(waiting.counting().unwrap_err().to_string(), "uvmd is waiting: nvidia-uvm is not loaded");
    }

    #[test]
    fn a_total_is_what_was_added_during_the_run() {
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

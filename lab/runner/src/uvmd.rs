//! uvmd's side: its HTTP API, read as anyone would. Only what is compared is parsed.

use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use serde::{Deserialize, de::DeserializeOwned};

use crate::figures::Figures;

/// uvmd at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) processes: Vec<Process>,
}

/// Of `/api/v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Status {
    pub(crate) state: String,
    pub(crate) reasons: Vec<String>,
    /// When what it says was true.
    time: String,
    /// Changes when uvmd starts anew.
    pub(crate) counting_since: Option<String>,
    /// Over all reasons, whether a process is known for them or not.
    pub(crate) dropped_events: u64,
    pub(crate) total: Counts,
}

/// Of `/api/v1/processes`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Process {
    pid: u32,
    start_ticks: u64,
    #[serde(flatten)]
    pub(crate) counts: Counts,
}

/// The counts that are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Counts {
    pub(crate) fault_entries: u64,
    pub(crate) fault_instances: u64,
    pub(crate) cpu_faults: u64,
    pub(crate) bytes_htod: u64,
    pub(crate) bytes_dtoh: u64,
    pub(crate) evicted_bytes: u64,
    pub(crate) dropped_events: u64,
}

#[derive(Deserialize)]
struct Processes {
    processes: Vec<Process>,
}

/// Names one process: pids are reused, start times are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
}

/// Asks uvmd.
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

    /// What it says now.
    pub(crate) fn ask(&self) -> anyhow::Result<Answer> {
        // Processes first: the total is then at least their sum.
        let Processes { processes } = self.get("/api/v1/processes")?;
        Ok(Answer { status: self.get("/api/v1/status")?, processes })
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
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
        // uvmd has 0 for a process that was gone before it could look.
        let known = |process: &&Process| process.pid == id.pid && [id.start_ticks, 0].contains(&process.start_ticks);
        self.processes.iter().find(known).map(|process| process.counts.into())
    }

    /// Everything since an earlier answer of the same uvmd, dropped events without a process too.
    pub(crate) fn total_since(&self, before: &Self) -> anyhow::Result<Figures> {
        let (now, then) = (&self.status, &before.status);
        if now.counting_since != then.counting_since {
            bail!("uvmd was restarted during the run");
        }
        let since = |now: u64, then: u64| now.checked_sub(then).context("a total of uvmd went back");
        Ok(Figures {
            fault_entries: Some(since(now.total.fault_entries, then.total.fault_entries)?),
            fault_instances: Some(since(now.total.fault_instances, then.total.fault_instances)?),
            cpu_faults: Some(since(now.total.cpu_faults, then.total.cpu_faults)?),
            bytes_htod: Some(since(now.total.bytes_htod, then.total.bytes_htod)?),
            bytes_dtoh: Some(since(now.total.bytes_dtoh, then.total.bytes_dtoh)?),
            evicted_bytes: Some(since(now.total.evicted_bytes, then.total.evicted_bytes)?),
            dropped_events: Some(since(now.dropped_events, then.dropped_events)?),
        })
    }
}

impl From<Counts> for Figures {
    fn from(counts: Counts) -> Self {
        let Counts {
            fault_entries,
            fault_instances,
            cpu_faults,
            bytes_htod,
            bytes_dtoh,
            evicted_bytes,
            dropped_events,
        } = counts;
        Self {
            fault_entries: Some(fault_entries),
            fault_instances: Some(fault_instances),
            cpu_faults: Some(cpu_faults),
            bytes_htod: Some(bytes_htod),
            bytes_dtoh: Some(bytes_dtoh),
            evicted_bytes: Some(evicted_bytes),
            dropped_events: Some(dropped_events),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    const COUNTS: &str = r#""fault_entries":10,"fault_instances":12,"cpu_faults":3,"bytes_htod":65536,"bytes_dtoh":4096,
        "bytes_dtod":0,"evicted_bytes":0,"dropped_events":0,"fault_entries_by_access":{"read":10}"#;

    fn status(text: &str) -> Status {
        serde_json::from_str(text).unwrap()
    }

    fn answer(counting_since: &str, dropped: u64, faults: u64) -> Answer {
        let total = Counts { fault_entries: faults, ..Counts::default() };
        let status = Status {
            state: "counting".to_owned(),
            reasons: Vec::new(),
            time: "2026-01-02T03:04:05Z".to_owned(),
            counting_since: Some(counting_since.to_owned()),
            dropped_events: dropped,
            total,
        };
        Answer { status, processes: Vec::new() }
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
            r#"{{"processes":[{{"pid":7,"start_ticks":99,"name":"old",{COUNTS}}},{{"pid":7,"start_ticks":500,"name":"a",{COUNTS}}}]}}"#
        );
        let status = format!(
            r#"{{"version":"0.1.0","state":"counting","reasons":[],"time":"2026-01-02T03:04:05.5Z","counting_since":"x",
                "dropped_events":0,"total":{{{COUNTS}}}}}"#
        );
        let answer = Client::new(&serve(vec![processes, status])).ask().unwrap();
        answer.counting().unwrap();
        let figures = answer.process(ProcessId { pid: 7, start_ticks: 500 }).unwrap();
        assert_eq!((figures.fault_entries, figures.bytes_dtoh), (Some(10), Some(4096)));
        assert_eq!(answer.process(ProcessId { pid: 7, start_ticks: 501 }), None);
        assert_eq!(answer.process(ProcessId { pid: 8, start_ticks: 500 }), None);
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
        let waiting = status(
            r#"{"state":"waiting","reasons":["nvidia-uvm is not loaded"],"time":"","dropped_events":0,"total":
            {"fault_entries":0,"fault_instances":0,"cpu_faults":0,"bytes_htod":0,"bytes_dtoh":0,"evicted_bytes":0,"dropped_events":0}}"#,
        );
        let answer = Answer { status: waiting, processes: Vec::new() };
        assert_eq!(answer.counting().unwrap_err().to_string(), "uvmd is waiting: nvidia-uvm is not loaded");
    }

    #[test]
    fn a_total_is_what_was_added_during_the_run() {
        let total = answer("x", 5, 110).total_since(&answer("x", 2, 100)).unwrap();
        assert_eq!((total.fault_entries, total.dropped_events), (Some(10), Some(3)));
        let error = answer("y", 0, 10).total_since(&answer("x", 0, 0)).unwrap_err();
        assert_eq!(error.to_string(), "uvmd was restarted during the run");
        assert!(answer("x", 0, 0).total_since(&answer("x", 0, 1)).is_err());
    }
}

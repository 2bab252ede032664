//! uvmd at work beside the workloads, and what it says of them.

use std::{
    fs::File,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde::Deserialize;
use sys::uvm::counters::Counted;

use crate::deadline::{self, Deadline};

const PAUSE: Duration = Duration::from_millis(50);
/// A request to this machine, to a service that reads its counters for it.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long uvmd may take to attach, or to say why it does not.
const START_TIME: Duration = Duration::from_secs(15);

/// A running uvmd.
pub(crate) struct Daemon {
    child: Child,
    url: String,
    agent: ureq::Agent,
}

/// What uvmd says of itself.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Status {
    pub(crate) state: String,
    pub(crate) reasons: Vec<String>,
    pub(crate) layout: Option<String>,
    pub(crate) dropped_events: u64,
    #[serde(default)]
    pub(crate) probes: Vec<Probe>,
}

/// A probe.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Probe {
    pub(crate) name: String,
}

#[derive(Deserialize)]
struct Process {
    state: String,
    #[serde(flatten)]
    counted: Counted,
}

impl Daemon {
    /// Start uvmd and wait until it knows whether it can count. It tells why it cannot in the status.
    pub(crate) fn start(binary: &Path, log: &Path, deadline: Deadline) -> anyhow::Result<(Self, Status)> {
        let deadline = deadline.step(START_TIME);
        let address = free_address()?;
        let log_file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(binary)
            // The defaults: the node's own configuration may send the log elsewhere, or leave out what is checked.
            .args(["--config", "/dev/null", "--listen", &address])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log_file)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let config = ureq::Agent::config_builder().timeout_global(Some(ANSWER_TIME)).proxy(None).build();
        let mut daemon = Self { child, url: format!("http://{address}"), agent: config.into() };
        loop {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("uvmd ended at once ({status}); its log is {}", log.display());
            }
            // Until it answers, it is starting.
            let status = daemon.status();
            if let Ok(status) = &status
                && (status.state == "counting" || !status.reasons.is_empty())
            {
                return Ok((daemon, status.clone()));
            }
            if deadline.is_over() {
                status.context("uvmd does not answer")?;
                bail!("uvmd neither counts nor says why");
            }
            thread::sleep(PAUSE);
        }
    }

    pub(crate) fn status(&self) -> anyhow::Result<Status> {
        self.get("/api/v1/status")
    }

    /// What it counted for a process since it knows it; nothing if it counted nothing yet.
    pub(crate) fn counted(&self, pid: u32) -> anyhow::Result<Counted> {
        let about = || format!("uvmd does not answer of process {pid}");
        let mut answer = match self.agent.get(format!("{}/api/v1/processes/{pid}", self.url)).call() {
            Err(ureq::Error::StatusCode(404)) => return Ok(Counted::default()),
            answer => answer.with_context(about)?,
        };
        let Process { state, counted } = answer.body_mut().read_json().with_context(about)?;
        Ok(if state == "running" { counted } else { Counted::default() })
    }

    fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let about = || format!("uvmd does not answer {path}");
        self.agent
            .get(format!("{}{path}", self.url))
            .call()
            .and_then(|mut answer| answer.body_mut().read_json())
            .with_context(about)
    }

    /// End it as a service manager would, and wait for its probes to be gone.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().context("cannot run kill")?;
        let asked = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("uvmd did not end well: {status}"),
                // Not a deadline: a signal to this program must not make it hasty.
                None if asked.elapsed() >= ANSWER_TIME => bail!("uvmd does not end when asked to"),
                None => thread::sleep(PAUSE),
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Asked to end before, if all went well.
        deadline::kill(&mut self.child);
    }
}

/// An address that was free a moment ago.
fn free_address() -> anyhow::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot find a free port")?;
    Ok(listener.local_addr()?.to_string())
}

/// How uvmd is started for a while, and where its log goes.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    pub(crate) log: PathBuf,
}

impl Launch {
    pub(crate) fn start(&self, deadline: Deadline) -> anyhow::Result<(Daemon, Status)> {
        Daemon::start(&self.binary, &self.log, deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_an_answer_with_more_fields_than_are_known() {
        let text = r#"{"pid":7,"name":"w","state":"running","fault_entries":1,"cpu_faults":2,"bytes_htod":3,"bytes_dtoh":4,"gpus":[]}"#;
        let Process { counted, .. } = serde_json::from_str(text).unwrap();
        assert_eq!(counted, Counted { fault_entries: 1, cpu_faults: 2, bytes_htod: 3, bytes_dtoh: 4 });
    }

    #[test]
    fn a_daemon_that_ends_at_once_is_told_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("uvmd.log");
        let deadline = Deadline::after(Duration::from_secs(20));
        let error = Daemon::start(Path::new("false"), &log, deadline).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("uvmd.log"), "{error}");
    }

    #[test]
    fn a_daemon_that_is_not_there_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("uvmd");
        let deadline = Deadline::after(Duration::from_secs(20));
        let error = Daemon::start(&missing, &folder.path().join("log"), deadline).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with("cannot start"), "{error}");
    }
}

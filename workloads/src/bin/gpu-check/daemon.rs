//! uvmd running beside the workloads, and its figures about them.

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
/// Timeout of a local request, for which the service reads its counters.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of its exit after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of uvmd's start: it attaches, or reports why it cannot.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Running uvmd.
pub(crate) struct Daemon {
    child: Child,
    url: String,
    agent: ureq::Agent,
    exit_timeout: Duration,
}

/// Status as reported by uvmd.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Status {
    pub(crate) state: String,
    pub(crate) reasons: Vec<String>,
    pub(crate) layout: Option<String>,
    pub(crate) dropped_events: u64,
    #[serde(default)]
    pub(crate) probes: Vec<Probe>,
}

/// Attached probe.
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
    /// Starts uvmd and waits until it counts, or its status reports why it cannot.
    pub(crate) fn start(binary: &Path, log: &Path, deadline: Deadline) -> anyhow::Result<(Self, Status)> {
        let request_timeout = deadline.timeout(REQUEST_TIMEOUT);
        let deadline = deadline.step(START_TIMEOUT);
        let address = free_address()?;
        let log_file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(binary)
            // The defaults are used: the node's own configuration may send the log elsewhere, or
            // disable features under test.
            .args(["--config", "/dev/null", "--listen", &address])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log_file)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let config = ureq::Agent::config_builder().timeout_global(Some(request_timeout)).proxy(None).build();
        let mut daemon = Self {
            child,
            url: format!("http://{address}"),
            agent: config.into(),
            exit_timeout: deadline.timeout(EXIT_TIMEOUT),
        };
        loop {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("uvmd exited at its start ({status}); its log is {}", log.display());
            }
            // A failed request means that uvmd is starting.
            let status = daemon.status();
            if let Ok(status) = &status
                && (status.state == "counting" || !status.reasons.is_empty())
            {
                return Ok((daemon, status.clone()));
            }
            if deadline.has_expired() {
                status.context("uvmd does not respond")?;
                bail!("uvmd neither counts nor reports a reason");
            }
            thread::sleep(PAUSE);
        }
    }

    pub(crate) fn status(&self) -> anyhow::Result<Status> {
        self.get("/api/v1/status")
    }

    /// Counts of a process since uvmd discovered it; zero before the first count.
    pub(crate) fn counted(&self, pid: u32) -> anyhow::Result<Counted> {
        let about = || format!("uvmd does not respond for process {pid}");
        let mut answer = match self.agent.get(format!("{}/api/v1/processes/{pid}", self.url)).call() {
            Err(ureq::Error::StatusCode(404)) => return Ok(Counted::default()),
            answer => answer.with_context(about)?,
        };
        let Process { state, counted } = answer.body_mut().read_json().with_context(about)?;
        Ok(if state == "running" { counted } else { Counted::default() })
    }

    fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let about = || format!("uvmd does not respond to {path}");
        self.agent
            .get(format!("{}{path}", self.url))
            .call()
            .and_then(|mut answer| answer.body_mut().read_json())
            .with_context(about)
    }

    /// Stops uvmd as a service manager does, and waits for the removal of its probes.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().context("cannot run kill")?;
        let signalled = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("uvmd failed on exit: {status}"),
                // The timeout is no deadline, since a signal to this program must not shorten it.
                None if signalled.elapsed() >= self.exit_timeout => bail!("uvmd does not exit on SIGTERM"),
                None => thread::sleep(PAUSE),
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // On success, uvmd has exited before this.
        deadline::kill(&mut self.child);
    }
}

/// Address with a currently free port.
fn free_address() -> anyhow::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot find a free port")?;
    Ok(listener.local_addr()?.to_string())
}

/// Command for starting uvmd, and its log file.
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
    fn counts_are_parsed_from_a_response_with_unknown_fields() {
        let text = r#"{"pid":7,"name":"w","state":"running","fault_entries":1,"cpu_faults":2,"bytes_htod":3,"bytes_dtoh":4,"gpus":[]}"#;
        let Process { counted, .. } = serde_json::from_str(text).unwrap();
        assert_eq!(counted, Counted { fault_entries: 1, cpu_faults: 2, bytes_htod: 3, bytes_dtoh: 4 });
    }

    #[test]
    fn a_daemon_that_exits_at_its_start_is_reported_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("uvmd.log");
        let deadline = Deadline::after(Duration::from_secs(20));
        let error = Daemon::start(Path::new("false"), &log, deadline).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("uvmd.log"), "{error}");
    }

    #[test]
    fn a_missing_daemon_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("uvmd");
        let deadline = Deadline::after(Duration::from_secs(20));
        let error = Daemon::start(&missing, &folder.path().join("log"), deadline).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with("cannot start"), "{error}");
    }
}

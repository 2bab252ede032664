//! uvmd running beside the workloads, and its figures about them.

use std::{
    fs::File,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sys::uvm::counters::Counted;

use crate::{
    deadline::{self, Deadline},
    source::Source,
};

const PAUSE: Duration = Duration::from_millis(50);
/// Timeout of a local request, for which the service reads its counters.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of its exit after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of uvmd's start: it attaches, or reports why it cannot.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout of the discovery of a process by the tools.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);

/// Running uvmd.
pub(crate) struct Daemon {
    source: Source,
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
    #[serde(default)]
    pub(crate) degraded: Vec<Degradation>,
    /// Attachment of the probes: kprobe or fentry.
    pub(crate) attachment: Option<String>,
    pub(crate) dropped_events: u64,
    #[serde(default)]
    pub(crate) probes: Vec<Probe>,
    /// With the tools, records of GPU faults that found no room.
    pub(crate) block_records_sampled_out: u64,
    /// Other records that found no room.
    pub(crate) block_records_dropped: u64,
}

/// State in which less is counted.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Degradation {
    pub(crate) description: String,
}

/// Attached probe.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Probe {
    pub(crate) name: String,
}

#[derive(Deserialize)]
struct Process {
    state: String,
    started_at: Option<String>,
    counted_from: Option<String>,
    #[serde(flatten)]
    counted: Counted,
}

/// Discovery of a process by the tools. What it did before is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Discovery {
    pub(crate) source: Source,
    /// Time from the start of the process until it was counted.
    pub(crate) counted_ms: f64,
    /// Time from the start of the process until its memory was allocated: no fault is earlier.
    pub(crate) allocated_ms: f64,
}

impl Daemon {
    /// Starts uvmd and waits until it counts, or its status reports why it cannot.
    pub(crate) fn start(
        binary: &Path,
        source: Source,
        log: &Path,
        deadline: Deadline,
    ) -> anyhow::Result<(Self, Status)> {
        let request_timeout = deadline.timeout(REQUEST_TIMEOUT);
        let deadline = deadline.step(START_TIMEOUT);
        let address = free_address()?;
        let log_file = File::options().create(true).append(true).open(log);
        let log_file = log_file.with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(binary)
            // The defaults are used: the node's own configuration may send the log elsewhere, or
            // disable features under test. One uvmd of each source runs at a time, so that none has
            // what one alone can have: a socket of a known name, and a folder of its state.
            .args(["--config", "/dev/null", "--listen", &address])
            .args(["--set", "socket.enabled=false", "--set", "policy.state_dir=/dev/null"])
            .args(source.settings().iter().flat_map(|setting| ["--set", setting]))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log_file)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let config = ureq::Agent::config_builder().timeout_global(Some(request_timeout)).proxy(None);
        // uvmd closes a connection that is idle, at which a request may be on its way.
        let config = config.max_idle_connections(0).build();
        let mut daemon = Self {
            source,
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

    pub(crate) const fn source(&self) -> Source {
        self.source
    }

    /// Counts of a process since uvmd discovered it; zero before the first count.
    pub(crate) fn counted(&self, pid: u32) -> anyhow::Result<Counted> {
        Ok(self.process(pid)?.map(|process| process.counted).unwrap_or_default())
    }

    /// Counts of a process, also after its exit. No other one had its pid while uvmd ran.
    pub(crate) fn counted_until_exit(&self, pid: u32) -> anyhow::Result<Counted> {
        Ok(self.last_process(pid)?.map(|process| process.counted).unwrap_or_default())
    }

    /// Process, if it runs and uvmd has discovered it.
    fn process(&self, pid: u32) -> anyhow::Result<Option<Process>> {
        Ok(self.last_process(pid)?.filter(|process| process.state == "running"))
    }

    /// Process that had this pid last, if uvmd has discovered it.
    fn last_process(&self, pid: u32) -> anyhow::Result<Option<Process>> {
        let about = || format!("uvmd does not respond for process {pid}");
        let mut answer = match self.agent.get(format!("{}/api/v1/processes/{pid}", self.url)).call() {
            Err(ureq::Error::StatusCode(404)) => return Ok(None),
            answer => answer.with_context(about)?,
        };
        Ok(Some(answer.body_mut().read_json().with_context(about)?))
    }

    /// Waits until the tools count a process, whose memory was allocated at that time. Probes count
    /// every process from its start: they have nothing to discover.
    pub(crate) fn discover(
        &self,
        pid: u32,
        allocated: SystemTime,
        deadline: Deadline,
    ) -> anyhow::Result<Option<Discovery>> {
        if self.source.level().is_none() {
            return Ok(None);
        }
        let deadline = deadline.step(DISCOVERY_TIMEOUT);
        loop {
            if let Some(process) = self.process(pid)? {
                return Ok(process.discovery(self.source, allocated));
            }
            if deadline.has_expired() {
                let reasons: Vec<_> = self.status()?.degraded.into_iter().map(|state| state.description).collect();
                bail!("{} do not count process {pid}: {}", self.source.name(), reasons.join("; "));
            }
            thread::sleep(PAUSE);
        }
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

impl Process {
    fn discovery(&self, source: Source, allocated: SystemTime) -> Option<Discovery> {
        let time = |text: &Option<String>| humantime::parse_rfc3339(text.as_deref()?).ok();
        let (started, counted) = (time(&self.started_at)?, time(&self.counted_from)?);
        let ms = |time: SystemTime| time.duration_since(started).unwrap_or_default().as_secs_f64() * 1e3;
        Some(Discovery { source, counted_ms: ms(counted), allocated_ms: ms(allocated) })
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

/// Command for starting uvmd, and the folder of its logs.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    pub(crate) out: PathBuf,
}

impl Launch {
    pub(crate) fn start(&self, source: Source, deadline: Deadline) -> anyhow::Result<(Daemon, Status)> {
        Daemon::start(&self.binary, source, &self.log(source), deadline)
    }

    /// Log of the last uvmd of a source.
    pub(crate) fn log(&self, source: Source) -> PathBuf {
        self.out.join(source.log_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: &str = r#"{"pid":7,"name":"w","state":"running","started_at":"2026-11-30T18:00:00.000Z",
        "counted_from":"2026-11-30T18:00:00.110Z","fault_entries":1,"cpu_faults":2,"bytes_htod":3,"bytes_dtoh":4,"gpus":[]}"#;

    #[test]
    fn counts_are_parsed_from_a_response_with_unknown_fields() {
        let Process { counted, .. } = serde_json::from_str(PROCESS).unwrap();
        assert_eq!(counted, Counted { fault_entries: 1, cpu_faults: 2, bytes_htod: 3, bytes_dtoh: 4 });
    }

    #[test]
    fn discovery_is_the_time_from_the_start_of_the_process() {
        let process: Process = serde_json::from_str(PROCESS).unwrap();
        let allocated = humantime::parse_rfc3339("2026-11-30T18:00:00.500Z").unwrap();
        let discovery = process.discovery(Source::ToolsMoves, allocated).unwrap();
        assert_eq!((discovery.counted_ms, discovery.allocated_ms), (110.0, 500.0));
    }

    #[test]
    fn a_process_that_is_counted_from_its_start_was_not_discovered() {
        let process = Process { counted_from: None, ..serde_json::from_str(PROCESS).unwrap() };
        assert_eq!(process.discovery(Source::ToolsMoves, SystemTime::now()), None);
    }

    #[test]
    fn a_daemon_that_exits_at_its_start_is_reported_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("uvmd.log");
        let deadline = Deadline::after(Duration::from_secs(20));
        let error = Daemon::start(Path::new("false"), Source::Probes, &log, deadline).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("uvmd.log"), "{error}");
    }

    #[test]
    fn a_missing_daemon_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("uvmd");
        let deadline = Deadline::after(Duration::from_secs(20));
        let error =
            Daemon::start(&missing, Source::Probes, &folder.path().join("log"), deadline).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with("cannot start"), "{error}");
    }
}

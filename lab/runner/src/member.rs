//! Worker process of a run, and the runner's knowledge about it.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ExitStatus, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde::Serialize;

use crate::{
    cgroup::Cgroup,
    check::Checked,
    protocol::{Advised, Command, Event, Findings, Reply},
    residency::Residency,
    scenario::{Call, Process, Scenario},
    shared::Shared,
    started::start_ticks,
    sys::{counters::ProcessCounters, memory::SharedPages},
    uvmd::ProcessId,
};

/// Hidden subcommand that makes this program a worker.
pub(crate) const WORKER: &str = "worker";

/// Process of the scenario.
pub(crate) struct Member {
    pub(crate) name: String,
    at: usize,
    assignment: Command,
    memory_limit_bytes: Option<u64>,
    events: mpsc::Sender<Event>,
    /// Delay of its start after the others', and the time of the start.
    pub(crate) starts_after: Duration,
    start_at: Option<Instant>,
    /// Delay of its kill after its start, and the time of the kill.
    killed_after: Option<Duration>,
    kill_at: Option<Instant>,
    pub(crate) state: State,
    pub(crate) id: Option<ProcessId>,
    child: Option<Child>,
    input: Option<ChildStdin>,
    cgroup: Option<Cgroup>,
    shared: Option<Shared>,
    pub(crate) findings: Findings,
    pub(crate) residency: Option<Vec<Residency>>,
    /// Advice in force on its memory at the last query.
    pub(crate) advised: Vec<Advised>,
    pub(crate) end: Option<End>,
    pub(crate) failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not started yet.
    NotStarted,
    /// Waits for a command.
    Idle,
    /// Executes a command, to which it has not replied yet.
    Busy,
    /// Exited, as expected or not.
    Ended,
}

/// End of a process, or its expected end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// It completed its steps, and every byte was verified.
    Finished,
    /// Exited by a step, after every byte was verified.
    Exited { code: u8 },
    /// Killed by a step.
    KilledItself,
    /// Killed from outside, at any point of its steps.
    Killed,
}

// === impl Member ===

impl Member {
    pub(crate) fn new(scenario: &Scenario, at: usize, counters: bool, events: &mpsc::Sender<Event>) -> Option<Self> {
        let Process { name, start_after, kill_after, memory_limit_bytes, .. } = scenario.processes.get(at)?;
        Some(Self {
            name: name.clone(),
            at,
            assignment: Command::Assign {
                scenario: scenario.text.clone(),
                variation: scenario.variation,
                process: at,
                counters,
            },
            memory_limit_bytes: *memory_limit_bytes,
            events: events.clone(),
            starts_after: *start_after,
            start_at: None,
            killed_after: *kill_after,
            kill_at: None,
            state: State::NotStarted,
            id: None,
            child: None,
            input: None,
            cgroup: None,
            shared: None,
            findings: Findings::default(),
            residency: None,
            advised: Vec::new(),
            end: None,
            failure: None,
        })
    }

    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg(WORKER).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start the process {:?}", self.name))?;
        let output = child.stdout.take().context("a worker without output")?;
        let (at, events) = (self.at, self.events.clone());
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let reply = serde_json::from_str(&line)
                    .unwrap_or_else(|_| Reply::Failed { reason: format!("sent an invalid reply: {line}") });
                if events.send(Event::Reply(at, reply)).is_err() {
                    return;
                }
            }
            // Without a receiver the run is over.
            let _ = events.send(Event::Exited(at));
        });
        let pid = child.id();
        self.input = child.stdin.take();
        self.child = Some(child);
        self.id = Some(ProcessId { pid, start_ticks: start_ticks(pid)? });
        self.cgroup = self.memory_limit_bytes.map(|limit| Cgroup::confine(pid, limit)).transpose()?;
        self.state = State::Busy;
        let line = serde_json::to_vec(&self.assignment)?;
        self.write(line);
        Ok(())
    }

    /// Starts its steps, now or at its start time.
    pub(crate) fn go(&mut self, now: Instant) {
        match self.state {
            State::NotStarted if self.start_at.is_none() => self.start_at = Some(now + self.starts_after),
            State::Idle => {
                self.kill_at = self.kill_at.or(self.killed_after.map(|after| now + after));
                self.send(&Command::Go);
            }
            State::NotStarted | State::Busy | State::Ended => {}
        }
    }

    /// Starts or kills the process if it is time.
    pub(crate) fn run_timers(&mut self, now: Instant) -> anyhow::Result<()> {
        if self.state == State::NotStarted && self.start_at.is_some_and(|at| at <= now) {
            self.start()?;
        }
        if self.end.is_none() && self.kill_at.is_some_and(|at| at <= now) {
            self.end = Some(End::Killed);
            self.state = State::Busy;
            if let Some(child) = &mut self.child {
                child.kill().with_context(|| format!("cannot kill {:?}", self.name))?;
            }
        }
        Ok(())
    }

    /// Time of the next start or kill.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let start_at = self.start_at.filter(|_| self.state == State::NotStarted);
        let kill_at = self.kill_at.filter(|_| self.end.is_none());
        [start_at, kill_at].into_iter().flatten().min()
    }

    pub(crate) fn has_pending_reply(&self) -> bool {
        // A process with a pending kill ends by that, even after its steps.
        self.next_timer().is_some() || self.state == State::Busy
    }

    /// Sends a command that has a reply.
    pub(crate) fn send(&mut self, command: &Command) {
        self.state = State::Busy;
        if let Ok(line) = serde_json::to_vec(command) {
            self.write(line);
        }
    }

    /// Requests the end of its steps. A process that has not started never starts.
    pub(crate) fn stop(&mut self) {
        (self.start_at, self.kill_at) = (None, None);
        if let Ok(line) = serde_json::to_vec(&Command::Stop) {
            self.write(line);
        }
    }

    /// Writes a line. A worker that cannot be written to has exited, which the end of its output
    /// reports too.
    fn write(&mut self, mut line: Vec<u8>) {
        line.push(b'\n');
        let Some(input) = &mut self.input else { return };
        if input.write_all(&line).and_then(|()| input.flush()).is_err() {
            self.input = None;
        }
    }

    pub(crate) fn handle_reply(&mut self, reply: Reply) -> anyhow::Result<()> {
        // The process is dead; replies from before do not matter.
        if self.end == Some(End::Killed) {
            if let Reply::Ready { .. } = reply {
                bail!("{} was killed before it began", self.name);
            }
            return Ok(());
        }
        self.state = State::Idle;
        match reply {
            Reply::Ready { pages_fd, tracker_fds } => {
                let pid = self.id.context("a worker without a process")?.pid;
                self.shared = Some(Shared::of(pid, pages_fd, &tracker_fds)?);
                if self.start_at.is_some() {
                    self.go(Instant::now());
                }
            }
            Reply::Done => {}
            Reply::Figures { findings, residency } => {
                (self.findings, self.residency) = (findings, residency);
                self.shared.iter_mut().for_each(Shared::read);
            }
            Reply::Advice { advised } => self.advised = advised,
            Reply::Exiting { findings, code } => {
                (self.findings, self.end) = (findings, Some(End::Exited { code }));
                // Busy until it has exited: the GPU holds its memory until then.
                self.state = State::Busy;
            }
            Reply::Dying => (self.end, self.state) = (Some(End::KilledItself), State::Busy),
            Reply::Verified { findings } => {
                self.findings.first_mismatch = findings.first_mismatch;
                self.end = Some(End::Finished);
            }
            Reply::Failed { reason } => {
                self.failure.get_or_insert(reason);
                self.state = State::Busy;
            }
        }
        Ok(())
    }

    pub(crate) fn handle_exit(&mut self) {
        if self.end.is_none() {
            self.failure.get_or_insert_with(|| "ended before its steps did".to_owned());
        }
        self.state = State::Ended;
        // The figures of a finished process were taken before its exit.
        let settle = self.end != Some(End::Finished);
        self.shared.iter_mut().for_each(|shared| shared.close(settle));
    }

    /// Driver's counters of the process, from the last figures or its end; none without counters.
    pub(crate) fn counters(&self) -> Option<ProcessCounters> {
        self.shared.as_ref()?.counters()
    }

    /// Pages shared with the worker, among them the driver's counters; none before it is ready.
    pub(crate) fn shared_pages(&self) -> Option<Arc<SharedPages>> {
        self.shared.as_ref().map(Shared::pages)
    }

    pub(crate) fn checked(&self) -> Checked {
        let checked = self.shared.as_ref().map_or_else(Checked::default, |shared| Checked::of(shared.tally()));
        Checked { first_mismatch: self.findings.first_mismatch.clone(), ..checked }
    }

    /// Number of kernels that it began.
    pub(crate) fn kernels(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.tally().kernels())
    }

    /// Its calls of the driver and the bytes of their ranges, by kind.
    pub(crate) fn calls(&self) -> [(u64, u64); Call::KINDS] {
        self.shared.as_ref().map_or([(0, 0); Call::KINDS], |shared| shared.tally().calls())
    }

    /// Waits for the exit of a worker after `Finish`.
    pub(crate) fn reap(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.input = None;
        let Some(child) = &mut self.child else { return Ok(()) };
        let status = loop {
            match child.try_wait().context("cannot wait for a worker")? {
                Some(status) => break status,
                None if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
                None => bail!("{} does not exit", self.name),
            }
        };
        self.cgroup = None;
        if self.failure.is_none() && !self.end.is_some_and(|end| end.matches_status(status)) {
            self.failure = Some(format!("ended with {status}"));
        }
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Only after an error: a remaining worker would hold the GPU. Killing an exited one fails,
        // which does no harm.
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

// === impl End ===

impl End {
    pub(crate) const fn is_killed(self) -> bool {
        matches!(self, Self::Killed | Self::KilledItself)
    }

    fn matches_status(self, status: ExitStatus) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        match self {
            Self::Finished => status.success(),
            Self::Exited { code } => status.code() == Some(code.into()),
            Self::Killed | Self::KilledItself => status.signal() == Some(libc::SIGKILL),
        }
    }
}

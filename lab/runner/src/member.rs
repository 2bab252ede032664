//! One worker, and what is known of it.

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

/// The hidden subcommand that makes this program a worker.
pub(crate) const WORKER: &str = "worker";

/// One process of the scenario.
pub(crate) struct Member {
    pub(crate) name: String,
    at: usize,
    become_: Command,
    memory_limit_bytes: Option<u64>,
    events: mpsc::Sender<Event>,
    /// How long after the others it starts, and when that is.
    pub(crate) starts_after: Duration,
    start_at: Option<Instant>,
    /// How long after its start it is killed, and when that is.
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
    /// What advice was in force on its memory when it was asked last.
    pub(crate) advised: Vec<Advised>,
    pub(crate) end: Option<End>,
    pub(crate) failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not started yet.
    Unborn,
    /// Waits for a command.
    Idle,
    /// Has been told something and has not answered.
    Busy,
    /// Ended, as it should or not.
    Ended,
}

/// How a process ended, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// It did all its steps, and every byte was verified.
    Finished,
    /// A step ended it, and every byte was verified before.
    Exited { code: u8 },
    /// Killed by a step.
    KilledItself,
    /// Killed from outside, in the middle of whatever it did.
    Killed,
}

// === impl Member ===

impl Member {
    pub(crate) fn new(scenario: &Scenario, at: usize, counters: bool, events: &mpsc::Sender<Event>) -> Option<Self> {
        let Process { name, start_after, kill_after, memory_limit_bytes, .. } = scenario.processes.get(at)?;
        Some(Self {
            name: name.clone(),
            at,
            become_: Command::Become {
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
            state: State::Unborn,
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
                    .unwrap_or_else(|_| Reply::Failed { reason: format!("said what cannot be understood: {line}") });
                if events.send(Event::Reply(at, reply)).is_err() {
                    return;
                }
            }
            // Nobody listens any more only if the run is over.
            let _ = events.send(Event::Gone(at));
        });
        let pid = child.id();
        self.input = child.stdin.take();
        self.child = Some(child);
        self.id = Some(ProcessId { pid, start_ticks: start_ticks(pid)? });
        self.cgroup = self.memory_limit_bytes.map(|limit| Cgroup::confine(pid, limit)).transpose()?;
        self.state = State::Busy;
        let line = serde_json::to_vec(&self.become_)?;
        self.write(line);
        Ok(())
    }

    /// Let it do its steps, now or when its time comes.
    pub(crate) fn go(&mut self, now: Instant) {
        match self.state {
            State::Unborn if self.start_at.is_none() => self.start_at = Some(now + self.starts_after),
            State::Idle => {
                self.kill_at = self.kill_at.or(self.killed_after.map(|after| now + after));
                self.tell(&Command::Go);
            }
            State::Unborn | State::Busy | State::Ended => {}
        }
    }

    /// Do what is due.
    pub(crate) fn keep_time(&mut self, now: Instant) -> anyhow::Result<()> {
        if self.state == State::Unborn && self.start_at.is_some_and(|at| at <= now) {
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

    /// When something is due.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        let start_at = self.start_at.filter(|_| self.state == State::Unborn);
        let kill_at = self.kill_at.filter(|_| self.end.is_none());
        [start_at, kill_at].into_iter().flatten().min()
    }

    pub(crate) fn owes_an_answer(&self) -> bool {
        // One that is to be killed ends by that, even after it has done its steps.
        self.next_time().is_some() || self.state == State::Busy
    }

    /// Give a command that is answered.
    pub(crate) fn tell(&mut self, command: &Command) {
        self.state = State::Busy;
        if let Ok(line) = serde_json::to_vec(command) {
            self.write(line);
        }
    }

    /// Ask it to cut its steps short. What has not begun never does.
    pub(crate) fn stop(&mut self) {
        (self.start_at, self.kill_at) = (None, None);
        if let Ok(line) = serde_json::to_vec(&Command::Stop) {
            self.write(line);
        }
    }

    /// A worker that cannot be told is gone, which its output says too.
    fn write(&mut self, mut line: Vec<u8>) {
        line.push(b'\n');
        let Some(input) = &mut self.input else { return };
        if input.write_all(&line).and_then(|()| input.flush()).is_err() {
            self.input = None;
        }
    }

    pub(crate) fn hear(&mut self, reply: Reply) -> anyhow::Result<()> {
        // Dead already; what it said before does not matter any more.
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
                // Busy until it is gone: its memory is the GPU's until then.
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

    pub(crate) fn gone(&mut self) {
        if self.end.is_none() {
            self.failure.get_or_insert_with(|| "ended before its steps did".to_owned());
        }
        self.state = State::Ended;
        // The figures of one that finished were taken before.
        let settle = self.end != Some(End::Finished);
        self.shared.iter_mut().for_each(|shared| shared.close(settle));
    }

    /// What the driver counted for it, when the figures were taken or at its end; none without counters.
    pub(crate) fn counters(&self) -> Option<ProcessCounters> {
        self.shared.as_ref()?.counters()
    }

    /// What it shares, the pages that the driver counts in among it, once it has begun.
    pub(crate) fn shared_pages(&self) -> Option<Arc<SharedPages>> {
        self.shared.as_ref().map(Shared::pages)
    }

    pub(crate) fn checked(&self) -> Checked {
        let checked = self.shared.as_ref().map_or_else(Checked::default, |shared| Checked::of(shared.tally()));
        Checked { first_mismatch: self.findings.first_mismatch.clone(), ..checked }
    }

    /// Kernels that it began.
    pub(crate) fn kernels(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.tally().kernels())
    }

    /// Its calls of the driver, and the bytes they were about, by kind.
    pub(crate) fn calls(&self) -> [(u64, u64); Call::KINDS] {
        self.shared.as_ref().map_or([(0, 0); Call::KINDS], |shared| shared.tally().calls())
    }

    /// Wait for the end of a worker that was told to finish.
    pub(crate) fn reap(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.input = None;
        let Some(child) = &mut self.child else { return Ok(()) };
        let status = loop {
            match child.try_wait().context("cannot wait for a worker")? {
                Some(status) => break status,
                None if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
                None => bail!("{} does not end", self.name),
            }
        };
        self.cgroup = None;
        if self.failure.is_none() && !self.end.is_some_and(|end| end.is_seen_in(status)) {
            self.failure = Some(format!("ended with {status}"));
        }
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // After an error: a worker left behind would keep the GPU. One that is gone cannot be killed, and that is no loss.
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

    fn is_seen_in(self, status: ExitStatus) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        match self {
            Self::Finished => status.success(),
            Self::Exited { code } => status.code() == Some(code.into()),
            Self::Killed | Self::KilledItself => status.signal() == Some(libc::SIGKILL),
        }
    }
}

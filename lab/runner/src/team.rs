//! The workers of a run, seen from the runner: one process for each process of the scenario, and what they say.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::{
    check::Checked,
    protocol::{Command, Reply},
    scenario::Scenario,
    sys::counters::ProcessCounters,
    uvmd::ProcessId,
};

/// The hidden subcommand that makes this program a worker.
pub(crate) const WORKER: &str = "worker";

/// What the runner waits for.
#[derive(Debug)]
pub(crate) enum Event {
    Reply(usize, Reply),
    /// A worker's output ended: it is gone.
    Gone(usize),
    /// Somebody asked for the end.
    Stop,
}

/// All workers.
pub(crate) struct Team {
    members: Vec<Member>,
    events: mpsc::Receiver<Event>,
    sender: mpsc::Sender<Event>,
}

/// One worker, and what is known of it.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) id: ProcessId,
    child: Child,
    input: Option<ChildStdin>,
    state: State,
    pub(crate) counters: Option<ProcessCounters>,
    pub(crate) checked: Checked,
    /// Every byte is verified; nothing runs after that.
    pub(crate) verified: bool,
    /// The exit code that a step asked for.
    exit: Option<u8>,
    pub(crate) failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for a command.
    Idle,
    /// Has been told something and has not answered.
    Busy,
    /// Ended, as it should or not.
    Ended,
}

// === impl Team ===

impl Team {
    /// Start a worker for each process, and wait until all are registered with the driver and none has touched its memory.
    pub(crate) fn start(scenario: &Scenario, deadline: Instant) -> anyhow::Result<Self> {
        let (sender, events) = mpsc::channel();
        let mut team = Self { members: Vec::new(), events, sender };
        for (at, process) in scenario.processes.iter().enumerate() {
            let mut member = Member::start(&process.name, at, &team.sender)?;
            member.tell(&Command::Become { number: at as u64 + 1, process: process.clone() });
            team.members.push(member);
        }
        team.wait(deadline)?;
        Ok(team)
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// For whoever may ask for the end.
    pub(crate) fn sender(&self) -> mpsc::Sender<Event> {
        self.sender.clone()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.members.iter().any(|member| member.state == State::Idle)
    }

    /// Tell every worker that waits, and wait for all answers. Says whether somebody asked for the end meanwhile.
    pub(crate) fn order(&mut self, command: &Command, deadline: Instant) -> anyhow::Result<bool> {
        for member in self.members.iter_mut().filter(|member| member.state == State::Idle) {
            member.tell(command);
        }
        self.wait(deadline)
    }

    /// Wait until no worker owes an answer.
    fn wait(&mut self, deadline: Instant) -> anyhow::Result<bool> {
        let mut stopped = false;
        while self.members.iter().any(|member| member.state == State::Busy) {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Event::Reply(at, reply)) => self.member(at)?.hear(reply),
                Ok(Event::Gone(at)) => self.member(at)?.gone(),
                Ok(Event::Stop) => {
                    stopped = true;
                    self.members.iter_mut().for_each(|member| member.say(&Command::Stop));
                }
                Err(_) => {
                    let busy = self.members.iter().filter(|member| member.state == State::Busy);
                    let busy: Vec<&str> = busy.map(|member| member.name.as_str()).collect();
                    bail!("no answer in time from {}", busy.join(", "));
                }
            }
        }
        Ok(stopped)
    }

    /// Whether somebody asked for the end while no worker was busy.
    pub(crate) fn was_stopped(&self) -> bool {
        self.events.try_iter().any(|event| matches!(event, Event::Stop))
    }

    /// Let every worker verify all its memory and end, and see that it does.
    pub(crate) fn finish(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.order(&Command::Finish, deadline)?;
        self.members.iter_mut().try_for_each(|member| member.reap(deadline))
    }

    fn member(&mut self, at: usize) -> anyhow::Result<&mut Member> {
        self.members.get_mut(at).context("an event of a worker that does not exist")
    }
}

// === impl Member ===

impl Member {
    fn start(name: &str, at: usize, events: &mpsc::Sender<Event>) -> anyhow::Result<Self> {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg(WORKER).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start the process {name:?}"))?;
        let output = child.stdout.take().context("a worker without output")?;
        let events = events.clone();
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
        let id = ProcessId { pid: child.id(), start_ticks: start_ticks(child.id())? };
        Ok(Self {
            name: name.to_owned(),
            id,
            input: child.stdin.take(),
            child,
            state: State::Idle,
            counters: None,
            checked: Checked::default(),
            verified: false,
            exit: None,
            failure: None,
        })
    }

    /// Give a command that is answered.
    fn tell(&mut self, command: &Command) {
        self.state = State::Busy;
        self.say(command);
    }

    /// A worker that cannot be told is gone, which its output says too.
    fn say(&mut self, command: &Command) {
        let (Some(input), Ok(mut line)) = (self.input.as_mut(), serde_json::to_vec(command)) else { return };
        line.push(b'\n');
        if input.write_all(&line).and_then(|()| input.flush()).is_err() {
            self.input = None;
        }
    }

    fn hear(&mut self, reply: Reply) {
        self.state = State::Idle;
        match reply {
            Reply::Ready | Reply::Done => {}
            Reply::Figures { counters, checked } => (self.counters, self.checked) = (Some(counters), checked),
            Reply::Exiting { counters, checked, code } => {
                (self.counters, self.checked, self.verified, self.exit) = (Some(counters), checked, true, Some(code));
                // Busy until it is gone: its memory is the GPU's until then.
                self.state = State::Busy;
            }
            Reply::Verified { checked } => {
                (self.checked, self.verified, self.exit) = (checked, true, Some(0));
            }
            Reply::Failed { reason } => {
                self.failure.get_or_insert(reason);
                self.state = State::Busy;
            }
        }
    }

    fn gone(&mut self) {
        if self.exit.is_none() {
            self.failure.get_or_insert_with(|| "ended before its steps did".to_owned());
        }
        self.state = State::Ended;
    }

    /// Wait for the end of a worker that was told to finish.
    fn reap(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.input = None;
        let status = loop {
            match self.child.try_wait().context("cannot wait for a worker")? {
                Some(status) => break status,
                None if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
                None => bail!("{} does not end", self.name),
            }
        };
        self.ended(status);
        Ok(())
    }

    fn ended(&mut self, status: ExitStatus) {
        let wanted = self.exit.map(i32::from);
        if status.code() != wanted && self.failure.is_none() {
            self.failure = Some(format!("ended with {status}"));
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // After an error: a worker left behind would keep the GPU. One that is gone cannot be killed, and that is no loss.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// When a process started, in clock ticks since boot.
fn start_ticks(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    parse_start_ticks(&stat).with_context(|| format!("cannot understand {path}"))
}

/// Field 22 of stat; the second, in parentheses, may hold anything.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_start_is_field_22_whatever_its_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 123456 20 21";
        assert_eq!(parse_start_ticks(&format!("77 (a) b) {rest}")), Some(123_456));
        assert_eq!(parse_start_ticks("77 (a) S 1"), None);
        assert_eq!(parse_start_ticks(""), None);
        assert!(start_ticks(std::process::id()).unwrap() > 0);
    }
}

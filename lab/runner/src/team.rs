//! Workers of a run: one process for each process of the scenario, and their events.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::{
    member::{Member, State},
    protocol::{Command, Event, Reply},
    scenario::Scenario,
    uvmd::Client,
};

/// All workers of a run.
pub(crate) struct Team {
    members: Vec<Member>,
    events: mpsc::Receiver<Event>,
    sender: mpsc::Sender<Event>,
    /// Client of a uvmd that has to find each process before its work begins.
    finder: Option<Client>,
}

impl Team {
    /// Starts a worker for each process without a start delay, and waits until all are registered
    /// with the driver and none has touched its memory. `counters`: whether the driver counts for
    /// each.
    pub(crate) fn start(scenario: &Scenario, counters: bool, deadline: Instant) -> anyhow::Result<Self> {
        Self::start_found(scenario, counters, None, deadline)
    }

    /// The same, with a uvmd that has to find each process before its work begins.
    pub(crate) fn start_found(
        scenario: &Scenario,
        counters: bool,
        finder: Option<Client>,
        deadline: Instant,
    ) -> anyhow::Result<Self> {
        let (sender, events) = mpsc::channel();
        let members: Vec<Member> =
            (0..scenario.processes.len()).filter_map(|at| Member::new(scenario, at, counters, &sender)).collect();
        let mut team = Self { members, events, sender, finder };
        for member in team.members.iter_mut().filter(|member| member.starts_after.is_zero()) {
            member.start()?;
        }
        team.wait(deadline)?;
        Ok(team)
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Sender for requests to stop.
    pub(crate) fn sender(&self) -> mpsc::Sender<Event> {
        self.sender.clone()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.members.iter().any(|member| member.state == State::Idle)
    }

    /// Runs the steps of all workers once, those that start late included. Returns whether a
    /// request to stop arrived.
    pub(crate) fn go(&mut self, deadline: Instant) -> anyhow::Result<bool> {
        let now = Instant::now();
        self.members.iter_mut().for_each(|member| member.go(now));
        self.wait(deadline)
    }

    /// Sends a command to every idle worker, and waits for all replies. Returns whether a request
    /// to stop arrived.
    pub(crate) fn order(&mut self, command: &Command, deadline: Instant) -> anyhow::Result<bool> {
        for member in self.members.iter_mut().filter(|member| member.state == State::Idle) {
            member.send(command);
        }
        self.wait(deadline)
    }

    /// Waits until no reply is pending.
    fn wait(&mut self, deadline: Instant) -> anyhow::Result<bool> {
        let mut stopped = false;
        loop {
            let now = Instant::now();
            for member in &mut self.members {
                member.run_timers(now)?;
            }
            if !self.members.iter().any(Member::has_pending_reply) {
                return Ok(stopped);
            }
            if now >= deadline {
                let late = self.members.iter().filter(|member| member.has_pending_reply());
                let late: Vec<&str> = late.map(|member| member.name.as_str()).collect();
                bail!("no reply in time from {}", late.join(", "));
            }
            let next = self.members.iter().filter_map(Member::next_timer).min().unwrap_or(deadline).min(deadline);
            match self.events.recv_timeout(next.saturating_duration_since(now).max(Duration::from_millis(1))) {
                Ok(Event::Reply(at, reply)) => {
                    if let (Reply::Ready { .. }, Some(finder)) = (&reply, self.finder.clone()) {
                        finder.wait_for(self.member(at)?.id.context("a worker without a process")?)?;
                    }
                    self.member(at)?.handle_reply(reply)?;
                }
                Ok(Event::Exited(at)) => self.member(at)?.handle_exit(),
                Ok(Event::Stop) => {
                    stopped = true;
                    self.members.iter_mut().for_each(Member::stop);
                }
                Err(_) => {}
            }
        }
    }

    /// Whether a request to stop arrived while no worker was busy.
    pub(crate) fn was_stopped(&self) -> bool {
        self.events.try_iter().any(|event| matches!(event, Event::Stop))
    }

    /// Lets every worker verify all its memory and exit, and checks that it does.
    pub(crate) fn finish(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.order(&Command::Finish, deadline)?;
        self.members.iter_mut().try_for_each(|member| member.reap(deadline))
    }

    fn member(&mut self, at: usize) -> anyhow::Result<&mut Member> {
        self.members.get_mut(at).context("an event of a worker that does not exist")
    }
}

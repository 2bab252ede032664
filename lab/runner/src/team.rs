//! The workers of a run, seen from the runner: one process for each process of the scenario, and what they say.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::{
    member::{Member, State},
    protocol::{Command, Event},
    scenario::Scenario,
};

/// All workers.
pub(crate) struct Team {
    members: Vec<Member>,
    events: mpsc::Receiver<Event>,
    sender: mpsc::Sender<Event>,
}

impl Team {
    /// Start a worker for each process that does not start late, and wait until all are registered with the driver and none has touched
    /// its memory. `counters`: let the driver count for each.
    pub(crate) fn start(scenario: &Scenario, counters: bool, deadline: Instant) -> anyhow::Result<Self> {
        let (sender, events) = mpsc::channel();
        let members: Vec<Member> =
            (0..scenario.processes.len()).filter_map(|at| Member::new(scenario, at, counters, &sender)).collect();
        let mut team = Self { members, events, sender };
        for member in team.members.iter_mut().filter(|member| member.starts_after.is_zero()) {
            member.start()?;
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

    /// Let all do their steps once, those that start late too. Says whether somebody asked for the end meanwhile.
    pub(crate) fn go(&mut self, deadline: Instant) -> anyhow::Result<bool> {
        let now = Instant::now();
        self.members.iter_mut().for_each(|member| member.go(now));
        self.wait(deadline)
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
        loop {
            let now = Instant::now();
            for member in &mut self.members {
                member.keep_time(now)?;
            }
            if !self.members.iter().any(Member::owes_an_answer) {
                return Ok(stopped);
            }
            if now >= deadline {
                let late = self.members.iter().filter(|member| member.owes_an_answer());
                let late: Vec<&str> = late.map(|member| member.name.as_str()).collect();
                bail!("no answer in time from {}", late.join(", "));
            }
            let next = self.members.iter().filter_map(Member::next_time).min().unwrap_or(deadline).min(deadline);
            match self.events.recv_timeout(next.saturating_duration_since(now).max(Duration::from_millis(1))) {
                Ok(Event::Reply(at, reply)) => self.member(at)?.hear(reply)?,
                Ok(Event::Gone(at)) => self.member(at)?.gone(),
                Ok(Event::Stop) => {
                    stopped = true;
                    self.members.iter_mut().for_each(Member::stop);
                }
                Err(_) => {}
            }
        }
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

//! Runs a program with the helper, follows its calls, and publishes plans for it, like uvmd without
//! trials:
//!
//!     follow [--policies NAME[,NAME...]] [--gpu UUID] --gpu-mib N [--capacity-mib N] [--plan-after N]
//!            [--off-after N] [--pause N] [--link FILE] HELPER PROGRAM [ARGUMENT...]
//!
//! The plan of the first policy is published `--plan-after` iterations after it was computed
//! (default 0), and withdrawn after `--off-after` iterations. The plan of the next policy is
//! published `--pause` iterations later (default 2). With `+wait` after the name of a policy,
//! launches wait until moves are handed over to the driver. `--capacity-mib` is the capacity that
//! uvmd would have measured ([`Follower::set_capacity`]). By default, the GPU is the lab's on plain
//! memory. Prints a line of JSON for each iteration, and for each change. `--link` names the file
//! of the lab's link counters; with `driver`, the driver's counters of the process are read. Sends
//! a heartbeat each second. For tests.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

mod link;
mod options;

use std::{
    io::{BufRead, BufReader},
    process::{ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use actuator::HelperPlan;
use anyhow::{Context, bail};
use helper_tools::{exit_code, prepare, recorded};
use link::{Counts, Link};
use model::{PlanReport, policy::PLAN_CHOOSER};
use options::Options;
use plans::{Bytes, Change, Follower, Planned, Settings, State, Traffic, methods};
use recorder::{Memories, Process};
use serde_json::{Value, json};
use sys::Roots;

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);
/// Suffix of a policy's name: launches wait until moves are handed over.
const WAIT: &str = "+wait";
/// Timeout for the program's first call.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Phase of the run, with its first iteration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Watching,
    Planned {
        since: u64,
    },
    /// Between two policies.
    Paused {
        since: u64,
    },
    Off,
}

/// Policy with its follower.
struct Arm {
    policy: String,
    follower: Follower,
    /// Number of the iteration in which the plan was computed.
    planned_iteration: Option<u64>,
}

/// Report of the helper, and counts of the link.
type Reading = (PlanReport, Option<Counts>);

struct Session<'a> {
    options: &'a Options,
    link: Option<Link>,
    helper_plan: HelperPlan,
    last_heartbeat: Instant,
    arms: Vec<Arm>,
    /// Index of the current arm.
    arm_index: usize,
    phase: Phase,
    /// Current iteration, and the readings at its start.
    iteration: Option<u64>,
    before: Reading,
    lines: u64,
}

impl Session<'_> {
    fn add(&mut self, calls: Vec<call_ring::call::Call>) -> anyhow::Result<()> {
        for call in calls {
            let mut has_drifted = false;
            self.send_heartbeat();
            for Arm { policy, follower, planned_iteration } in &mut self.arms {
                match follower.add(call.clone()) {
                    Some(Change::Planned) => {
                        *planned_iteration = follower.iteration().map(|iteration| iteration.number);
                        if let Some(planned) = follower.planned() {
                            println!("{}", planned_line(policy, planned));
                        }
                    }
                    Some(Change::Refused) => {
                        if let State::Refused(refusal) = follower.state() {
                            println!(
                                "{}",
                                json!({ "event": "refused", "policy": policy, "reason": refusal.to_string() })
                            );
                        }
                    }
                    Some(Change::Drifted) => {
                        *planned_iteration = None;
                        has_drifted = true;
                    }
                    // Without block records, there are no probes.
                    Some(Change::Probing | Change::Planning) | None => {}
                }
            }
            if has_drifted {
                println!("{}", json!({ "event": "drifted" }));
                self.withdraw(Phase::Watching);
            }
            if self.iteration_number() != self.iteration {
                self.begin_iteration()?;
            }
        }
        Ok(())
    }

    fn withdraw(&mut self, phase: Phase) {
        self.helper_plan.withdraw();
        self.phase = phase;
    }

    /// Number of the current iteration, the same for all followers.
    fn iteration_number(&self) -> Option<u64> {
        self.arms.first()?.follower.iteration().map(|iteration| iteration.number)
    }

    /// Sends a heartbeat each second.
    fn send_heartbeat(&mut self) {
        if self.last_heartbeat.elapsed() >= HEARTBEAT_INTERVAL {
            self.helper_plan.send_heartbeat();
            self.last_heartbeat = Instant::now();
        }
    }

    fn begin_iteration(&mut self) -> anyhow::Result<()> {
        let (before, now) = (self.before.clone(), self.reading()?);
        let iteration = self.iteration_number();
        // Only iterations that were observed from their start.
        if let (Some(ended), true) = (self.iteration, iteration > self.iteration) {
            self.line(ended, &before, &now);
        }
        self.iteration = iteration;
        self.before = now;
        let Some(iteration) = iteration else { return Ok(()) };
        match self.phase {
            Phase::Watching => self.publish(iteration, self.options.plan_after)?,
            Phase::Paused { since } if iteration - since > self.options.pause => self.publish(iteration, 0)?,
            Phase::Planned { since } if iteration - since > self.options.off_after => {
                self.arm_index += 1;
                self.withdraw(Phase::Paused { since: iteration });
            }
            Phase::Planned { .. } | Phase::Paused { .. } | Phase::Off => {}
        }
        Ok(())
    }

    /// Publishes the plan of the next policy that has one.
    fn publish(&mut self, iteration: u64, plan_after: u64) -> anyhow::Result<()> {
        let is_refused = |arm: &Arm| matches!(arm.follower.state(), State::Refused(_));
        while self.arms.get(self.arm_index).is_some_and(is_refused) {
            self.arm_index += 1;
        }
        let Some(arm) = self.arms.get(self.arm_index) else {
            self.phase = Phase::Off;
            return Ok(());
        };
        let is_due = arm.planned_iteration.is_some_and(|at| iteration >= at + plan_after);
        if let Some(planned) = arm.follower.planned().filter(|_| is_due) {
            let launches_wait = arm.policy.ends_with(WAIT);
            self.helper_plan.filter_check().run();
            self.helper_plan.publish(&planned.table().plan(self.options.gpu, launches_wait))?;
            self.phase = Phase::Planned { since: iteration };
        }
        Ok(())
    }

    fn reading(&self) -> anyhow::Result<Reading> {
        Ok((self.helper_plan.report(), self.link.as_ref().map(Link::read).transpose()?))
    }

    fn line(&mut self, iteration: u64, before: &Reading, now: &Reading) {
        let helper = now.0.counters.since(before.0.counters);
        let is_planned = matches!(self.phase, Phase::Planned { .. });
        let arm = self.arms.get(self.arm_index).filter(|_| is_planned);
        let planned = arm.and_then(|arm| arm.follower.planned());
        let counted = before.1.zip(now.1).map(|(before, now)| now.since(before));
        let since = match self.phase {
            Phase::Planned { since } | Phase::Paused { since } => Some(iteration - since),
            Phase::Watching | Phase::Off => None,
        };
        let line = json!({
            "iteration": iteration,
            "since_change": since,
            "state": match self.phase {
                Phase::Watching => "watching",
                Phase::Planned { .. } => "planned",
                Phase::Paused { .. } | Phase::Off => "off",
            },
            "policy": arm.map(|arm| &arm.policy),
            "helper_ended": now.0.ended,
            "planned_bytes": planned.map(|planned| bytes_line(planned.traffic.bytes)),
            "issued": helper.moves,
            "late": helper.late,
            "expired": helper.expired,
            "skipped": helper.skipped,
            "moved_to_gpu_bytes": helper.to_gpu_bytes,
            "moved_to_host_bytes": helper.to_host_bytes,
            "link_in_bytes": counted.map(|counted| counted.in_bytes),
            "link_out_bytes": counted.map(|counted| counted.out_bytes),
            "faults": counted.map(|counted| counted.faults),
        });
        println!("{line}");
        self.lines += 1;
    }
}

fn bytes_line(Bytes { to_gpu, to_host, faulted, evicted }: Bytes) -> Value {
    json!({ "to_gpu": to_gpu, "to_host": to_host, "faulted": faulted, "evicted": evicted })
}

fn planned_line(policy: &str, planned: &Planned) -> Value {
    let Planned { planner, tokens, moves, traffic, traffic_without_plan, peak_bytes, room_bytes, .. } = planned;
    let Traffic { bytes, faulted_pieces, .. } = traffic;
    json!({
        "event": "planned", "policy": policy, "planner": planner, "launches": tokens.len(), "moves": moves.len(),
        "bytes": bytes_line(*bytes), "driver_bytes": bytes_line(traffic_without_plan.bytes),
        "faulted_blocks": faulted_pieces, "driver_faulted_blocks": traffic_without_plan.faulted_pieces,
        "peak_bytes": peak_bytes, "room_bytes": room_bytes,
        "ranges": moves.iter().map(|one| {
            json!([one.begin, one.bytes, format!("{:?}", one.destination), one.begin_op, one.wait_op, one.expiry_op])
        }).collect::<Vec<_>>(),
    })
}

fn main() -> anyhow::Result<ExitCode> {
    if let Some(ended) = prepare() {
        return Ok(ended);
    }
    let options = Options::of_arguments()?;
    let settings =
        Settings { user: 0, gpu: options.gpu, gpu_bytes: options.gpu_mib << 20, has_fault_counts: false, probes: None };
    let arm = |policy: &String| {
        let methods = match policy.trim_end_matches(WAIT) {
            PLAN_CHOOSER => methods::auto_plan_candidates(),
            name => methods::by_name(name).into_iter().collect(),
        };
        if methods.is_empty() {
            bail!("{policy} makes no plans");
        }
        let mut follower = Follower::new(settings.clone(), methods);
        follower.set_capacity(options.capacity_mib.map(|mib| mib << 20));
        Ok(Arm { policy: policy.clone(), follower, planned_iteration: None })
    };
    let arms = options.policies.iter().map(arm).collect::<anyhow::Result<Vec<Arm>>>()?;
    let roots = Roots::default();
    let mut child = recorded(&options.helper, &options.program, options.arguments.iter().cloned())
        .stdout(Stdio::piped())
        .spawn()
        .context("the program does not start")?;
    // Relayed in whole lines, as this program prints lines between them.
    let stdout = child.stdout.take().context("no output of the program")?;
    let relay =
        thread::spawn(move || BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| println!("{line}")));
    let started = Instant::now();
    let (mut process, helper_plan) = loop {
        if let Some(status) = child.try_wait()? {
            bail!("the program has ended: {status}");
        }
        if let Ok(Some(process)) = Process::find(&roots, child.id()) {
            // The helper shares both memories together: an error means that their version differs.
            let Memories { ring, plan } = process.memories().clone();
            let plan = plan
                .map_err(anyhow::Error::msg)
                .map(|plan| plan.map(|plan| HelperPlan::new(roots.clone(), child.id(), ring, plan)));
            match plan.and_then(|helper_plan| Ok(helper_plan.transpose()?)) {
                Ok(Some(helper_plan)) => break (process, helper_plan),
                Ok(None) => {}
                Err(error) => {
                    child.kill()?;
                    return Err(error);
                }
            }
        }
        if started.elapsed() > TIMEOUT {
            child.kill()?;
            bail!("no ring was found");
        }
        thread::sleep(POLL);
    };
    let link = loop {
        // The helper starts before the program has a VA space.
        match options.link.as_deref().map(|name| Link::open(name, child.id())).transpose() {
            Err(error) if child.try_wait()?.is_some() || started.elapsed() > TIMEOUT => return Err(error),
            Err(_) => thread::sleep(POLL),
            Ok(link) => break link,
        }
    };
    let before = (helper_plan.report(), None);
    let mut session = Session {
        options: &options,
        link,
        helper_plan,
        last_heartbeat: Instant::now(),
        arms,
        arm_index: 0,
        phase: Phase::Watching,
        iteration: None,
        before,
        lines: 0,
    };
    let status = loop {
        // Exit status first: calls made before the exit are then available.
        let exited = child.try_wait()?;
        session.send_heartbeat();
        session.add(process.poll()?)?;
        if let Some(status) = exited {
            break status;
        }
        thread::sleep(POLL);
    };
    session.add(process.finish()?)?;
    if relay.join().is_err() {
        bail!("the output of the program could not be relayed");
    }
    let losses = process.losses();
    println!("{}", json!({ "event": "exit", "dropped": losses.dropped, "iterations": session.lines }));
    Ok(exit_code(status))
}

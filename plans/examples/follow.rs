//! Runs a program with the helper in it, follows its calls, and publishes plans for it, as uvmd would:
//!
//!     follow [--planner NAME] [--gpu UUID] --gpu-mib N [--plan-after N] [--off-after N] [--link FILE]
//!            HELPER PROGRAM [ARGUMENT...]
//!
//! A plan is published `--plan-after` iterations after the follower has it (0), and withdrawn after
//! `--off-after` iterations with it. The GPU is the lab's on plain memory, unless UUID names another.
//! Prints a line of JSON for each iteration, and for each change. `--link` names the counters of the
//! lab's link, or is `driver` for the driver's own of the process. Beats each second. For tests.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::{
    env,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use actuator::HelperPlan;
use anyhow::{Context, bail};
use model::PlanReport;
use plans::{Bytes, Change, Follower, Planned, Settings, State, methods};
use recorder::Process;
use serde_json::{Value, json};
use sys::{
    Roots, driver,
    pidfd::PidFd,
    uvm::{counters::Counters, target::VaSpace},
};

/// GPU of the lab, on plain memory.
const PLAIN_GPU: [u8; 16] = *b"lab GPU, plain \x01";
const BEAT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);
/// Time within which a program makes its first call.
const PATIENCE: Duration = Duration::from_mins(5);

struct Options {
    planner: String,
    gpu: [u8; 16],
    gpu_mib: u64,
    plan_after: u64,
    off_after: u64,
    link: Option<PathBuf>,
    helper: OsString,
    program: OsString,
    arguments: Vec<OsString>,
}

impl Options {
    fn of_arguments() -> anyhow::Result<Self> {
        let mut arguments = env::args_os().skip(1).peekable();
        let (mut planner, mut gpu, mut gpu_mib) = ("foresight".to_owned(), PLAIN_GPU, None);
        let (mut plan_after, mut off_after, mut link) = (0, u64::MAX, None);
        while let Some(name) = arguments.next_if(|argument| argument.to_string_lossy().starts_with("--")) {
            let value = arguments.next().with_context(|| format!("{} needs a value", name.display()))?;
            let text = value.to_string_lossy();
            match &*name.to_string_lossy() {
                "--planner" => planner = text.clone().into_owned(),
                "--gpu" => gpu = uuid(&text)?,
                "--gpu-mib" => gpu_mib = Some(text.parse()?),
                "--plan-after" => plan_after = text.parse()?,
                "--off-after" => off_after = text.parse()?,
                "--link" => link = Some(value.into()),
                other => bail!("unknown option {other}"),
            }
        }
        let (Some(helper), Some(program)) = (arguments.next(), arguments.next()) else {
            bail!("usage: follow [OPTION...] HELPER PROGRAM [ARGUMENT...]");
        };
        let gpu_mib = gpu_mib.context("--gpu-mib is missing")?;
        let arguments = arguments.collect();
        Ok(Self { planner, gpu, gpu_mib, plan_after, off_after, link, helper, program, arguments })
    }
}

/// UUID from its usual form.
fn uuid(text: &str) -> anyhow::Result<[u8; 16]> {
    let digits: String = text.trim_start_matches("GPU-").chars().filter(|digit| *digit != '-').collect();
    if digits.len() != 32 {
        bail!("{text} is no UUID");
    }
    Ok(u128::from_str_radix(&digits, 16)?.to_be_bytes())
}

/// Plan in force, from an iteration on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Watching,
    Planned { since: u64 },
    Off,
}

/// What counts the bytes over the link.
enum Link {
    /// The lab's software GPU.
    Lab(PathBuf),
    /// The driver, for the process. It keeps the VA space alive.
    Driver(Counters),
}

impl Link {
    fn open(name: &Path, pid: u32) -> anyhow::Result<Self> {
        if name != Path::new("driver") {
            return Ok(Self::Lab(name.to_owned()));
        }
        let roots = Roots::default();
        let version = driver::module(&roots).and_then(|module| module.version).context("no driver is loaded")?;
        let process = PidFd::open(pid)?;
        let va_space = VaSpace::of(&process, &roots)?.into_iter().next().context("no VA space")?;
        Ok(Self::Driver(Counters::attach(&va_space, &version)?))
    }

    /// To the GPU, and to the host.
    fn read_bytes(&self) -> anyhow::Result<(u64, u64)> {
        match self {
            Self::Lab(path) => {
                let text = fs::read_to_string(path)?;
                let count = |name: &str| -> anyhow::Result<u64> {
                    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                    Ok(line.with_context(|| format!("{} has no {name}", path.display()))?.trim().parse()?)
                };
                Ok((count("copied_htod_bytes")?, count("copied_dtoh_bytes")?))
            }
            Self::Driver(counters) => {
                let counted = counters.read();
                Ok((counted.bytes_htod, counted.bytes_dtoh))
            }
        }
    }
}

/// What the helper reports, and the bytes over the link.
type Reading = (PlanReport, Option<(u64, u64)>);

struct Session<'a> {
    options: &'a Options,
    link: Option<Link>,
    place: HelperPlan,
    beaten: Instant,
    follower: Follower,
    phase: Phase,
    /// Iteration that is known to have begun, and the readings then.
    iteration: Option<u64>,
    /// Iteration in which the follower has made its plan.
    planned_at: Option<u64>,
    before: Reading,
    lines: u64,
}

fn bytes_line(Bytes { to_gpu, to_host, faulted, evicted }: Bytes) -> Value {
    json!({ "to_gpu": to_gpu, "to_host": to_host, "faulted": faulted, "evicted": evicted })
}

impl Session<'_> {
    fn add(&mut self, calls: Vec<call_ring::call::Call>) -> anyhow::Result<()> {
        for call in calls {
            match self.follower.add(call) {
                Some(Change::Planned) => {
                    self.planned_at = self.iteration_number();
                    if let Some(planned) = self.follower.planned() {
                        println!("{}", planned_line(planned));
                    }
                }
                Some(Change::Refused) => {
                    if let State::Refused(refusal) = self.follower.state() {
                        println!("{}", json!({ "event": "refused", "reason": refusal.to_string() }));
                    }
                }
                Some(Change::Drifted) => {
                    println!("{}", json!({ "event": "drifted" }));
                    self.withdraw(Phase::Watching);
                    self.planned_at = None;
                }
                None => {}
            }
            if self.iteration_number() != self.iteration {
                self.begin_iteration()?;
            }
        }
        Ok(())
    }

    fn withdraw(&mut self, phase: Phase) {
        self.place.withdraw();
        self.phase = phase;
    }

    fn iteration_number(&self) -> Option<u64> {
        self.follower.iteration().map(|iteration| iteration.number)
    }

    /// Beats each second.
    fn beat(&mut self) {
        if self.beaten.elapsed() >= BEAT {
            self.place.beat();
            self.beaten = Instant::now();
        }
    }

    fn begin_iteration(&mut self) -> anyhow::Result<()> {
        let (before, now) = (self.before.clone(), self.reading()?);
        let iteration = self.iteration_number();
        // Only what was seen from its begin on.
        if let (Some(ended), true) = (self.iteration, iteration > self.iteration) {
            self.line(ended, &before, &now);
        }
        self.iteration = iteration;
        self.before = now;
        let Some(iteration) = iteration else { return Ok(()) };
        match self.phase {
            Phase::Watching => {
                let due = self.planned_at.is_some_and(|at| iteration >= at + self.options.plan_after);
                if let Some(planned) = self.follower.planned().filter(|_| due) {
                    let plan = planned.table(self.options.gpu);
                    self.place.publish(&plan)?;
                    self.phase = Phase::Planned { since: iteration };
                }
            }
            Phase::Planned { since } if iteration - since > self.options.off_after => self.withdraw(Phase::Off),
            Phase::Planned { .. } | Phase::Off => {}
        }
        Ok(())
    }

    fn reading(&self) -> anyhow::Result<Reading> {
        let bytes = self.link.as_ref().map(Link::read_bytes).transpose()?;
        Ok((self.place.report(), bytes))
    }

    fn line(&mut self, iteration: u64, before: &Reading, now: &Reading) {
        let counted = now.0.counters.since(before.0.counters);
        let planned = self.follower.planned().filter(|_| matches!(self.phase, Phase::Planned { .. }));
        let copied = before.1.zip(now.1).map(|(old, new)| (new.0.saturating_sub(old.0), new.1.saturating_sub(old.1)));
        let line = json!({
            "iteration": iteration,
            "state": match self.phase {
                Phase::Watching => "watching",
                Phase::Planned { .. } => "planned",
                Phase::Off => "off",
            },
            "helper_ended": now.0.ended,
            "planned_bytes": planned.map(|planned| bytes_line(planned.traffic.bytes)),
            "issued": counted.moves,
            "late": counted.late,
            "skipped": counted.skipped,
            "moved_to_gpu_bytes": counted.to_gpu_bytes,
            "moved_to_host_bytes": counted.to_host_bytes,
            "link_in_bytes": copied.map(|copied| copied.0),
            "link_out_bytes": copied.map(|copied| copied.1),
        });
        println!("{line}");
        self.lines += 1;
    }
}

fn planned_line(planned: &Planned) -> Value {
    json!({
        "event": "planned", "launches": planned.tokens.len(), "moves": planned.moves.len(),
        "bytes": bytes_line(planned.traffic.bytes), "driver_bytes": bytes_line(planned.driver.bytes),
        "peak_bytes": planned.peak_bytes, "room_bytes": planned.room_bytes,
        "ranges": planned.moves.iter().map(|one| {
            json!([one.begin, one.bytes, format!("{:?}", one.destination), one.begin_op, one.wait_op])
        }).collect::<Vec<_>>(),
    })
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::of_arguments()?;
    let method = methods::by_name(&options.planner).context("no such planner")?;
    let settings = Settings { gpu: options.gpu, gpu_bytes: options.gpu_mib << 20, are_faults_counted: false };
    let roots = Roots::default();
    let mut child = Command::new(&options.program)
        .args(&options.arguments)
        .env("LD_PRELOAD", &options.helper)
        .env("UVMD_HELPER", "record")
        .stdout(Stdio::piped())
        .spawn()
        .context("the program does not start")?;
    // Whole lines among those of this program.
    let said = child.stdout.take().context("no output of the program")?;
    let relay =
        thread::spawn(move || BufReader::new(said).lines().map_while(Result::ok).for_each(|line| println!("{line}")));
    let started = Instant::now();
    let (mut process, place) = loop {
        if let Some(status) = child.try_wait()? {
            bail!("the program has ended: {status}");
        }
        if let Ok(Some(process)) = Process::find(&roots, child.id())
            && let Ok(Some(place)) = HelperPlan::find(&roots, child.id())
        {
            break (process, place);
        }
        if started.elapsed() > PATIENCE {
            child.kill()?;
            bail!("no ring was found");
        }
        thread::sleep(POLL);
    };
    let link = loop {
        // The program has the helper before it has a VA space.
        match options.link.as_deref().map(|name| Link::open(name, child.id())).transpose() {
            Err(error) if child.try_wait()?.is_some() || started.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(POLL),
            Ok(link) => break link,
        }
    };
    let before = (place.report(), None);
    let follower = Follower::new(settings, vec![method]);
    let mut session = Session {
        options: &options,
        link,
        place,
        beaten: Instant::now(),
        follower,
        phase: Phase::Watching,
        iteration: None,
        planned_at: None,
        before,
        lines: 0,
    };
    let status = loop {
        // First the exit, then the calls: those of before the exit are there.
        let exited = child.try_wait()?;
        session.beat();
        session.add(process.poll()?)?;
        if let Some(status) = exited {
            break status;
        }
        thread::sleep(POLL);
    };
    session.add(process.finish()?)?;
    if relay.join().is_err() {
        bail!("the output of the program is not whole");
    }
    let losses = process.losses();
    println!("{}", json!({ "event": "exit", "dropped": losses.dropped, "iterations": session.lines }));
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(255)).unwrap_or(255)))
}

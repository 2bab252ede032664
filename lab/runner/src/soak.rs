//! `lab-runner soak`: runs random scenarios one after the other, with random kills (-9) of their
//! processes, of uvmd and of the runner itself, and checks that none of these leaves a trace.
//!
//! * [`summary`]: summary and report
//! * [`act`]: soak of a uvmd that acts

pub(crate) mod act;
mod summary;

use std::{
    fs,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use gpu::swgpu::Gpu;
use serde_json::Value;

use self::summary::{Failure, Summary};
use crate::{
    dice::Dice,
    generate::{self, Machine},
    scenario::{parse, size::MIB},
    service::Service,
    sys::process,
    truth::{
        free::{all_is_free, gpus},
        kmsg::Log,
    },
};

/// Options of a soak.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    /// Options of uvmd's command line.
    pub(crate) uvmd: Vec<String>,
}

/// Fate of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Runs to its end, and uvmd must be exact.
    Whole,
    /// uvmd is killed during the run, and restarted afterwards.
    KillUvmd,
    /// The runner is killed during the run, which kills its processes.
    KillRunner,
}

/// Time limit of a scenario; a longer one hangs.
const ROUND: Duration = Duration::from_mins(3);
/// Maximum delay of a kill after the scenario's start.
const KILL_DELAY_MAX_MS: u64 = 4000;
/// Time limit for the exit of all processes of a killed runner.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const SCENARIO: &str = "/tmp/soak.toml";
const REPORT: &str = "/tmp/soak.json";

/// Soaks until the time is over or a check fails.
pub(crate) fn soak(options: &Options) -> anyhow::Result<Summary> {
    let gpus = gpus()?;
    let machine = Machine {
        gpu_mem_mib: gpus.iter().map(|gpu| gpu.memory_bytes / MIB).min().unwrap_or(0),
        gpus: u32::try_from(gpus.len())?,
    };
    let mut log = Log::whole()?;
    let mut dice = Dice::new(options.seed);
    let mut service = Service::start(&options.uvmd)?;
    let mut summary = Summary::new(options.seed);
    let started = Instant::now();
    for seed in options.seed.. {
        if started.elapsed() >= options.duration || !summary.failures.is_empty() {
            break;
        }
        let fate = match dice.between(1, 100) {
            1..=15 => Fate::KillUvmd,
            16..=30 => Fate::KillRunner,
            _ => Fate::Whole,
        };
        let kill_after = Duration::from_millis(dice.between(0, KILL_DELAY_MAX_MS));
        let result =
            round(seed, machine, fate, kill_after, &mut service, &mut summary).and_then(|()| check(&gpus, &mut log));
        if let Err(error) = result {
            summary.failures.push(Failure { seed, fate: format!("{fate:?}"), reason: format!("{error:#}") });
        }
        summary.sample(started.elapsed(), &service)?;
    }
    summary.seconds = started.elapsed().as_secs();
    if let Err(error) = service.stop() {
        summary.failures.push(Failure { seed: 0, fate: "End".to_owned(), reason: format!("{error:#}") });
    }
    summary.check_memory();
    Ok(summary)
}

fn round(
    seed: u64,
    machine: Machine,
    fate: Fate,
    kill_after: Duration,
    service: &mut Service,
    summary: &mut Summary,
) -> anyhow::Result<()> {
    let scenario = generate::scenario(seed, machine);
    let processes = parse::parse(SCENARIO, &scenario)?.processes.len() as u64;
    fs::write(SCENARIO, scenario).context("cannot write the scenario")?;
    // Removed, as a killed run writes no report.
    let _ = fs::remove_file(REPORT);
    let mut runner = Runner::start(fate != Fate::KillUvmd)?;
    let status = match fate {
        Fate::Whole => Some(runner.wait(ROUND)?),
        Fate::KillUvmd => {
            let early_exit = runner.try_wait(kill_after)?;
            service.kill()?;
            let status = early_exit.map_or_else(|| runner.wait(ROUND), Ok)?;
            service.restart()?;
            Some(status)
        }
        Fate::KillRunner => {
            let early_exit = runner.try_wait(kill_after)?;
            runner.kill()?;
            early_exit
        }
    };
    match fate {
        Fate::Whole => summary.whole += 1,
        Fate::KillUvmd => summary.uvmd_killed += 1,
        Fate::KillRunner => {
            summary.runner_killed += 1;
            summary.killed_at_any_time += 1 + processes;
        }
    }
    if let Some(status) = status {
        summary.add(&report()?);
        if !status.success() {
            bail!("the run ended with {status}: {}", Runner::log_errors());
        }
    }
    Ok(())
}

fn report() -> anyhow::Result<Value> {
    let text = fs::read_to_string(REPORT).context("the run wrote no report")?;
    serde_json::from_str(&text).context("the run's report cannot be understood")
}

/// Checks the conditions after every round: no GPU memory is allocated, and the kernel's log has no
/// complaint.
fn check(gpus: &[Gpu], log: &mut Log) -> anyhow::Result<()> {
    all_is_free(gpus)?;
    match log.complaints()?.first() {
        Some(complaint) => bail!("kernel: {complaint}"),
        None => Ok(()),
    }
}

/// `lab-runner run`, as a separate process.
struct Runner(Child);

impl Runner {
    /// Starts the runner in its own process group, whose signals show when all its processes have
    /// exited.
    fn start(ask_uvmd: bool) -> anyhow::Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let log = fs::File::create(Self::LOG).context("cannot make the run's log")?;
        let mut command = Command::new("/proc/self/exe");
        command.args(["run", SCENARIO, "--once", "--report", REPORT]);
        if !ask_uvmd {
            command.arg("--no-uvmd");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        command.spawn().map(Self).context("cannot start the runner")
    }

    const LOG: &str = "/tmp/soak.log";

    /// Errors at the end of its log, for display.
    fn log_errors() -> String {
        let log = fs::read_to_string(Self::LOG).unwrap_or_default();
        let is_error =
            |line: &&str| ["problem:", "WRONG", "uvmd:", "lab-runner:"].iter().any(|word| line.contains(word));
        log.lines().filter(is_error).take(8).collect::<Vec<_>>().join("; ")
    }

    /// Exit status, if it exits within this time.
    fn try_wait(&mut self, within: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + within;
        loop {
            let status = self.0.try_wait().context("cannot wait for the runner")?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn wait(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        self.try_wait(within)?.context("the run hangs")
    }

    /// Kills the runner alone; its processes must die with it.
    fn kill(&mut self) -> anyhow::Result<()> {
        self.0.kill().context("cannot kill the runner")?;
        self.0.wait().context("cannot wait for the runner")?;
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while process::group_lives(self.0.id())? {
            if Instant::now() > deadline {
                bail!("processes of a killed runner live on");
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

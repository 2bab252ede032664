//! `lab-runner soak`: random scenarios one after the other, with random kills (-9) of their processes, of uvmd and of the runner itself,
//! and the checks that nothing of that leaves a trace.
//!
//! * [`summary`]: what is told in the end
//! * [`act`]: of a uvmd that acts

pub(crate) mod act;
mod summary;

use std::{
    fs,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde_json::Value;

use self::summary::{Failure, Summary};
use crate::{
    dice::Dice,
    generate::{self, Machine},
    scenario::{parse, size::MIB},
    service::Service,
    sys::{process, swgpu::Gpu},
    truth::{
        free::{all_is_free, gpus},
        kmsg::Log,
    },
};

/// What a soak is to be.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    /// Words for uvmd's command line.
    pub(crate) uvmd: Vec<String>,
}

/// What happens to a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It runs to its end, and uvmd must be exact.
    Whole,
    /// uvmd is killed in the middle, and started again afterwards.
    KillUvmd,
    /// The runner is killed in the middle, which kills its processes.
    KillRunner,
}

/// A scenario that takes longer hangs.
const ROUND: Duration = Duration::from_mins(3);
/// How long after its start a scenario may be hit.
const HIT_MS: u64 = 4000;
/// The driver gives everything back soon after its last user is gone.
const RELEASE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
const SCENARIO: &str = "/tmp/soak.toml";
const REPORT: &str = "/tmp/soak.json";

/// Soak until the time is over or something is wrong.
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
        let hit_after = Duration::from_millis(dice.between(0, HIT_MS));
        let result =
            round(seed, machine, fate, hit_after, &mut service, &mut summary).and_then(|()| check(&gpus, &mut log));
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
    hit_after: Duration,
    service: &mut Service,
    summary: &mut Summary,
) -> anyhow::Result<()> {
    let scenario = generate::scenario(seed, machine);
    let processes = parse::parse(SCENARIO, &scenario)?.processes.len() as u64;
    fs::write(SCENARIO, scenario).context("cannot write the scenario")?;
    // Of a run that does not write one, there is none.
    let _ = fs::remove_file(REPORT);
    let mut runner = Runner::start(fate != Fate::KillUvmd)?;
    let status = match fate {
        Fate::Whole => Some(runner.wait(ROUND)?),
        Fate::KillUvmd => {
            let over = runner.try_wait(hit_after)?;
            service.kill()?;
            let status = over.map_or_else(|| runner.wait(ROUND), Ok)?;
            service.restart()?;
            Some(status)
        }
        Fate::KillRunner => {
            let over = runner.try_wait(hit_after)?;
            runner.kill()?;
            over
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
            bail!("the run ended with {status}: {}", Runner::last_words());
        }
    }
    Ok(())
}

fn report() -> anyhow::Result<Value> {
    let text = fs::read_to_string(REPORT).context("the run wrote no report")?;
    serde_json::from_str(&text).context("the run's report cannot be understood")
}

/// What must hold after every round: nobody has memory of a GPU, and nothing complained.
fn check(gpus: &[Gpu], log: &mut Log) -> anyhow::Result<()> {
    all_is_free(gpus)?;
    match log.complaints()?.first() {
        Some(complaint) => bail!("kernel: {complaint}"),
        None => Ok(()),
    }
}

/// `lab-runner run`, as anyone would start it.
struct Runner(Child);

impl Runner {
    /// In a process group of its own, so that it can be seen when all of it is gone.
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

    /// What it says in the end, for people.
    fn last_words() -> String {
        let log = fs::read_to_string(Self::LOG).unwrap_or_default();
        let tells = |line: &&str| ["problem:", "WRONG", "uvmd:", "lab-runner:"].iter().any(|word| line.contains(word));
        log.lines().filter(tells).take(8).collect::<Vec<_>>().join("; ")
    }

    /// How it ended, if it does within that time.
    fn try_wait(&mut self, within: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + within;
        loop {
            let status = self.0.try_wait().context("cannot wait for the runner")?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
    }

    fn wait(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        self.try_wait(within)?.context("the run hangs")
    }

    /// Kill it alone; its processes must follow.
    fn kill(&mut self) -> anyhow::Result<()> {
        self.0.kill().context("cannot kill the runner")?;
        self.0.wait().context("cannot wait for the runner")?;
        let deadline = Instant::now() + RELEASE;
        while process::group_lives(self.0.id())? {
            if Instant::now() > deadline {
                bail!("processes of a killed runner live on");
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

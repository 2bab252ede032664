//! Runs a scenario on the lab's GPU and compares uvmd with the truth. Runs as root beside nvidia-uvm and the software GPU; only `check`
//! runs anywhere. Shares no code with uvmd: what it compares with is found another way (docs/truth.md). The simulator it has only to be compared itself.
//!
//! * [`scenario`]: the language (docs/scenarios.md)
//! * [`worker`], [`protocol`], [`team`], [`member`], [`shared`], [`started`], [`cgroup`]: the scenario's processes, and the talk with them
//! * [`work`], [`check`], [`residency`]: what steps work with, what memory must hold, and where it is
//! * [`truth`], [`uvmd`], [`figures`], [`matrix`], [`report`] and [`digits`](mod@digits): the two sides, and their comparison; [`access_log`]: what the GPUs did
//! * [`run`](mod@run), [`repeat`], [`generate`], [`soak`](mod@soak), [`verdicts`], [`compare`], [`simulate`]: the commands ([`dice`] and [`mix`](mod@mix): random numbers;
//!   [`service`]: uvmd, started, killed, started again)
//! * [`churn`](mod@churn): a process for tests of what is done to it; [`attack`](mod@attack): one that is hostile
//! * [`builtin`]: NVIDIA's own tests of the driver
//! * [`console`]: what is wrong with a guest that has ended
//! * [`sys`]: the driver; all unsafe code

mod access_log;
mod attack;
mod builtin;
mod cgroup;
mod check;
mod churn;
mod compare;
mod console;
mod dice;
mod digits;
mod figures;
mod generate;
mod matrix;
mod member;
mod mix;
mod protocol;
mod repeat;
mod report;
mod residency;
mod run;
mod scenario;
mod service;
mod shared;
mod simulate;
mod soak;
mod started;
mod sys;
mod team;
mod truth;
mod uvmd;
mod verdicts;
mod work;
mod worker;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::{
    scenario::{Scenario, Variation, size::human},
    truth::complaints::Judgement,
};

/// Runs a scenario on the lab's GPU and compares uvmd with the truth.
#[derive(Parser)]
#[command(version)]
struct Options {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check a scenario file, without running it.
    Check {
        /// The scenario.
        file: PathBuf,
        /// Print one value of it alone, for scripts.
        #[arg(long, value_name = "WHAT")]
        print: Option<Print>,
    },
    /// Run a scenario once, verify its data, and compare uvmd with the truth.
    ///
    /// Exits with 0 if the data is right, the run valid and uvmd exact; with 3 if only uvmd did not answer; else with 1.
    Run {
        /// The scenario.
        file: PathBuf,
        /// Where to write the report, as JSON.
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
        /// Where uvmd listens.
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9477")]
        uvmd: String,
        /// Do not ask uvmd: verify the data and report the truth only.
        #[arg(long, conflicts_with = "uvmd")]
        no_uvmd: bool,
        /// Give up when the scenario is not done after so many seconds.
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        timeout: u64,
        /// Do not run the scenario once more without the driver's counters.
        #[arg(long)]
        once: bool,
        /// What makes this run differ from others of the same scenario; as it is written if left out.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Multiply all access rates by this.
        #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
        access_rate_factor: f64,
        /// Processes of others are at work: compare the scenario's processes, and no sums over all.
        #[arg(long)]
        among_others: bool,
        /// Where to write what the GPUs accessed, copied and mapped, as CSV.
        #[arg(long, value_name = "FILE")]
        access_log: Option<PathBuf>,
    },
    /// Repeat a scenario until SIGINT or SIGTERM, a line of progress a round; then verify its data.
    Loop {
        /// The scenario.
        file: PathBuf,
    },
    /// Map and unmap managed memory all the while, beside memory that is held, and write down when.
    Churn(churn::Options),
    /// Work against whoever watches the driver, as a user without rights, until killed.
    Attack {
        /// What to exhaust.
        attack: attack::Attack,
        /// Be killed when the process ends that started this one.
        #[arg(long)]
        with_parent: bool,
    },
    /// Print a random scenario of the whole language, the same for the same seed.
    Generate {
        /// What makes it different from others.
        #[arg(long)]
        seed: u64,
        /// The memory of each GPU.
        #[arg(long, value_name = "N", default_value_t = 64)]
        gpu_mem_mib: u64,
        /// How many GPUs it needs.
        #[arg(long, value_name = "N", default_value_t = 1)]
        gpus: u32,
    },
    /// Run NVIDIA's own tests, which are in the driver (its module parameter `uvm_enable_builtin_tests=1`).
    ///
    /// Exits with 0 if all pass that can run.
    Builtin {
        /// Where to write the report, as JSON.
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
    },
    /// Run random scenarios one after the other, with random kills (-9) of their processes, of uvmd, which is started here, and of the
    /// runner itself. Exits with 0 only if all data was right, uvmd exact and its memory flat, and nothing was left behind.
    Soak {
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// Let uvmd act meanwhile, on processes that give it much to do, until there were so many kills of them and of it.
        #[arg(long, value_name = "KILLS", conflicts_with = "minutes")]
        act: Option<u64>,
        /// The first scenario's.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where to write the report, as JSON.
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
        /// Words for uvmd's command line.
        #[arg(last = true)]
        uvmd: Vec<String>,
    },
    /// Print what a guest's console complains of, once the guest has ended. Exits with 0 if that is nothing.
    Complaints {
        /// What the guest said on its console.
        console: PathBuf,
        /// The report, if it was a soak: the driver may then have lost what it always loses when a process is killed at a bad moment
        /// (docs/lab.md).
        #[arg(long, value_name = "REPORT")]
        soak: Option<PathBuf>,
    },
    /// Run scenarios under the driver alone and under policies of uvmd's, and compare.
    #[command(subcommand)]
    Compare(compare::command::Command),
    /// Run scenarios in the simulator, which needs no GPU and no driver, and say how far it is from their reports.
    Simulate(simulate::Options),
    #[command(flatten)]
    Verdicts(verdicts::command::Command),
    /// One process of a scenario; started by the others.
    #[command(name = member::WORKER, hide = true)]
    Worker,
}

/// What `check` prints for scripts.
#[derive(Clone, Copy, ValueEnum)]
enum Print {
    /// The memory of the GPU that the scenario is meant for.
    GpuMemMib,
    /// The memory of the machine that can run it on such GPUs: theirs, each allocation and its shadow, and the system's own.
    MachineMemMib,
    /// How many GPUs it needs.
    Gpus,
    /// Whether they are connected by `NVLink`: yes or no.
    Nvlink,
    /// The parameters that nvidia-uvm is to be loaded with, as words of a command line.
    DriverParameters,
    /// What keeps it from being run in the simulator; nothing if it can be.
    NotSimulated,
}

/// For the kernel, the initrd in memory, uvmd and the runner.
const SYSTEM_MEM_MIB: u64 = 1536;
/// What comes after these rarely says more.
const COMPLAINTS_SHOWN: usize = 20;

fn main() -> ExitCode {
    // `Ok(code)`: the task came to its end, with this verdict.
    let result = match Options::parse().command {
        Task::Check { file, print } => check(&file, print),
        Task::Run {
            file,
            report,
            uvmd,
            no_uvmd,
            timeout,
            once,
            seed,
            access_rate_factor,
            among_others,
            access_log,
        } => {
            let client = (!no_uvmd).then(|| uvmd::Client::new(&uvmd));
            let options = run::Options {
                timeout: Duration::from_secs(timeout),
                without_counters: !once,
                among_others,
                access_log,
            };
            let variation = Variation { seed, access_rate_factor };
            run(&file, variation, report.as_deref(), client.as_ref(), &options)
        }
        Task::Loop { file } => load(&file).and_then(|scenario| repeat::repeat(&scenario)).map(|()| ExitCode::SUCCESS),
        Task::Churn(options) => churn::churn(options).map(|()| ExitCode::SUCCESS),
        Task::Attack { attack, with_parent } => begin(attack, with_parent).map(|()| ExitCode::SUCCESS),
        Task::Generate { seed, gpu_mem_mib, gpus } => {
            print!("{}", generate::scenario(seed, generate::Machine { gpu_mem_mib, gpus }));
            Ok(ExitCode::SUCCESS)
        }
        Task::Builtin { report } => run_builtin(report.as_deref()),
        Task::Soak { act: Some(kills), seed, report, uvmd, .. } => {
            soak_of_acting(&soak::act::Options { kills, seed, uvmd }, report.as_deref())
        }
        Task::Soak { minutes, seed, report, uvmd, .. } => {
            soak(&soak::Options { duration: Duration::from_mins(minutes), seed, uvmd }, report.as_deref())
        }
        Task::Complaints { console, soak } => complaints(&console::Options { console, soak }),
        Task::Compare(command) => command.run(),
        Task::Simulate(options) => simulate::simulate(&options),
        Task::Verdicts(command) => command.run(),
        // Its failure is the runner's to tell.
        Task::Worker => return if worker::main().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE },
    };
    result.unwrap_or_else(|error| {
        eprintln!("lab-runner: {error:#}");
        ExitCode::FAILURE
    })
}

fn begin(attack: attack::Attack, with_parent: bool) -> anyhow::Result<()> {
    if with_parent {
        sys::process::die_with_parent()?;
    }
    attack::attack(attack)
}

fn load(file: &Path) -> anyhow::Result<Scenario> {
    Ok(scenario::load(file)?)
}

fn check(file: &Path, print: Option<Print>) -> anyhow::Result<ExitCode> {
    let scenario = load(file)?;
    let Scenario { name, gpu_mem_mib, gpu_count, nvlink, driver_parameters, processes, .. } = &scenario;
    match print {
        Some(Print::GpuMemMib) => println!("{gpu_mem_mib}"),
        Some(Print::MachineMemMib) => {
            let gpus_mib = gpu_mem_mib * u64::from(*gpu_count);
            println!("{}", SYSTEM_MEM_MIB + gpus_mib + 2 * scenario.managed_bytes().div_ceil(1 << 20));
        }
        Some(Print::Gpus) => println!("{gpu_count}"),
        Some(Print::Nvlink) => println!("{}", if *nvlink { "yes" } else { "no" }),
        Some(Print::DriverParameters) => {
            let words: Vec<String> = driver_parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
            println!("{}", words.join(" "));
        }
        Some(Print::NotSimulated) => println!("{}", simulate::not_simulated(&scenario).unwrap_or_default()),
        None => {
            let (count, managed) = (processes.len(), human(scenario.managed_bytes()));
            println!("{name}: processes: {count}, managed: {managed}, GPU memory: {gpu_mem_mib} MiB");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run(
    file: &Path,
    variation: Variation,
    report_file: Option<&Path>,
    uvmd: Option<&uvmd::Client>,
    options: &run::Options,
) -> anyhow::Result<ExitCode> {
    let report = run::run(&scenario::load_varied(file, variation)?, uvmd, options)?;
    eprint!("{report}");
    write_report(&report, report_file)?;
    Ok(ExitCode::from(report.verdict.exit_code()))
}

fn run_builtin(report_file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let report = builtin::run()?;
    eprint!("{report}");
    write_report(&report, report_file)?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn soak(options: &soak::Options, report_file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let summary = soak::soak(options)?;
    eprint!("{summary}");
    write_report(&summary, report_file)?;
    Ok(if summary.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn soak_of_acting(options: &soak::act::Options, report_file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let summary = soak::act::soak(options)?;
    eprint!("{summary}");
    write_report(&summary, report_file)?;
    Ok(if summary.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn complaints(options: &console::Options) -> anyhow::Result<ExitCode> {
    let Judgement { complaints, excused_leak_bytes } = console::complaints(options)?;
    for complaint in complaints.iter().take(COMPLAINTS_SHOWN) {
        eprintln!("{complaint}");
    }
    if let Some(more) = complaints.len().checked_sub(COMPLAINTS_SHOWN).filter(|more| *more > 0) {
        eprintln!("and {more} more");
    }
    if excused_leak_bytes > 0 {
        let bytes = digits::digits(excused_leak_bytes);
        eprintln!(
            "the driver lost {bytes} bytes to processes killed while they registered a GPU, as it does (docs/lab.md)"
        );
    }
    Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_report(report: &impl Serialize, file: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = file else { return Ok(()) };
    let json = serde_json::to_string_pretty(report)? + "\n";
    fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))
}

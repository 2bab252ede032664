//! Runner of the lab: runs scenarios on the lab's GPU and compares uvmd with the truth.
//!
//! Runs as root beside nvidia-uvm and the software GPU; only `check` runs anywhere. Shares no code
//! with uvmd, so that the truth comes from independent sources (docs/truth.md). Links the simulator
//! only to compare it with runs.
//!
//! * [`scenario`]: language of scenarios (docs/scenarios.md)
//! * [`worker`], [`protocol`], [`team`], [`member`], [`shared`], [`started`], [`cgroup`]: processes
//!   of a scenario, and their protocol
//! * [`work`], [`check`](mod@check), [`residency`]: machine of the steps, expected contents of
//!   memory, and residency
//! * [`truth`], [`uvmd`], [`figures`], [`matrix`], [`report`] and [`digits`](mod@digits): both
//!   sides, and their comparison; [`both`]: a second uvmd; [`access_log`]: log of the GPUs' accesses
//! * [`run`](mod@run), [`repeat`], [`generate`], [`soak`](mod@soak), [`verdicts`], [`compare`],
//!   [`simulate`]: commands ([`dice`] and [`mix`](mod@mix): random numbers; [`service`]: uvmd as a
//!   service that is killed and restarted)
//! * [`churn`](mod@churn): test process that maps and unmaps memory; [`attack`](mod@attack):
//!   hostile process
//! * [`builtin`]: NVIDIA's own tests of the driver
//! * [`console`]: complaints on the console of a guest that has exited
//! * [`sys`]: system calls and ioctls of the driver; all unsafe code

mod access_log;
mod attack;
mod both;
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
mod mirror;
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
use gpu::swgpu::Gpu;
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
    /// Check a scenario file without running it.
    Check {
        /// The scenario.
        file: PathBuf,
        /// Print only this value, for scripts.
        #[arg(long, value_name = "WHAT")]
        print: Option<Print>,
    },
    /// Run a scenario once, verify its data, and compare uvmd with the truth.
    ///
    /// Exits with 0 if the data is right, the run valid and uvmd exact; with 3 if the only failure
    /// is that uvmd did not answer; else with 1.
    Run {
        /// The scenario.
        file: PathBuf,
        /// File for the report, as JSON.
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
        /// Address of uvmd.
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9477")]
        uvmd: String,
        /// Do not query uvmd: verify the data and report the truth only.
        #[arg(long, conflicts_with = "uvmd")]
        no_uvmd: bool,
        /// Address of a second uvmd, which counts by the driver's tools: compared with the truth and with
        /// the first.
        #[arg(long, value_name = "URL", conflicts_with = "no_uvmd")]
        tools: Option<String>,
        /// Time limit of a pass, in seconds.
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        timeout: u64,
        /// Skip the second pass, without the driver's counters.
        #[arg(long)]
        once: bool,
        /// Seed of the variation of this run; 0 runs the scenario unchanged.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Factor of all access rates.
        #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
        access_rate_factor: f64,
        /// Compare only the scenario's processes, and no sums: processes of others are at work.
        #[arg(long)]
        among_others: bool,
        /// File for the access log, as CSV: accesses, copies and mappings of the GPUs.
        #[arg(long, value_name = "FILE")]
        access_log: Option<PathBuf>,
    },
    /// Repeat a scenario until SIGINT or SIGTERM, with a line of progress per round; then verify
    /// its data.
    Loop {
        /// The scenario.
        file: PathBuf,
    },
    /// Map and unmap managed memory repeatedly beside memory that stays mapped, and log the times
    /// of the calls.
    Churn(churn::Options),
    /// Check the software GPU's mirror: loads and stores of a process that are accesses of a GPU.
    Mirror(mirror::Options),
    /// Attack monitors of the driver, as a user without privileges, until killed.
    Attack {
        /// Resource to exhaust.
        attack: attack::Attack,
        /// User id of the attack.
        #[arg(long, default_value_t = attack::NOBODY)]
        uid: u32,
        /// Exit when the parent process exits.
        #[arg(long)]
        with_parent: bool,
    },
    /// Print the bytes of free memory of all GPUs.
    FreeMemory,
    /// Print a random scenario that uses the whole language; the same seed gives the same scenario.
    Generate {
        /// Seed of the scenario.
        #[arg(long)]
        seed: u64,
        /// Memory of each GPU, in MiB.
        #[arg(long, value_name = "N", default_value_t = 64)]
        gpu_mem_mib: u64,
        /// Number of GPUs.
        #[arg(long, value_name = "N", default_value_t = 1)]
        gpus: u32,
    },
    /// Run NVIDIA's own tests, which are part of the driver (its module parameter
    /// `uvm_enable_builtin_tests=1`).
    ///
    /// Exits with 0 if all tests pass that can run.
    Builtin {
        /// File for the report, as JSON.
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
    },
    /// Run random scenarios one after the other, with random kills (-9) of their processes, of
    /// uvmd, which is started by this command, and of the runner itself. Exits with 0 only if all
    /// data was right, uvmd exact and its memory flat, and nothing was left behind.
    Soak {
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// Let uvmd act, on processes that need many actions, until there were this many kills of
        /// them and of uvmd.
        #[arg(long, value_name = "KILLS", conflicts_with = "minutes")]
        act: Option<u64>,
        /// Seed of the first scenario.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// File for the report, as JSON.
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
        /// Options of uvmd's command line.
        #[arg(last = true)]
        uvmd: Vec<String>,
    },
    /// Print the complaints on a guest's console after the guest has exited. Exits with 0 if there
    /// are none.
    Complaints {
        /// Log of the guest's console.
        console: PathBuf,
        /// Report of the soak, if the guest ran one: a leak of the driver from processes killed
        /// during registration is then excused (docs/lab.md).
        #[arg(long, value_name = "REPORT")]
        soak: Option<PathBuf>,
    },
    /// Run scenarios under the driver alone and under policies of uvmd, and compare.
    #[command(subcommand)]
    Compare(compare::command::Command),
    /// Run scenarios in the simulator, without GPU and driver, and report its deviation from their
    /// reports.
    Simulate(simulate::Options),
    #[command(flatten)]
    Verdicts(verdicts::command::Command),
    /// One process of a scenario; started by the other commands.
    #[command(name = member::WORKER, hide = true)]
    Worker,
}

/// Value that `check` prints for scripts.
#[derive(Clone, Copy, ValueEnum)]
enum Print {
    /// Memory of the GPU that the scenario is made for.
    GpuMemMib,
    /// Memory of the machine that runs it on such GPUs: the GPUs', each allocation and its shadow,
    /// and the system's.
    MachineMemMib,
    /// Number of GPUs that it needs.
    Gpus,
    /// Whether they are connected by `NVLink`: yes or no.
    Nvlink,
    /// Parameters of nvidia-uvm for this scenario, as words of a command line.
    DriverParameters,
    /// Reason why the simulator cannot run it; empty if it can.
    NotSimulated,
}

/// Memory of the kernel, the initrd, uvmd and the runner.
const SYSTEM_MEM_MIB: u64 = 1536;
/// Maximum of complaints shown; later ones rarely add anything.
const COMPLAINTS_SHOWN: usize = 20;

fn main() -> ExitCode {
    // `Ok(code)`: the task completed, with this verdict.
    let result = match Options::parse().command {
        Task::Check { file, print } => check(&file, print),
        Task::Run {
            file,
            report,
            uvmd,
            no_uvmd,
            tools,
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
                second: tools.as_deref().map(uvmd::Client::new),
                access_log,
            };
            let variation = Variation { seed, access_rate_factor };
            run(&file, variation, report.as_deref(), client.as_ref(), &options)
        }
        Task::Loop { file } => load(&file).and_then(|scenario| repeat::repeat(&scenario)).map(|()| ExitCode::SUCCESS),
        Task::Churn(options) => churn::churn(options).map(|()| ExitCode::SUCCESS),
        Task::Mirror(options) => mirror::mirror(&options).map(|()| ExitCode::SUCCESS),
        Task::Attack { attack, uid, with_parent } => begin(attack, uid, with_parent).map(|()| ExitCode::SUCCESS),
        Task::FreeMemory => free_memory().map(|()| ExitCode::SUCCESS),
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
        // The runner reports the worker's failure.
        Task::Worker => return if worker::main().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE },
    };
    result.unwrap_or_else(|error| {
        eprintln!("lab-runner: {error:#}");
        ExitCode::FAILURE
    })
}

fn begin(attack: attack::Attack, uid: u32, with_parent: bool) -> anyhow::Result<()> {
    if with_parent {
        sys::process::die_with_parent()?;
    }
    attack::attack(attack, uid)
}

fn free_memory() -> anyhow::Result<()> {
    let gpus = (0..Gpu::open(0)?.count).map(|number| Ok(Gpu::open(number)?.counters()?.free_bytes));
    println!("{}", gpus.sum::<anyhow::Result<u64>>()?);
    Ok(())
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

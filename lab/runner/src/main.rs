//! Runs a scenario on the lab's GPU and compares uvmd with the truth. Runs as root beside nvidia-uvm and the software GPU; only `check`
//! runs anywhere. Shares no code with uvmd: what it compares with is found another way (docs/truth.md).
//!
//! * [`scenario`]: the language (docs/scenarios.md)
//! * [`worker`], [`protocol`], [`team`]: the scenario's processes, and the talk with them
//! * [`check`]: what memory must hold
//! * [`truth`], [`uvmd`], [`figures`], [`report`]: the two sides, and their comparison
//! * [`run`](mod@run), [`repeat`]: the commands
//! * [`sys`]: the driver; all unsafe code

mod check;
mod figures;
mod protocol;
mod repeat;
mod report;
mod run;
mod scenario;
mod sys;
mod team;
mod truth;
mod uvmd;
mod worker;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};

use crate::scenario::{Scenario, size::human};

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
    },
    /// Repeat a scenario until SIGINT or SIGTERM, a line of progress a round; then verify its data.
    Loop {
        /// The scenario.
        file: PathBuf,
    },
    /// One process of a scenario; started by the others.
    #[command(name = team::WORKER, hide = true)]
    Worker,
}

/// What `check` prints for scripts.
#[derive(Clone, Copy, ValueEnum)]
enum Print {
    /// The memory of the GPU that the scenario is meant for.
    GpuMemMib,
    /// The memory of the machine that can run it on that GPU: the GPU's, each allocation and its shadow, and the system's own.
    MachineMemMib,
}

/// For the kernel, the initrd in memory, uvmd and the runner.
const SYSTEM_MEM_MIB: u64 = 1536;

fn main() -> ExitCode {
    // `Ok(code)`: the task came to its end, with this verdict.
    let result = match Options::parse().command {
        Task::Check { file, print } => check(&file, print),
        Task::Run { file, report, uvmd, no_uvmd, timeout } => {
            let client = (!no_uvmd).then(|| uvmd::Client::new(&uvmd));
            run(&file, report.as_deref(), client.as_ref(), Duration::from_secs(timeout))
        }
        Task::Loop { file } => load(&file).and_then(|scenario| repeat::repeat(&scenario)).map(|()| ExitCode::SUCCESS),
        // Its failure is the runner's to tell.
        Task::Worker => return if worker::main().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE },
    };
    result.unwrap_or_else(|error| {
        eprintln!("lab-runner: {error:#}");
        ExitCode::FAILURE
    })
}

fn load(file: &Path) -> anyhow::Result<Scenario> {
    Ok(scenario::load(file)?)
}

fn check(file: &Path, print: Option<Print>) -> anyhow::Result<ExitCode> {
    let scenario = load(file)?;
    let Scenario { name, description: _, gpu_mem_mib, processes } = &scenario;
    match print {
        Some(Print::GpuMemMib) => println!("{gpu_mem_mib}"),
        Some(Print::MachineMemMib) => {
            println!("{}", SYSTEM_MEM_MIB + gpu_mem_mib + 2 * scenario.managed_bytes().div_ceil(1 << 20));
        }
        None => {
            let (count, managed) = (processes.len(), human(scenario.managed_bytes()));
            println!("{name}: processes: {count}, managed: {managed}, GPU memory: {gpu_mem_mib} MiB");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run(
    file: &Path,
    report_file: Option<&Path>,
    uvmd: Option<&uvmd::Client>,
    timeout: Duration,
) -> anyhow::Result<ExitCode> {
    let report = run::run(&load(file)?, uvmd, timeout)?;
    eprint!("{report}");
    if let Some(path) = report_file {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::from(report.verdict.exit_code()))
}

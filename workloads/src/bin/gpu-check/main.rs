//! Checks uvmd on a real GPU with programs whose faults and copies are known: its counts and the
//! driver's, actions on a process from outside, and the cost of observation. It reports what this
//! machine does not permit, and performs the other checks.
//!
//! * [`steps`]: the checks
//! * [`facts`]: facts about the machine
//! * [`migration`], [`remote`]: another process's memory, accessed through `pidfd_getfd`
//! * [`counting`], [`daemon`], [`source`]: figures, phase by phase, of the driver and of uvmd
//! * [`recording`]: records of the driver, and their rate
//! * [`mod@timing`]: ratios of times
//! * [`process`], [`program`]: counts of other programs
//! * [`results`], [`markdown`]: reports
//! * [`stepped`], [`deadline`]: started programs
//!
//! It contains no CUDA: each workload is a separate `uvm-workload` process.
#![forbid(unsafe_code)]

mod counting;
mod daemon;
mod deadline;
mod facts;
mod markdown;
mod migration;
mod process;
mod program;
mod recording;
mod remote;
mod results;
mod source;
mod stepped;
mod steps;
#[cfg(test)]
mod testing;
mod timing;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};

use crate::{
    deadline::Deadline,
    results::{Results, Verdict},
    steps::Plan,
};

/// Checks uvmd on this machine's GPU, in under 10 minutes, with no more memory than uvm-workload's
/// guard allows.
///
/// Exits with 0 if all that could be checked was right, 1 if something differed or failed, 2 for a
/// wrong command line, 3 without a GPU.
#[derive(Parser)]
#[command(name = "gpu-check", version, args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    task: Option<Task>,
    /// Folder for report.md, report.json and logs of uvmd
    #[arg(long, value_name = "DIR", default_value = "gpu-check-report", overrides_with = "out")]
    out: PathBuf,
    /// Folder of uvm-workload, uvmd and uvmctl [default: that of this program]
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// CUDA's number of the GPU
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    gpu: i32,
    /// Memory for the times, in MiB; less if the guard allows less
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(16..=4096))]
    mib: u64,
    /// Rounds of the times
    #[arg(long, default_value_t = timing::ROUNDS, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Rehearsal: one round of the times, and no counts at level moves of the tools
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Time limit in seconds; a longer one gives each step as much more
    #[arg(long, default_value_t = deadline::USUAL_S, value_parser = clap::value_parser!(u64).range(1..=3600))]
    deadline: u64,
}

#[derive(Subcommand)]
enum Task {
    /// Attach the driver's counters to a running process, and optionally migrate its managed memory
    Process(process::Options),
    /// Run a program, and compare uvmd's counts of it with those of the driver's counters
    Program(program::Options),
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match &options.task {
        Some(Task::Process(process)) => process::run(process).map(|()| 0),
        Some(Task::Program(program)) => program::run(program).map(|()| 0),
        None => check(&options),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("gpu-check: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn check(options: &Options) -> anyhow::Result<u8> {
    let Options { task: _, out, bin_dir, gpu, mib, rounds, quick, deadline } = options;
    let folder = steps::folder_of_programs(bin_dir.as_deref())?;
    let workload = steps::program_in(&folder, "uvm-workload");
    let workload = workload.with_context(|| format!("there is no uvm-workload in {}", folder.display()))?;
    ensure!(mib.is_power_of_two(), "--mib needs a power of two, not {mib}");
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let plan = Plan {
        workload,
        uvmd: steps::program_in(&folder, "uvmd"),
        uvmctl: steps::program_in(&folder, "uvmctl"),
        out: out.clone(),
        gpu: *gpu,
        timed_mib: *mib,
        rounds: if *quick { 1 } else { *rounds },
        is_quick: *quick,
        deadline: Deadline::after(Duration::from_secs(*deadline)),
    };
    let mut results = Results {
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        command: env::args().collect::<Vec<_>>().join(" "),
        version: env!("CARGO_PKG_VERSION"),
        elapsed_s: 0.0,
        driver: None,
        gpu: None,
        checks: Vec::new(),
        counts: Vec::new(),
        records: Vec::new(),
        timed_bytes: 0,
        times: Vec::new(),
        facts: Vec::new(),
    };
    deadline::register_signals().context("cannot handle signals")?;
    plan.execute(&mut results);
    if deadline::is_interrupted() {
        results.add("complete run", Verdict::Differs, "ended by a signal before its completion");
    }
    write(&out.join("report.json"), &(serde_json::to_string_pretty(&results)? + "\n"))?;
    write(&out.join("report.md"), &markdown::page(&results)?)?;
    print!("{}", markdown::summary(&results)?);
    println!("The full report is in {} (report.md, report.json).", out.display());
    Ok(results.exit_code())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Options::command().debug_assert();
    }
}

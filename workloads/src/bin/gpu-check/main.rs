//! Checks uvmd on a real GPU: what it and the driver count for programs whose faults and copies are known beforehand, what can be done to a process
//! from outside, and what observing costs. Says what this machine does not allow, and does the rest.
//!
//! * [`steps`]: the checks
//! * [`facts`]: what the machine is
//! * [`moving`], [`outside`]: another process's memory, reached through `pidfd_getfd`
//! * [`counting`], [`daemon`]: figures, phase by phase
//! * [`mod@timing`]: ratios of times
//! * [`results`], [`markdown`]: what is told
//! * [`held`], [`deadline`]: programs that are run
//!
//! No CUDA here: the programs are `uvm-workload`, each a process of its own.
#![forbid(unsafe_code)]

mod counting;
mod daemon;
mod deadline;
mod facts;
mod held;
mod markdown;
mod moving;
mod outside;
mod process;
mod results;
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

/// Checks uvmd on this machine's GPU, in under 8 minutes; never asks for more memory than uvm-workload's guard allows.
///
/// Exits with 0 if all that could be checked was right, 1 if something differed or failed, 2 for a wrong command line, 3 if there is no GPU.
#[derive(Parser)]
#[command(name = "gpu-check", version, args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    task: Option<Task>,
    /// Where report.md, report.json and uvmd.log go
    #[arg(long, value_name = "DIR", default_value = "gpu-check-report", overrides_with = "out")]
    out: PathBuf,
    /// Where uvm-workload, uvmd and uvmctl are [default: beside this program]
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// CUDA's number of the GPU
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    gpu: i32,
    /// Memory for the times; less if the guard allows less
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(16..=4096))]
    mib: u64,
    /// When to be done, in seconds
    #[arg(long, default_value_t = 450, value_parser = clap::value_parser!(u64).range(1..=3600))]
    deadline: u64,
}

#[derive(Subcommand)]
enum Task {
    /// Attach the driver's counters to a running process, and move its managed memory if asked to
    Process(process::Options),
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match &options.task {
        Some(Task::Process(process)) => process::run(process).map(|()| 0),
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
    let Options { task: _, out, bin_dir, gpu, mib, deadline } = options;
    let own = env::current_exe().context("where this program is, is not known")?;
    let folder = bin_dir.as_deref().or(own.parent()).unwrap_or(Path::new("."));
    let workload = steps::beside(folder, "uvm-workload");
    let workload = workload.with_context(|| format!("there is no uvm-workload in {}", folder.display()))?;
    ensure!(mib.is_power_of_two(), "--mib needs a power of two, not {mib}");
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let plan = Plan {
        workload,
        uvmd: steps::beside(folder, "uvmd"),
        uvmctl: steps::beside(folder, "uvmctl"),
        out: out.clone(),
        gpu: *gpu,
        timed_mib: *mib,
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
        timed_bytes: 0,
        times: Vec::new(),
        facts: Vec::new(),
    };
    deadline::heed_signals().context("cannot handle signals")?;
    plan.carry_out(&mut results);
    if deadline::is_asked_to_end() {
        results.add("all of it", Verdict::Differs, "ended by a signal before it was done");
    }
    write(&out.join("report.json"), &(serde_json::to_string_pretty(&results)? + "\n"))?;
    write(&out.join("report.md"), &markdown::page(&results)?)?;
    print!("{}", markdown::summary(&results)?);
    println!("The whole report is in {} (report.md, report.json).", out.display());
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

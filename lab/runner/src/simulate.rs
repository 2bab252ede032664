//! `lab-runner simulate`: scenarios in the simulator (the crate `sim`), and its deviation from the
//! real driver in the lab.
//!
//! * [`machine`]: the simulator as the machine that executes steps
//! * [`compare`]: figures of the simulator and of reports; [`table`]: output for readers

mod compare;
mod machine;
mod table;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::AtomicBool,
};

use anyhow::{Context, ensure};
use sim::pages::Counts;

use self::{
    compare::{Compared, Lab, Report},
    machine::Simulated,
    table::Table,
};
use crate::{
    scenario::{
        Process, Scenario, load,
        size::MIB,
        steps::{Flow, Step, access::Kind, run_list},
    },
    sys::tally::Tally,
    work::{Memory, Work},
    write_report,
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Scenario files.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Folders of reports, one for each series of runs. A report has the name of its
    /// scenario's file with `.json`. Without reports, only the simulator's figures are printed.
    #[arg(long, value_name = "FOLDER", num_args = 1..)]
    reports: Vec<PathBuf>,
    /// Omit scenarios that cannot be simulated.
    #[arg(long)]
    possible: bool,
    /// File for the figures, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Simulate and compare scenarios; exits with 0 if every figure is within its limit.
pub(crate) fn simulate(options: &Options) -> anyhow::Result<ExitCode> {
    let mut scenarios = Vec::new();
    for file in &options.files {
        let scenario = load(file)?;
        match not_simulated(&scenario) {
            Some(reason) if options.possible => eprintln!("omitted: {}, which has {reason}", scenario.name),
            _ => scenarios.push(compare_scenario(file, &scenario, &options.reports)?),
        }
    }
    let table = Table { scenarios };
    print!("{table}");
    write_report(&table, options.json.as_deref())?;
    Ok(if table.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Feature of the scenario that the simulator does not model, or that makes its runs differ.
pub(crate) fn not_simulated(scenario: &Scenario) -> Option<&'static str> {
    let [process] = scenario.processes.as_slice() else { return Some("several processes") };
    let Process { allocations, kill_after, memory_limit_bytes, steps, .. } = process;
    let unaligned = allocations.iter().any(|allocation| allocation.bytes % sim::units::GRANULE_BYTES != 0);
    match () {
        () if scenario.gpu_count != 1 => Some("several GPUs"),
        () if !scenario.driver_parameters.keys().all(|name| machine::is_modelled(name)) => {
            Some("other parameters of the driver")
        }
        () if !scenario.driver_parameters.is_empty() && has_atomics(steps) => Some("atomics on what may thrash"),
        () if kill_after.is_some() => Some("a process that ends"),
        () if memory_limit_bytes.is_some() => Some("a limit of host memory"),
        () if unaligned => Some("memory that ends within 64 KiB"),
        () => steps.iter().find_map(|step| step.not_simulated()),
    }
}

/// Whether steps use atomics. On pinned memory, atomics revoke permissions of other processors,
/// which the simulator does not model.
fn has_atomics(steps: &[Box<dyn Step>]) -> bool {
    steps.iter().flat_map(|step| step.uses()).any(|used| used.kind == Kind::Atomic)
}

fn compare_scenario(file: &Path, scenario: &Scenario, folders: &[PathBuf]) -> anyhow::Result<Compared> {
    let reports = folders.iter().map(|folder| {
        let path = folder.join(file.file_name().unwrap_or_default()).with_extension("json");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{}: not the report of a run", path.display()))
    });
    let reports: Vec<Report> = reports.collect::<anyhow::Result<_>>()?;
    let lab = Lab::of(&reports)?;
    let gpu_mem_mib = lab.gpu_mem_mib.unwrap_or(scenario.gpu_mem_mib);
    Ok(Compared::new(&scenario.name, gpu_mem_mib, &lab, &counts(scenario, gpu_mem_mib * MIB)?))
}

/// Counts of the scenario in the simulator.
fn counts(scenario: &Scenario, card_bytes: u64) -> anyhow::Result<Counts> {
    let reason = not_simulated(scenario);
    ensure!(reason.is_none(), "{} cannot be simulated: it has {}", scenario.name, reason.unwrap_or_default());
    let process = scenario.processes.first().context("no process")?;
    let driver = machine::driver(&scenario.driver_parameters)?;
    let machine = Simulated::new(process, &driver, card_bytes)?;
    let (tally, stop) = (Tally::default(), AtomicBool::new(false));
    let memory = Memory::new(process, 1, &tally, &stop)?;
    let flow = run_list(&process.steps, &Work::new(&machine, &memory))?;
    ensure!(flow == Flow::Done, "{} did not complete in the simulator", scenario.name);
    ensure!(memory.first_mismatch().is_none(), "the simulator lost data: {:?}", memory.first_mismatch());
    Ok(machine.counts())
}

#[cfg(test)]
mod tests;

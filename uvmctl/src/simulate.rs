//! `uvmctl sim`: simulated cost of an iteration on managed memory. Needs no daemon.
//!
//! * `manager`: memory managers by name
//! * `progress`: progress of a run on standard error
//! * `picture`: page with charts of memory and transfers over time

mod manager;
mod picture;
mod progress;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueEnum};
use manager::{Manager, Plan};
use model::text::parse_bytes;
use planner::pump;
use progress::Progress;
use serde::Serialize;
use sim::{Freed, History, Outcome, Setup};
use trace::{Iteration, IterationWindow, circle::Window, from_ops::LaunchWindow};

use crate::{
    cpu, machine,
    output::table::{Column, Concession, Table},
    report,
    source::{Extraction, LoadedIteration, Source},
    terminal::{self, Colour, Style},
    text,
};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    extraction: Extraction,

    /// Machine: gtx1080ti, a100, rtx5090, h100, h200 or gh200; or a file that describes one, whose
    /// path ends in .toml
    #[arg(long, value_name = "NAME")]
    machine: String,

    /// GPU memory that the program may have, as in 40GiB [default: all of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    gpu_mem: Option<u64>,

    /// Host memory that the program may have; the rest goes to flash
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    host_mem: Option<u64>,

    /// Memory managers, in the order of the output: ideal is unlimited memory, driver its faults,
    /// prefetcher and order of eviction; the others are planners, vdnn is vdnn-dyn, and auto-plan
    /// the best of those that it tries
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "ideal,driver", value_parser = manager::parser())]
    policy: Vec<Manager>,

    /// Lead of a kernel's launch before its earliest start, for pump
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "10ms")]
    launch_lead: Duration,

    /// Compression ratio on the link, of an engine such as cDMA's; docs/policies/cdma.md has ratios
    /// of real data. Bytes are shown uncompressed
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    packing: Option<f64>,

    /// Memory of dead tensors
    #[arg(long, value_enum, default_value = "cached")]
    freed: FreedMemory,

    /// Write the figures as JSON to this file, too; - prints them instead of the table
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write a page with charts of memory and transfers over time to this file, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FreedMemory {
    /// Stays in the framework's cache with its contents, which the driver moves
    Cached,
    /// Returns to the driver
    Released,
}

/// JSON report.
#[derive(Serialize)]
struct Report {
    trace: String,
    /// Allocations or launches of the iteration within a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<IterationWindow>,
    machine: String,
    gpu_bytes: u64,
    host_bytes: u64,
    /// Lower bound of the iteration's time for any schedule.
    bound_s: f64,
    /// Lower bounds of the bytes that any schedule copies to the GPU, and from it.
    bound_bytes_htod: u64,
    bound_bytes_dtoh: u64,
    launch_lead_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    packing: Option<f64>,
    /// Always true: all figures are modelled.
    modelled: bool,
    policies: Vec<Figures>,
    failed: Vec<Failure>,
}

#[derive(Serialize)]
struct Figures {
    policy: String,
    #[serde(flatten)]
    outcome: Outcome,
    /// CPU time of the planning thread.
    plan_cpu_s: f64,
    /// Planner that auto-plan selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(skip)]
    history: History,
}

/// Policy that cannot run with this setup.
#[derive(Serialize)]
struct Failure {
    policy: String,
    why: String,
}

impl Report {
    /// Conditions of the figures besides the machine.
    fn conditions(&self) -> Vec<String> {
        let compression = self.packing.map(|ratio| format!("compression ratio on the link: {ratio}"));
        let follows_launches =
            |figures: &&Figures| figures.by.as_ref().unwrap_or(&figures.policy).starts_with(pump::NAME);
        let lead =
            self.policies.iter().find(follows_launches).map(|figures| {
                format!("{}: launches lead by {}", figures.policy, text::nanoseconds(self.launch_lead_ns))
            });
        compression.into_iter().chain(lead).collect()
    }
}

const CONCESSIONS: [Concession; 5] = [
    Concession::Drop("PLAN TIME"),
    Concession::Drop("BATCHES"),
    Concession::Drop("FLASH WRITTEN"),
    Concession::Drop("FLASH READ"),
    Concession::Drop("STALL"),
];

/// Simulates each policy. Fails if none can run.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let machine = machine::load(&options.machine)?;
    let machine = options.packing.map_or(machine.clone(), |ratio| machine.packing(ratio));
    let loaded = options.source.iteration(&options.extraction, &options.machine)?;
    let LoadedIteration { iteration, before, window, .. } = loaded;
    let defaults = Setup::new(&machine);
    let setup = Setup {
        gpu_bytes: options.gpu_mem.unwrap_or(defaults.gpu_bytes),
        host_bytes: options.host_mem.unwrap_or(defaults.host_bytes),
        freed: match options.freed {
            FreedMemory::Cached => Freed::Cached,
            FreedMemory::Released => Freed::Released,
        },
        launch_lead_ns: u64::try_from(options.launch_lead.as_nanos()).unwrap_or(u64::MAX),
        ..defaults
    };
    let setup = if iteration.locations().is_some() { setup.after(&before) } else { setup };
    let (mut policies, mut failed) = (Vec::new(), Vec::new());
    for manager in &options.policy {
        match figures(manager, &iteration, &setup)? {
            Ok(figures) => policies.push(figures),
            Err(failure) => failed.push(failure),
        }
    }
    let bound_bytes = sim::bound_bytes(&iteration, &setup);
    let report = Report {
        trace: if iteration.name().is_empty() { options.source.name() } else { iteration.name().to_owned() },
        window,
        machine: options.machine.clone(),
        gpu_bytes: setup.gpu_bytes,
        host_bytes: setup.host_bytes,
        bound_s: sim::bound_s(&iteration, &setup),
        bound_bytes_htod: bound_bytes.to_gpu,
        bound_bytes_dtoh: bound_bytes.from_gpu,
        launch_lead_ns: setup.launch_lead_ns,
        packing: options.packing,
        modelled: true,
        policies,
        failed,
    };
    if let Some(path) = &options.html {
        report::replace(path, |file| file.write_all(picture::page(&report).as_bytes()))?;
    }
    let code = ExitCode::from(if report.policies.is_empty() { crate::FAILED } else { 0 });
    if let Some(path) = &options.json
        && report::write(&report, path)?
    {
        return Ok(code);
    }
    io::stdout().write_all(table(&report).fit(terminal::width(), &CONCESSIONS).render(Colour::detect()).as_bytes())?;
    terminal::note(&format!(
        "bound: with that memory and that link no schedule takes less than {}, or copies less than {} to the GPU and {} from it",
        seconds(report.bound_s),
        text::bytes(report.bound_bytes_htod),
        text::bytes(report.bound_bytes_dtoh)
    ));
    report.conditions().iter().for_each(|condition| terminal::note(condition));
    match report.window {
        Some(IterationWindow::Mallocs(Window { first_malloc, mallocs })) => {
            terminal::note(&format!("of the run: {mallocs} mallocs from number {first_malloc} on"));
        }
        Some(IterationWindow::Launches(LaunchWindow { first_launch, launches })) => {
            terminal::note(&format!("of the run: {launches} launches from number {first_launch} on"));
        }
        None => {}
    }
    let most_bytes = machine.memory.gpu_bytes.value;
    if setup.gpu_bytes > most_bytes {
        terminal::note(&format!("{} has {} only", machine.name, text::bytes(most_bytes)));
    }
    for (policy, by) in report.policies.iter().filter_map(|of| Some(&of.policy).zip(of.by.as_ref())) {
        terminal::note(&format!("{policy}: by {by}"));
    }
    for Failure { policy, why } in &report.failed {
        terminal::note(&format!("{policy} cannot run there: {why}"));
    }
    terminal::note(&format!(
        "modelled, not measured: {}, {} of GPU memory; docs/simulator.md lists the limitations of the model",
        machine.name,
        text::bytes(setup.gpu_bytes)
    ));
    Ok(code)
}

/// Simulates one policy. The inner error is the reason why it cannot run, which is part of the
/// report.
fn figures(manager: &Manager, iteration: &Iteration, setup: &Setup<'_>) -> anyhow::Result<Result<Figures, Failure>> {
    let progress = Progress::new(manager.name(), iteration.kernels().len() * setup.iterations as usize);
    progress.planning();
    let policy = manager.name().to_owned();
    let (planned, plan_cpu_s) = cpu::timed(|| manager.plan(iteration, setup));
    let Plan { schedule, by } = match planned? {
        Ok(plan) => plan,
        Err(unplannable) => return Ok(Err(Failure { policy, why: unplannable.to_string() })),
    };
    let mut history = History::new(iteration);
    let mut observe = |event| {
        progress.record(event);
        history.see(event);
    };
    let outcome = match &schedule {
        Some(schedule) => sim::observed(iteration, setup, schedule, &mut observe)?,
        None => sim::ideal(iteration),
    };
    Ok(Ok(Figures { policy, outcome, plan_cpu_s, by, history }))
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (1.0..=32.0).contains(ratio));
    ratio.ok_or_else(|| format!("{text:?} is no ratio from 1 to 32"))
}

fn table(report: &Report) -> Table {
    let number = |title, cell: fn(&Outcome) -> String| {
        Column::number(
            title,
            report.policies.iter().map(|figures| cell(&figures.outcome)).collect::<Vec<_>>().into_iter(),
        )
    };
    let columns = vec![
        Column::text("POLICY", report.policies.iter().map(|figures| figures.policy.clone())),
        number("TIME", |outcome| seconds(outcome.time_s)),
        number("EFFICIENCY", |outcome| text::percent(outcome.share_of_ideal)),
        number("STALL", |outcome| seconds(outcome.stall_s)),
        number("H2D", |outcome| text::bytes(outcome.bytes_htod)),
        number("D2H", |outcome| text::bytes(outcome.bytes_dtoh)),
        number("FLASH READ", |outcome| text::bytes(outcome.bytes_ssd_read)),
        number("FLASH WRITTEN", |outcome| text::bytes(outcome.bytes_ssd_written)),
        number("FAULTS", |outcome| text::count(outcome.faults)),
        number("BATCHES", |outcome| text::count(outcome.fault_batches)),
        number("PEAK", |outcome| text::bytes(outcome.peak_bytes)),
        Column::number("PLAN TIME", report.policies.iter().map(|figures| seconds(figures.plan_cpu_s))),
    ];
    Table::new(columns, vec![Style::Plain; report.policies.len()])
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
fn seconds(seconds: f64) -> String {
    text::nanoseconds((seconds * 1e9).round() as u64)
}

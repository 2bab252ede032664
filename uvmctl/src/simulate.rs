//! What an iteration would cost on managed memory: `uvmctl sim`. It asks no daemon.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use model::api::text::parse_bytes;
use serde::Serialize;
use sim::{Freed, Machine, Outcome, Setup};
use trace::{
    Iteration,
    import::{self, Trace},
    zoo::{Hardware, Recipe},
};

use crate::{
    report,
    table::{Column, Concession, Table},
    terminal::{self, Colour, Style},
    text,
};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// A trace of one iteration: JSON of uvmd's form, or X.kernels.csv of G10 with X.tensors.csv beside it
    #[arg(long, value_name = "PATH", required_unless_present = "zoo")]
    trace: Option<PathBuf>,

    /// A made iteration: bert:256, gpt:8x1024 and so on; its kernels last as long as the machine's GPU needs at best
    #[arg(long, value_name = "NAME:BATCH", conflicts_with = "trace")]
    zoo: Option<Recipe>,

    /// The machine: gtx1080ti, a100, rtx5090, h100, h200 or gh200
    #[arg(long, value_name = "NAME")]
    machine: String,

    /// GPU memory that the program may have, as in 40GiB; all of the machine's by default
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    gpu_mem: Option<u64>,

    /// Host memory that it may have; what does not fit goes to flash
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    host_mem: Option<u64>,

    /// What manages memory, in the order in which it is shown
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "ideal,driver")]
    policy: Vec<Policy>,

    /// What becomes of memory whose tensor is dead
    #[arg(long, value_enum, default_value = "cached")]
    freed: Kept,

    /// Write the figures as JSON into this file as well; - prints them instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// Memory without end
    Ideal,
    /// The driver alone: faults, its prefetcher, its order of eviction
    Driver,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kept {
    /// A framework's cache keeps it, contents and all, and the driver moves them
    Cached,
    /// It goes back to the driver
    Released,
}

/// What JSON holds.
#[derive(Serialize)]
struct Report {
    trace: String,
    machine: String,
    gpu_bytes: u64,
    host_bytes: u64,
    /// All figures are a model's.
    modelled: bool,
    policies: Vec<Figures>,
}

#[derive(Serialize)]
struct Figures {
    policy: &'static str,
    #[serde(flatten)]
    outcome: Outcome,
    /// Neither plans.
    plan_cpu_s: f64,
}

const CONCESSIONS: [Concession; 4] = [
    Concession::Drop("BATCHES"),
    Concession::Drop("FLASH WRITTEN"),
    Concession::Drop("FLASH READ"),
    Concession::Drop("STALL"),
];

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let machine = Machine::named(&options.machine)?;
    let iteration = iteration(options)?;
    let defaults = Setup::new(&machine);
    let setup = Setup {
        gpu_bytes: options.gpu_mem.unwrap_or(defaults.gpu_bytes),
        host_bytes: options.host_mem.unwrap_or(defaults.host_bytes),
        freed: match options.freed {
            Kept::Cached => Freed::Cached,
            Kept::Released => Freed::Released,
        },
        ..defaults
    };
    let figures = options.policy.iter().map(|&policy| figures(policy, &iteration, &setup));
    let report = Report {
        trace: iteration.name().to_owned(),
        machine: options.machine.clone(),
        gpu_bytes: setup.gpu_bytes,
        host_bytes: setup.host_bytes,
        modelled: true,
        policies: figures.collect::<Result<_, _>>()?,
    };
    if let Some(path) = &options.json
        && report::write(&report, path)?
    {
        return Ok(());
    }
    io::stdout().write_all(table(&report).fit(terminal::width(), &CONCESSIONS).render(Colour::detect()).as_bytes())?;
    terminal::note(&format!(
        "modelled, not measured: {}, {} of GPU memory; docs/simulator.md says what the model leaves out",
        machine.name,
        text::bytes(setup.gpu_bytes)
    ));
    Ok(())
}

fn figures(policy: Policy, iteration: &Iteration, setup: &Setup<'_>) -> anyhow::Result<Figures> {
    let (policy, outcome) = match policy {
        Policy::Ideal => ("ideal", sim::ideal(iteration)),
        Policy::Driver => ("driver", sim::driver(iteration, setup)?),
    };
    Ok(Figures { policy, outcome, plan_cpu_s: 0.0 })
}

fn iteration(options: &Options) -> anyhow::Result<Iteration> {
    if let Some(recipe) = &options.zoo {
        let Some(hardware) = Hardware::named(&options.machine) else {
            bail!(
                "how fast {} computes is not known: --zoo takes gtx1080ti, a100, h100, h200 or gh200",
                options.machine
            );
        };
        return Ok(recipe.make(&hardware)?);
    }
    let path = options.trace.as_deref().context("--trace or --zoo is needed")?;
    match import::load(path)? {
        Trace::Iteration(iteration) => Ok(iteration),
        Trace::Ops(_) => {
            bail!("{} holds a run; the simulator takes one iteration of tensors and kernels", path.display())
        }
        Trace::Circle(_) => bail!("{} holds blocks without kernels: there is nothing to time", path.display()),
    }
}

fn table(report: &Report) -> Table {
    let number = |title, cell: fn(&Outcome) -> String| {
        Column::number(
            title,
            report.policies.iter().map(|figures| cell(&figures.outcome)).collect::<Vec<_>>().into_iter(),
        )
    };
    let columns = vec![
        Column::text("POLICY", report.policies.iter().map(|figures| figures.policy.to_owned())),
        number("TIME", |outcome| seconds(outcome.time_s)),
        number("OF IDEAL", |outcome| text::percent(outcome.share_of_ideal)),
        number("STALL", |outcome| seconds(outcome.stall_s)),
        number("H2D", |outcome| text::bytes(outcome.bytes_htod)),
        number("D2H", |outcome| text::bytes(outcome.bytes_dtoh)),
        number("FLASH READ", |outcome| text::bytes(outcome.bytes_ssd_read)),
        number("FLASH WRITTEN", |outcome| text::bytes(outcome.bytes_ssd_written)),
        number("FAULTS", |outcome| text::count(outcome.faults)),
        number("BATCHES", |outcome| text::count(outcome.fault_batches)),
        number("PEAK", |outcome| text::bytes(outcome.peak_bytes)),
    ];
    Table::new(columns, vec![Style::Plain; report.policies.len()])
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
fn seconds(seconds: f64) -> String {
    text::nanoseconds((seconds * 1e9).round() as u64)
}

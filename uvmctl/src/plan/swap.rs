//! `uvmctl plan swap`.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::bail;
use clap::{Args, ValueEnum};
use model::text::parse_bytes;
use planner::{
    Link, Machine, Schedule,
    autoswap::{self, Effort, Goal, Parameters, Problem, Rule, Settle},
    machine::Store,
};
use serde::Serialize;
use sim::Setup;
use trace::{Iteration, IterationWindow, Tensor};

use crate::{
    machine,
    output::table::{Column, Table},
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

    /// GPU memory that the iteration may have, as in 40GiB [default: the lowest without overhead]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    limit: Option<u64>,

    /// Constraint to give up if the iteration does not fit into the limit
    #[arg(long, value_enum, default_value_t = Mode::Stick)]
    mode: Mode,

    /// Machine with the link to plan for: gtx1080ti, a100, rtx5090, h100, h200, gh200, or a file
    /// whose path ends in .toml; by default that of the authors, PCI Express 3.0
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,

    /// Evict only tensors that are idle at the highest peak, as in the paper
    #[arg(long)]
    first_peak_only: bool,

    /// Number of weights of the scores to try, besides those spread evenly
    #[arg(long, value_name = "COUNT", default_value_t = Effort::default().steps)]
    steps: usize,

    /// Write the best schedule and all figures into a file as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// The limit: it is exceeded, and no kernel waits
    NoOverhead,
    /// The run time: kernels wait, and the limit is obeyed
    Stick,
}

/// GPU for kernel times of a generated iteration without `--machine`: the known one on PCI Express
/// 3.0.
const AUTHORS_GPU: &str = "gtx1080ti";

/// JSON report.
#[derive(Debug, Serialize)]
struct Report {
    trace: String,
    /// Allocations or launches of the iteration within a run.
    window: Option<IterationWindow>,
    mode: autoswap::Mode,
    /// Limit of GPU memory, as given.
    limit_bytes: Option<u64>,
    duration_ns: u64,
    peak_bytes: u64,
    /// Lower bound of the peak: every tensor is evicted that can be.
    least_bytes: u64,
    /// Largest memory that one kernel uses.
    in_use_bytes: u64,
    plans: Vec<Plan>,
    /// Tensors of the schedule, by number.
    tensors: Vec<Tensor>,
    kernels: Vec<KernelLine>,
    /// Schedule of the best plan.
    schedule: Schedule,
}

#[derive(Debug, Serialize)]
struct KernelLine {
    name: String,
    duration_ns: u64,
}

#[derive(Debug, Serialize)]
struct Plan {
    planner: &'static str,
    rule: Rule,
    peak_bytes: u64,
    /// Reduction of the peak without evictions.
    reduction_percent: f64,
    overhead_ns: u64,
    absences: usize,
    /// Bytes in each direction.
    moved_bytes: u64,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mode = match options.mode {
        Mode::NoOverhead => autoswap::Mode::NoOverhead,
        Mode::Stick => autoswap::Mode::Stick,
    };
    let machine_name = options.machine.as_deref().unwrap_or(AUTHORS_GPU);
    let LoadedIteration { iteration, window, lacks_launches, .. } =
        options.source.iteration(&options.extraction, machine_name)?;
    let settle = if lacks_launches { Settle::OF_STREAMS } else { Settle::AT_ONCE };
    let machine = machine(options)?;
    let parameters = Parameters { settle, first_peak_only: options.first_peak_only, ..Parameters::default() };
    let problem = Problem::new(&iteration, &machine, &parameters);
    let goal = options.limit.map_or(Goal::LowestLimit, Goal::At);
    let names = ["DOA", "AOA", "WDOA", "SWDOA", "vote"];
    let rules = Rule::SINGLE_SCORES.into_iter().chain([Rule::Vote]);
    let mut candidates: Vec<_> = names.into_iter().zip(rules.map(|rule| problem.best(rule, mode, goal))).collect();
    let effort = Effort { steps: options.steps, ..Effort::default() };
    candidates.push(("optimised", problem.optimised(mode, goal, effort)));
    let plans: Option<Vec<_>> = candidates.into_iter().map(|(name, plan)| plan.map(|plan| (name, plan))).collect();
    let Some(mut plans) = plans else {
        bail!("no limit below {} is feasible: that much memory cannot be evicted", text::bytes(problem.least_bytes()))
    };
    let peak_bytes = problem.peak_bytes();
    let shown = |(planner, plan): &(&'static str, autoswap::Plan)| Plan {
        planner,
        rule: plan.rule,
        peak_bytes: plan.peak_bytes,
        reduction_percent: 100.0 * (1.0 - plan.peak_bytes as f64 / peak_bytes.max(1) as f64),
        overhead_ns: plan.overhead_ns,
        absences: plan.absences,
        moved_bytes: plan.moved_bytes,
    };
    let figures = plans.iter().map(shown).collect();
    plans.sort_by_key(|(_, plan)| (plan.overhead_ns, plan.peak_bytes));
    let report = Report {
        trace: options.source.name(),
        window,
        mode,
        limit_bytes: options.limit,
        duration_ns: iteration.duration_ns(),
        peak_bytes,
        least_bytes: problem.least_bytes(),
        in_use_bytes: problem.in_use_bytes(),
        plans: figures,
        tensors: iteration.tensors().values().to_vec(),
        kernels: kernels(&iteration),
        schedule: plans.into_iter().next().map(|(_, plan)| plan.schedule).unwrap_or_default(),
    };
    if let Some(path) = &options.json
        && report::write(&report, path)?
    {
        return Ok(());
    }
    print(&report)
}

fn kernels(iteration: &Iteration) -> Vec<KernelLine> {
    let line = |kernel: &trace::Kernel| KernelLine { name: kernel.name.clone(), duration_ns: kernel.duration_ns };
    iteration.kernels().values().iter().map(line).collect()
}

fn machine(options: &Options) -> anyhow::Result<Machine> {
    let gpu_bytes = options.limit.unwrap_or(u64::MAX);
    if let Some(name) = &options.machine {
        let machine = machine::load(name)?;
        return Ok(Setup::new(&machine).for_planners_within(gpu_bytes));
    }
    // Zhang et al., pinned memory on PCI Express 3.0 x16.
    let out = Link { latency_ns: 47_200.0, bytes_per_second: 1e9 / 0.0756 };
    let back = Link { latency_ns: 9_700.0, bytes_per_second: 1e9 / 0.0823 };
    Ok(Machine { gpu_bytes, host: Store { bytes: u64::MAX, out, back }, flash: None })
}

fn print(report: &Report) -> anyhow::Result<()> {
    let mut out = io::stdout();
    let bound = 100.0 * (1.0 - report.least_bytes as f64 / report.peak_bytes.max(1) as f64);
    writeln!(
        out,
        "Peak {} in {}. Bound: {} ({bound:.1} % less) with every tensor evicted that can be; one kernel uses up to {}.",
        text::bytes(report.peak_bytes),
        text::nanoseconds(report.duration_ns),
        text::bytes(report.least_bytes),
        text::bytes(report.in_use_bytes),
    )?;
    let plans = &report.plans;
    let columns = vec![
        Column::text("PLANNER", plans.iter().map(|plan| plan.planner.to_owned())),
        Column::number("PEAK", plans.iter().map(|plan| text::bytes(plan.peak_bytes))),
        Column::number("REDUCTION", plans.iter().map(|plan| format!("{:.1} %", plan.reduction_percent))),
        Column::number("OVERHEAD", plans.iter().map(|plan| text::nanoseconds(plan.overhead_ns))),
        Column::number("ABSENCES", plans.iter().map(|plan| text::count(plan.absences as u64))),
        Column::number("MOVED", plans.iter().map(|plan| text::bytes(plan.moved_bytes))),
        Column::text("WEIGHTS", plans.iter().map(|plan| weights(plan.rule))),
    ];
    let table = Table::new(columns, vec![Style::Plain; plans.len()]).fit(terminal::width(), &[]);
    Ok(out.write_all(table.render(Colour::detect()).as_bytes())?)
}

/// Weights of DOA, AOA, WDOA and SWDOA, for the optimised plan.
fn weights(rule: Rule) -> String {
    match rule {
        Rule::Weighted(weights) => weights.map(|weight| format!("{weight:.2}")).join(" "),
        Rule::Doa | Rule::Aoa | Rule::Wdoa | Rule::Swdoa | Rule::Vote => String::new(),
    }
}

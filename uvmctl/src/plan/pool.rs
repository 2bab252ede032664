//! `uvmctl plan pool`.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use model::text::parse_bytes;
use planner::{
    Placement, online,
    optimal::{self, Effort},
    smartpool::{self, Fit},
};
use serde::Serialize;
use trace::{Alignment, circle::Window};

use crate::{
    output::table::{Column, Table},
    report,
    source::{Blocks, Source},
    terminal::{self, Colour, Style},
    text,
};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    source: Source,

    /// Rounding of sizes
    #[arg(long, value_enum, default_value_t = Rounding::Small)]
    align: Rounding,

    /// Total size of the program's own pool, for comparison, as in 3592MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    own_pool: Option<u64>,

    /// Rounds of reordering before the search
    #[arg(long, value_name = "COUNT", default_value_t = Effort::default().rounds)]
    rounds: u64,

    /// Limit of nodes of the search
    #[arg(long, value_name = "COUNT", default_value_t = Effort::default().nodes)]
    nodes: u64,

    /// Write the best placement and all figures into a file as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Rounding {
    /// Sizes as they are
    None,
    /// Multiples of 512 bytes
    Small,
    /// That, and multiples of 2 MiB from 1 MiB on, so that large blocks and the driver's coincide
    Uvm,
}

impl Rounding {
    fn alignment(self) -> Alignment {
        match self {
            Self::None => Alignment::NONE,
            Self::Small => Alignment::SMALL,
            Self::Uvm => Alignment::UVM,
        }
    }
}

/// JSON report. Sizes of pools exclude the persistent bytes, which every pool needs in addition.
#[derive(Debug, Serialize)]
struct Report {
    trace: String,
    /// Allocations of the iteration within a run.
    window: Option<Window>,
    /// Steps of the iteration, the unit of slots: its kernels, a run's allocations, or the file's
    /// steps.
    steps: u64,
    blocks: usize,
    iterations: usize,
    persistent_bytes: u64,
    bound_bytes: u64,
    own_pool_bytes: Option<u64>,
    /// Baseline of the savings, with the persistent bytes: the program's own pool, or else the
    /// smaller of the online ones.
    compared_bytes: u64,
    /// Effort of the last planner.
    spent: Effort,
    pools: Vec<Pool>,
    pool_bytes: u64,
    slots: Vec<Slot>,
}

#[derive(Debug, Serialize)]
struct Pool {
    planner: &'static str,
    fit: Option<Fit>,
    bytes: u64,
    /// Reduction compared with `compared_bytes`.
    saved_percent: f64,
    /// Proven minimum: no pool is smaller.
    proven: bool,
}

/// Placement of a block.
#[derive(Debug, Serialize)]
struct Slot {
    /// Id of the block in the trace: tensor, allocation within its iteration, or line.
    source: u64,
    /// Name of the tensor, if the trace has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    copy: u32,
    start: u64,
    length: u64,
    offset: u64,
    bytes: u64,
}

pub(crate) fn run(options: Options) -> anyhow::Result<()> {
    let Options { source, align, own_pool, rounds, nodes, json } = options;
    let blocks = source.blocks(align.alignment())?;
    let circle = &blocks.circle;
    let best = optimal::place(circle, Effort { rounds, nodes });
    let fits = [Fit::Best, Fit::First];
    let online = fits.map(|fit| (fit, online::pool_bytes(circle, fit)));
    let smallest_bytes = online.iter().map(|(_, bytes)| *bytes).min().unwrap_or(0);
    let compared_bytes = own_pool.unwrap_or(smallest_bytes + circle.persistent_bytes);
    let pool = |planner, fit, bytes| {
        let part = (bytes + circle.persistent_bytes) as f64 / compared_bytes.max(1) as f64;
        Pool { planner, fit, bytes, saved_percent: 100.0 * (1.0 - part), proven: bytes == best.bound_bytes }
    };
    let mut pools: Vec<_> = online.map(|(fit, bytes)| pool("online", Some(fit), bytes)).into_iter().collect();
    pools.extend(fits.map(|fit| pool("smartpool", Some(fit), smartpool::place(circle, fit).pool_bytes)));
    pools.push(pool("optimal", None, best.placement.pool_bytes));
    let report = Report {
        trace: source.name(),
        window: blocks.window,
        steps: circle.period,
        blocks: circle.spans.len(),
        iterations: circle.turns,
        persistent_bytes: circle.persistent_bytes,
        bound_bytes: best.bound_bytes,
        own_pool_bytes: own_pool,
        compared_bytes,
        spent: best.spent,
        pools,
        pool_bytes: best.placement.pool_bytes,
        slots: slots(&blocks, &best.placement),
    };
    if let Some(path) = json
        && report::write(&report, &path)?
    {
        return Ok(());
    }
    print(&report)
}

fn slots(Blocks { circle, names, .. }: &Blocks, placement: &Placement) -> Vec<Slot> {
    let of = |slot: &planner::placement::Slot| {
        let span = circle.spans.get(slot.span)?;
        let trace::Span { source, bytes, start, length, .. } = *span;
        let name = usize::try_from(source).ok().and_then(|source| names.get(source)).cloned().unwrap_or_default();
        Some(Slot { source, name, copy: slot.copy, start, length, offset: slot.offset, bytes })
    };
    placement.slots.iter().filter_map(of).collect()
}

fn print(report: &Report) -> anyhow::Result<()> {
    let persistent = report.persistent_bytes;
    let mut out = io::stdout();
    writeln!(
        out,
        "{} in {}; {} more are persistent. Bound: {} at once.",
        text::counted(report.blocks as u64, "block"),
        text::counted(report.iterations as u64, "iteration"),
        text::bytes(persistent),
        text::bytes(report.bound_bytes),
    )?;
    let fit = |pool: &Pool| match pool.fit {
        Some(Fit::Best) => "best fit",
        Some(Fit::First) => "first fit",
        None if pool.proven => "proven",
        None => "not proven",
    };
    let ratio = |pool: &Pool| pool.bytes as f64 / report.bound_bytes.max(1) as f64;
    let pools = &report.pools;
    let columns = vec![
        Column::text("PLANNER", pools.iter().map(|pool| pool.planner.to_owned())),
        Column::text("METHOD", pools.iter().map(|pool| fit(pool).to_owned())),
        Column::number("POOL", pools.iter().map(|pool| text::bytes(pool.bytes))),
        Column::number("BOUND RATIO", pools.iter().map(|pool| format!("{:.4}", ratio(pool)))),
        Column::number("TOTAL", pools.iter().map(|pool| text::bytes(pool.bytes + persistent))),
        Column::number("SAVED", pools.iter().map(|pool| format!("{:.2} %", pool.saved_percent))),
    ];
    let table = Table::new(columns, vec![Style::Plain; pools.len()]).fit(terminal::width(), &[]);
    Ok(out.write_all(table.render(Colour::detect()).as_bytes())?)
}

//! `uvmctl ps`.

use std::io::{self, Write};

use clap::Args;
use model::api::{Process, Processes, Status};

use crate::{
    client::Client,
    table::{Column, Concession, Table},
    terminal::{self, Colour, Style},
    text,
};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,

    /// List processes that ended lately, too
    #[arg(long, short)]
    all: bool,

    /// Show every column, however narrow the terminal is
    #[arg(long, short)]
    wide: bool,
}

/// The name is what a reader looks for, so it is shortened only when the least telling column is gone.
const CONCESSIONS: [Concession; 12] = [
    Concession::Drop("INSTANCES"),
    Concession::Drop("EVICTIONS"),
    Concession::Drop("BATCHES"),
    Concession::Drop("REMOTE"),
    Concession::Drop("THRASH"),
    Concession::Drop("CPU-FLT"),
    Concession::Drop("CAUSED"),
    Concession::Shorten("PROCESS", 12),
    Concession::Shorten("USER", 6),
    Concession::Drop("USER"),
    Concession::Drop("MANAGED"),
    Concession::Drop("FAULTS"),
];

pub(crate) fn run(client: &Client, options: Options) -> anyhow::Result<()> {
    let Options { json, all, wide } = options;
    let path = if all { "/api/v1/processes" } else { "/api/v1/processes?state=running" };
    let answer = client.get::<Processes>(path)?;
    if json {
        return Ok(writeln!(io::stdout(), "{}", text::printable_json(&answer.json))?);
    }
    let Processes { processes, .. } = answer.body;
    if processes.is_empty() {
        let status = client.get::<Status>("/api/v1/status")?.body;
        terminal::note(&nothing(&status));
        return Ok(());
    }
    let width = if wide { None } else { terminal::width() };
    let table = table(&processes, all).fit(width, &CONCESSIONS);
    io::stdout().write_all(table.render(Colour::detect()).as_bytes())?;
    if processes.iter().any(|process| process.counts.dropped_events > 0) {
        terminal::note("events were dropped: figures are lower bounds (see uvmctl status)");
    }
    Ok(())
}

/// Why the list is empty.
fn nothing(status: &Status) -> String {
    if status.state == "counting" {
        return "no process uses managed memory".to_owned();
    }
    let reasons: Vec<_> = status.reasons.iter().map(|reason| text::printable(reason)).collect();
    format!("uvmd is not counting ({}): {}", text::printable(&status.state), reasons.join("; "))
}

fn table(processes: &[Process], with_state: bool) -> Table {
    let cells = |cell: fn(&Process) -> String| processes.iter().map(cell);
    let mut columns = vec![
        Column::number("PID", cells(|process| process.pid.to_string())),
        Column::text("PROCESS", cells(|process| text::printable(&process.name).into_owned())),
        Column::text("USER", cells(user)),
        Column::text("GPU", cells(gpus)),
        Column::number("MANAGED", cells(|process| process.managed_bytes.map_or_else(|| "-".to_owned(), text::bytes))),
        Column::number("FAULTS", cells(|process| text::count(process.counts.fault_entries))),
        Column::number("INSTANCES", cells(|process| text::count(process.counts.fault_instances))),
        Column::number("BATCHES", cells(|process| text::count(process.counts.batches))),
        Column::number("CPU-FLT", cells(|process| text::count(process.counts.cpu_faults))),
        Column::number("H2D", cells(|process| text::bytes(process.counts.bytes_htod))),
        Column::number("D2H", cells(|process| text::bytes(process.counts.bytes_dtoh))),
        Column::number("EVICTED", cells(|process| text::bytes(process.counts.evicted_bytes))),
        Column::number("EVICTIONS", cells(|process| text::count(process.counts.evictions))),
        Column::number("CAUSED", cells(|process| text::bytes(process.counts.evicted_bytes_caused))),
        Column::number("THRASH", cells(|process| text::count(process.counts.thrashing_pages))),
        Column::number("REMOTE", cells(|process| text::bytes(process.counts.remote_mapped_bytes))),
    ];
    if with_state {
        columns.push(Column::text("STATE", cells(|process| text::printable(&process.state).into_owned())));
    }
    let style = |process: &Process| if process.state == "ended" { Style::Faded } else { Style::Plain };
    Table::new(columns, processes.iter().map(style).collect())
}

pub(crate) fn user(process: &Process) -> String {
    process.user.as_deref().map_or_else(|| process.uid.to_string(), |user| text::printable(user).into_owned())
}

fn gpus(process: &Process) -> String {
    let ids: Vec<_> = process.gpus.iter().map(|gpu| text::gpu(gpu.gpu)).collect();
    if ids.is_empty() { "-".to_owned() } else { ids.join(",") }
}

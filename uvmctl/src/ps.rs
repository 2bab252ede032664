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
}

/// The name is what a reader looks for, so it is shortened only when the least telling column is gone.
const CONCESSIONS: [Concession; 5] = [
    Concession::Drop("INSTANCES"),
    Concession::Shorten("PROCESS", 12),
    Concession::Shorten("USER", 6),
    Concession::Drop("CPU-FLT"),
    Concession::Drop("USER"),
];

pub(crate) fn run(client: &Client, options: Options) -> anyhow::Result<()> {
    let Options { json, all } = options;
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
    let table = table(&processes, all).fit(terminal::width(), &CONCESSIONS);
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
        Column::number("FAULTS", cells(|process| text::count(process.counts.fault_entries))),
        Column::number("INSTANCES", cells(|process| text::count(process.counts.fault_instances))),
        Column::number("CPU-FLT", cells(|process| text::count(process.counts.cpu_faults))),
        Column::number("H2D", cells(|process| text::bytes(process.counts.bytes_htod))),
        Column::number("D2H", cells(|process| text::bytes(process.counts.bytes_dtoh))),
        Column::number("EVICTED", cells(|process| text::bytes(process.counts.evicted_bytes))),
    ];
    if with_state {
        columns.push(Column::text("STATE", cells(|process| text::printable(&process.state).into_owned())));
    }
    let style = |process: &Process| if process.state == "ended" { Style::Faded } else { Style::Plain };
    Table::new(columns, processes.iter().map(style).collect())
}

fn user(process: &Process) -> String {
    process.user.as_deref().map_or_else(|| process.uid.to_string(), |user| text::printable(user).into_owned())
}

fn gpus(process: &Process) -> String {
    let ids: Vec<_> = process.gpus.iter().map(|gpu| text::gpu(gpu.gpu)).collect();
    if ids.is_empty() { "-".to_owned() } else { ids.join(",") }
}

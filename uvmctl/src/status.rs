//! `uvmctl status`.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use clap::Args;
use model::api::{Probe, Status};

use crate::{
    client::Client,
    summary,
    table::{Column, Concession, Table},
    terminal::{self, Colour, Style},
    text,
};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(client: &Client, options: Options) -> anyhow::Result<()> {
    let answer = client.get::<Status>("/api/v1/status")?;
    if options.json {
        return Ok(writeln!(io::stdout(), "{}", text::printable_json(&answer.json))?);
    }
    let output = render(&answer.body, terminal::width(), Colour::detect())?;
    Ok(io::stdout().write_all(output.as_bytes())?)
}

pub(crate) fn render(status: &Status, width: Option<usize>, colour: Colour) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let mut line =
        |title: &str, text: &str| writeln!(out, "{} {text}", colour.paint(Style::Heading, &format!("{title:<9}")));
    line("uvmd", &format!("{} on {}", text::printable(&status.version), text::printable(&status.hostname)))?;
    line("State", &state(status, colour))?;
    for reason in status.reasons.iter().chain(status.warnings.iter().map(|warning| &warning.message)) {
        line("", &format!("- {}", text::printable(reason)))?;
    }
    line("Backend", &text::printable(&status.backend))?;
    line("Driver", &driver(status))?;
    line("Dropped", &dropped(status, colour))?;
    for (probe, missing) in status.probes.iter().filter_map(|probe| Some((probe, probe.unavailable_reason.as_deref()?)))
    {
        let text = format!("{}: {}", text::printable(&probe.name), text::printable(missing));
        line("Missing", &colour.paint(Style::Warning, &text))?;
    }
    for (title, text) in summary::lines(&status.total) {
        line(title, &text)?;
    }
    if status.block_records_sampled_out > 0 || status.block_records_dropped > 0 {
        line("Blocks", &block_records(status, colour))?;
    }
    if let Some(table) = summary::distributions(&status.total) {
        write!(out, "\n{}", table.render(colour))?;
    }
    if !status.gpus.is_empty() {
        const CONCESSIONS: [Concession; 3] =
            [Concession::Shorten("UUID", 13), Concession::Shorten("NAME", 8), Concession::Drop("BATCHES")];
        write!(out, "\n{}", gpus(status).fit(width, &CONCESSIONS).render(colour))?;
    }
    if !status.probes.is_empty() {
        write!(out, "\n{}", probes(&status.probes).fit(width, &[Concession::Shorten("PROBE", 12)]).render(colour))?;
    }
    Ok(out)
}

fn state(status: &Status, colour: Colour) -> String {
    let style = match status.state.as_str() {
        "counting" if status.degraded.is_empty() => Style::Good,
        "counting" | "waiting" => Style::Warning,
        _ => Style::Error,
    };
    let state = colour.paint(style, &text::printable(&status.state));
    match counting_for(status) {
        Some(age) if status.degraded.is_empty() => format!("{state} for {}", text::duration(age)),
        Some(age) => format!("{state} for {}, {}", text::duration(age), colour.paint(Style::Warning, "degraded")),
        None => state,
    }
}

/// By the daemon's own clock: this one may differ.
fn counting_for(status: &Status) -> Option<std::time::Duration> {
    let since = humantime::parse_rfc3339(status.counting_since.as_deref()?).ok()?;
    humantime::parse_rfc3339(&status.time).ok()?.duration_since(since).ok()
}

fn driver(status: &Status) -> String {
    let Some(driver) = &status.driver else { return "-".to_owned() };
    let layout = status.layout.as_deref().map(|layout| format!(", layout {layout}")).unwrap_or_default();
    text::printable(&(driver.clone() + &layout)).into_owned()
}

fn dropped(status: &Status, colour: Colour) -> String {
    if status.dropped_events == 0 {
        return "0 events".to_owned();
    }
    let reasons: Vec<_> = status
        .dropped_events_by_reason
        .iter()
        .filter(|(_, events)| **events > 0)
        .map(|(reason, events)| format!("{} {}", text::printable(reason), text::count(*events)))
        .collect();
    let events =
        format!("{} events ({}): figures are lower bounds", text::count(status.dropped_events), reasons.join(", "));
    colour.paint(Style::Warning, &events)
}

fn block_records(status: &Status, colour: Colour) -> String {
    let Status { block_records, block_records_sampled_out, block_records_dropped, .. } = status;
    let missing = format!(
        "{} sampled out, {} dropped: blocks' figures are lower bounds",
        text::count(*block_records_sampled_out),
        text::count(*block_records_dropped)
    );
    format!("{} records, {}", text::count(*block_records), colour.paint(Style::Warning, &missing))
}

fn gpus(status: &Status) -> Table {
    let cells = |cell: fn(&model::api::Gpu) -> String| status.gpus.iter().map(cell);
    let optional = |text: &Option<String>| {
        text.as_deref().map_or_else(|| "-".to_owned(), |text| text::printable(text).into_owned())
    };
    let columns = vec![
        Column::number("GPU", cells(|gpu| text::gpu(gpu.gpu))),
        Column::text("NAME", status.gpus.iter().map(|gpu| optional(&gpu.name))),
        Column::number("FAULTS", cells(|gpu| text::count(gpu.counts.fault_entries))),
        Column::number("BATCHES", cells(|gpu| text::count(gpu.counts.batches))),
        Column::number("H2D", cells(|gpu| text::bytes(gpu.counts.bytes_htod))),
        Column::number("D2H", cells(|gpu| text::bytes(gpu.counts.bytes_dtoh))),
        Column::number("EVICTED", cells(|gpu| text::bytes(gpu.counts.evicted_bytes))),
        Column::text("UUID", status.gpus.iter().map(|gpu| optional(&gpu.uuid))),
    ];
    Table::new(columns, vec![Style::Plain; status.gpus.len()])
}

fn probes(probes: &[Probe]) -> Table {
    let cells = |cell: fn(&Probe) -> String| probes.iter().map(cell);
    let time_a_hit = |probe: &Probe| match probe.run_time_ns.map(|time| time.checked_div(probe.hits)) {
        Some(Some(time_ns)) => format!("{time_ns} ns"),
        _ => "-".to_owned(),
    };
    let columns = vec![
        Column::text("PROBE", cells(|probe| text::printable(&probe.name).into_owned())),
        Column::number("HITS", cells(|probe| text::count(probe.hits))),
        Column::number("TIME/HIT", cells(time_a_hit)),
    ];
    Table::new(columns, vec![Style::Plain; probes.len()])
}

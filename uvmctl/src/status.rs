//! `uvmctl status`.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    process::ExitCode,
};

use api::{CheckedProcess, Crosscheck, Probe, Status};
use clap::Args;

use crate::{
    client::Client,
    output::{
        Page, Screen, View,
        cell::Cell,
        table::{Column, Concession, Table},
    },
    summary,
    terminal::{Colour, Style},
    text,
};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Print one line, and exit with 4 while uvmd waits, 5 while it refuses the driver, 6 while it
    /// is degraded
    #[arg(long)]
    pub(crate) check: bool,
}

const PATH: &str = "/api/v1/status";

/// The view of uvmd's state.
pub(crate) struct State;

impl View for State {
    fn page(&mut self, client: &Client, Screen { width, colour }: Screen) -> anyhow::Result<Page> {
        let status = client.get(PATH)?.body;
        Ok(Page::text(render(&status, width, colour)?))
    }

    fn json(&mut self, client: &Client, out: &mut dyn io::Write) -> anyhow::Result<()> {
        client.pass_on_one::<Status>(PATH, out)
    }

    fn has_names(&self) -> bool {
        false
    }
}

/// Prints the state in one line and returns its exit code, for `--check`.
pub(crate) fn check(client: &Client) -> anyhow::Result<ExitCode> {
    let (code, line) = checked(&client.get(PATH)?.body);
    writeln!(io::stdout(), "{line}")?;
    Ok(code.into())
}

fn checked(status: &Status) -> (u8, String) {
    const WAITING: u8 = 4;
    const REFUSED: u8 = 5;
    const DEGRADED: u8 = 6;
    let state = &status.state;
    let because = |state: &str, reasons: Vec<&str>| {
        text::printable(&[state, &reasons.join("; ")].join(if reasons.is_empty() { "" } else { ": " })).into_owned()
    };
    let reasons = || status.reasons.iter().map(String::as_str).collect();
    match state.as_str() {
        "counting" if status.degraded.is_empty() => (0, "counting".to_owned()),
        "counting" => {
            let degraded = status.degraded.iter().map(|each| each.description.as_str()).collect();
            (DEGRADED, because("degraded", degraded))
        }
        "refused" => (REFUSED, because(state, reasons())),
        _ => (WAITING, because(state, reasons())),
    }
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
    line("Backend", &backend(status))?;
    if !status.source.not_counted.is_empty() {
        let names: Vec<_> = status.source.not_counted.iter().map(|name| text::printable(name)).collect();
        line("Uncounted", &names.join(", "))?;
    }
    if let Some(checked) = &status.source.crosscheck {
        line("Checked", &crosscheck(checked, colour))?;
    }
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
        write!(out, "\n{}", gpus(status).known().fit(width, &CONCESSIONS).render(colour))?;
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

/// Time since counting started, by the daemon's clock, which may differ from the local one.
fn counting_for(status: &Status) -> Option<std::time::Duration> {
    let since = humantime::parse_rfc3339(status.counting_started_at.as_deref()?).ok()?;
    humantime::parse_rfc3339(&status.time).ok()?.duration_since(since).ok()
}

fn backend(status: &Status) -> String {
    let attachment = status.attachment.as_deref().map(|attachment| format!(", by {attachment}")).unwrap_or_default();
    text::printable(&(status.backend.clone() + &attachment)).into_owned()
}

fn crosscheck(done: &Crosscheck, colour: Colour) -> String {
    let Crosscheck { checks, comparisons, disagreements, inconclusive, last_process } = done;
    let Some(CheckedProcess { pid, .. }) = last_process else {
        return "no process checked yet".to_owned();
    };
    let style = if *disagreements > 0 { Style::Warning } else { Style::Plain };
    let of_result = format!(
        "{} comparisons with the driver's own counters: {} disagree, {} inconclusive",
        text::count(*comparisons),
        text::count(*disagreements),
        text::count(*inconclusive)
    );
    format!("{} checks, last of process {pid}; {}", text::count(*checks), colour.paint(style, &of_result))
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
    let cells = |cell: fn(&api::Gpu) -> String| status.gpus.iter().map(cell);
    let known = |cell: fn(&api::Gpu) -> Cell| status.gpus.iter().map(cell);
    let optional = |text: &Option<String>| {
        text.as_deref().map_or_else(|| "-".to_owned(), |text| text::printable(text).into_owned())
    };
    let columns = vec![
        Column::number("GPU", cells(|gpu| text::gpu(&gpu.id))),
        Column::text("NAME", status.gpus.iter().map(|gpu| optional(&gpu.name))),
        Column::number("FAULTS", cells(|gpu| text::count(gpu.counts.fault_entries))),
        Column::number("BATCHES", known(|gpu| Cell::known(gpu.counts.batches, text::count))),
        Column::number("H2D", cells(|gpu| text::bytes(gpu.counts.bytes_htod))),
        Column::number("D2H", cells(|gpu| text::bytes(gpu.counts.bytes_dtoh))),
        Column::number("EVICTED", known(|gpu| Cell::known(gpu.counts.evicted_bytes, text::bytes))),
        Column::text("UUID", status.gpus.iter().map(|gpu| optional(&gpu.id.uuid))),
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

#[cfg(test)]
mod tests {
    use api::Degradation;

    use super::*;

    #[test]
    fn each_state_has_its_code_and_its_reason_in_a_line() {
        let status = |state: &str, reasons: &[&str]| Status {
            state: state.to_owned(),
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
            ..Status::default()
        };
        let degraded = |description: &str| {
            let (reason, description) = ("residency_unavailable".to_owned(), description.to_owned());
            let degradation = Degradation { reason, uid: None, user: None, pid: None, description };
            Status { degraded: vec![degradation], ..status("counting", &[]) }
        };
        for (status, code, line) in [
            (status("counting", &[]), 0, "counting"),
            (status("waiting", &["no driver", "no BTF"]), 4, "waiting: no driver; no BTF"),
            (status("refused", &["unknown\nversion"]), 5, "refused: unknown\\nversion"),
            (degraded("no residency"), 6, "degraded: no residency"),
            // An unknown state does not imply that uvmd counts.
            (status("starting", &[]), 4, "starting"),
        ] {
            assert_eq!(checked(&status), (code, line.to_owned()));
        }
    }
}

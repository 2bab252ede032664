//! `uvmctl ps`.

use std::{
    cmp::Reverse,
    collections::HashMap,
    io::{self, Write},
    thread,
    time::Duration,
};

use clap::Args;
use model::api::{Counts, Gpus, Process, ProcessSummaries, Processes, Status, Verdicts};

use crate::{
    client::{Client, PAGE},
    rates::{self, Before, Moment},
    table::{Column, Concession, Table},
    terminal::{self, Colour, Style},
    text,
    words::{self, Trouble},
};

#[derive(Clone, Copy, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Options {
    /// Print the daemon's answer as JSON, with sums and breakdowns; where it has several pages, sorted by pid
    #[arg(long)]
    json: bool,

    /// List processes that ended lately, too
    #[arg(long, short)]
    all: bool,

    /// Show every column, however narrow the terminal is
    #[arg(long, short)]
    wide: bool,

    /// Show sums since uvmd counts instead of rates
    #[arg(long, short)]
    totals: bool,

    /// Seconds to measure rates over
    #[arg(long, short, value_name = "SECONDS", default_value = "1", value_parser = rates::interval, conflicts_with = "totals")]
    interval: Duration,
}

/// One of the counters: its title as a sum and as a rate.
struct Counter {
    total: &'static str,
    rate: &'static str,
    value: fn(&Counts) -> u64,
    shown: rates::Shown,
}

const fn counter(total: &'static str, rate: &'static str, value: fn(&Counts) -> u64, shown: rates::Shown) -> Counter {
    Counter { total, rate, value, shown }
}

const COUNTERS: [Counter; 11] = [
    counter("FAULTS", "FAULTS/s", |counts| counts.fault_entries, text::count),
    counter("H2D", "H2D/s", |counts| counts.bytes_htod, text::bytes),
    counter("D2H", "D2H/s", |counts| counts.bytes_dtoh, text::bytes),
    counter("EVICTED", "EVICTED/s", |counts| counts.evicted_bytes, text::bytes),
    counter("CAUSED", "CAUSED/s", |counts| counts.induced_eviction_bytes, text::bytes),
    counter("INSTANCES", "INSTANCES/s", |counts| counts.fault_instances, text::count),
    counter("BATCHES", "BATCHES/s", |counts| counts.batches, text::count),
    counter("CPU-FLT", "CPU-FLT/s", |counts| counts.cpu_faults, text::count),
    counter("EVICTIONS", "EVICTIONS/s", |counts| counts.evictions, text::count),
    counter("THRASH", "THRASH/s", |counts| counts.thrashing_pages, text::count),
    counter("REMOTE", "REMOTE/s", |counts| counts.remote_mapped_bytes, text::bytes),
];

/// The name and the verdict are what a reader looks for: the name is shortened only when the least telling columns are gone, the verdict never.
const CONCESSIONS: [Concession; 15] = [
    Concession::Drop("INSTANCES"),
    Concession::Drop("EVICTIONS"),
    Concession::Drop("BATCHES"),
    Concession::Drop("REMOTE"),
    Concession::Drop("THRASH"),
    Concession::Drop("CPU-FLT"),
    Concession::Drop("CAUSED"),
    Concession::Shorten("OWNER", 12),
    Concession::Shorten("PROCESS", 12),
    Concession::Drop("GPU"),
    Concession::Drop("D2H"),
    Concession::Drop("MANAGED"),
    Concession::Drop("OWNER"),
    Concession::Drop("FAULTS"),
    Concession::Drop("RESIDENT"),
];

/// Processes, and what each counted some time ago if rates are wanted.
pub(crate) struct Listing {
    pub(crate) processes: Processes,
    pub(crate) verdicts: Verdicts,
    pub(crate) gpus: Gpus,
    pub(crate) before: Option<Vec<Before>>,
}

pub(crate) fn run(client: &Client, options: Options) -> anyhow::Result<()> {
    let Options { json, all, wide, totals, interval } = options;
    let state = if all { "" } else { "&state=running" };
    if json {
        let first = format!("/api/v1/processes?limit={PAGE}{state}");
        return client.pass_on(&first, &format!("{first}&order=id"), "processes", &mut io::stdout().lock());
    }
    let path = format!("/api/v1/processes/summary?order=id&limit={PAGE}{state}");
    let look = || client.list::<ProcessSummaries>(&path).map(busiest_first);
    let first = look()?;
    if first.processes.is_empty() {
        let status = client.get::<Status>("/api/v1/status")?.body;
        terminal::note(&nothing(&status));
        return Ok(());
    }
    let (processes, before) = if totals {
        (first, None)
    } else {
        thread::sleep(interval);
        let now = look()?;
        let before = before(&first, &now);
        (now, Some(before))
    };
    let listing = Listing {
        processes,
        verdicts: client.list(&format!("/api/v1/verdicts?order=id&limit={PAGE}"))?,
        gpus: client.get("/api/v1/gpus")?.body,
        before,
    };
    let width = if wide { None } else { terminal::width() };
    let table = table(&listing, all).fit(width, &CONCESSIONS);
    io::stdout().write_all(table.render(Colour::detect()).as_bytes())?;
    if let Some(note) = unavailable(&listing.verdicts) {
        terminal::note(&note);
    }
    if listing.processes.processes.iter().any(|process| process.counts.dropped_events > 0) {
        terminal::note("events were dropped: figures are lower bounds (see uvmctl status)");
    }
    Ok(())
}

/// Those that run first, then those that faulted on or copied most memory, as the daemon's own list: but that changes while it is read.
pub(crate) fn busiest_first(summaries: ProcessSummaries) -> Processes {
    const PAGE_BYTES: u64 = 4096;
    let ProcessSummaries { time, processes, .. } = summaries;
    let mut processes: Vec<Process> = processes.into_iter().map(Process::from).collect();
    processes.sort_by_key(|process| {
        let Counts { fault_entries, cpu_faults, bytes_htod, bytes_dtoh, bytes_dtod, .. } = &process.counts;
        let bytes = bytes_htod.saturating_add(*bytes_dtoh).saturating_add(*bytes_dtod);
        let busyness = fault_entries.saturating_add(*cpu_faults).saturating_add(bytes / PAGE_BYTES);
        (process.state == "exited", Reverse(busyness))
    });
    Processes { time, processes, ..Processes::default() }
}

/// What no verdict does not mean.
fn unavailable(verdicts: &Verdicts) -> Option<String> {
    let kinds: Vec<_> = verdicts.unavailable.iter().map(|each| words::kind(&each.kind)).collect();
    (!kinds.is_empty())
        .then(|| format!("not told as uvmd is configured: {} (see uvmctl explain PID)", kinds.join(", ")))
}

/// What each process had counted at the first look. One that was not there counted from nothing.
pub(crate) fn before(first: &Processes, now: &Processes) -> Vec<Before> {
    let moment = |of: &Processes| Moment { taken: humantime::parse_rfc3339(&of.time).ok(), counting_since: None };
    let seconds = moment(now).seconds_since(moment(first));
    let known: HashMap<_, _> =
        first.processes.iter().map(|process| ((process.pid, process.start_ticks), &process.counts)).collect();
    let nothing = Counts::default();
    let before = |process: &Process| {
        let earlier = known.get(&(process.pid, process.start_ticks)).copied().unwrap_or(&nothing);
        seconds.map(|seconds| Before::new(earlier, seconds, &process.counts)).unwrap_or_default()
    };
    now.processes.iter().map(before).collect()
}

/// Why the list is empty.
fn nothing(status: &Status) -> String {
    if status.state == "counting" {
        return "no process uses managed memory".to_owned();
    }
    let reasons: Vec<_> = status.reasons.iter().map(|reason| text::printable(reason)).collect();
    format!("uvmd is not counting ({}): {}", text::printable(&status.state), reasons.join("; "))
}

pub(crate) fn table(listing: &Listing, with_state: bool) -> Table {
    let Listing { processes: Processes { processes, .. }, verdicts, gpus, before } = listing;
    let cells = |cell: fn(&Process) -> String| processes.iter().map(cell);
    let unknown = || "-".to_owned();
    let mut columns = vec![
        Column::number("PID", cells(|process| process.pid.to_string())),
        Column::text("PROCESS", cells(|process| text::printable(&process.name).into_owned())),
        Column::text("OWNER", cells(words::owner)),
        Column::text("GPU", cells(gpu_ids)),
        Column::number("MANAGED", cells(|process| text::known_bytes(process.managed_bytes))),
        Column::number("RESIDENT", cells(|process| text::known_bytes(process.resident.map(|resident| resident.bytes)))),
    ];
    columns.extend(COUNTERS.iter().map(|Counter { total, rate, value, shown }| match before {
        None => Column::number(total, processes.iter().map(|process| shown(value(&process.counts)))),
        Some(before) => {
            let rates = processes.iter().zip(before).map(|(process, before)| before.rate(&process.counts, value));
            Column::number(rate, rates.map(|rate| rates::per_second(rate, *shown)))
        }
    }));
    let verdict = |process: &Process| {
        Trouble::of(process, verdicts, gpus).map_or_else(unknown, |trouble| trouble.within(usize::MAX))
    };
    columns.push(Column::text("VERDICT", processes.iter().map(verdict)));
    if with_state {
        columns.push(Column::text("STATE", cells(|process| text::printable(&process.state).into_owned())));
    }
    Table::new(columns, processes.iter().map(style).collect())
}

fn style(process: &Process) -> Style {
    match (process.state.as_str(), process.verdicts.is_empty()) {
        ("exited", _) => Style::Faded,
        (_, false) => Style::Warning,
        _ => Style::Plain,
    }
}

fn gpu_ids(process: &Process) -> String {
    let ids: Vec<_> = process.gpus.iter().map(|gpu| text::gpu(gpu.gpu)).collect();
    if ids.is_empty() { "-".to_owned() } else { ids.join(",") }
}

//! `uvmctl ps`.

use std::{cmp::Reverse, collections::HashMap, io::Write, thread, time::Duration};

use api::{Counts, Process, ProcessSummaries, Processes, Status, Verdicts};
use clap::Args;

use crate::{
    client::{Client, Error, PAGE},
    filter::ProcessFilter,
    output::{
        Page, Screen, View,
        cell::Cell,
        table::{Column, Concession, Table},
    },
    policy,
    rates::{self, Baseline, Moment},
    resource::Kind,
    terminal::Style,
    text,
    words::{self, Headline},
};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// List processes that ended lately, too
    #[arg(long, short)]
    all: bool,

    /// Show sums since uvmd counts instead of rates
    #[arg(long, short)]
    totals: bool,

    /// Window of the rates in seconds; with --watch, of the first rates alone
    #[arg(long, short, value_name = "SECONDS", default_value = "1", value_parser = rates::interval, conflicts_with = "totals")]
    interval: Duration,

    #[command(flatten)]
    filter: ProcessFilter,
}

/// Column of a counter: titles of the sum and of the rate, value and format.
#[derive(Clone, Copy)]
struct Counter {
    total: &'static str,
    rate: &'static str,
    value: fn(&Counts) -> Option<u64>,
    shown: rates::Formatter,
    is_wide: bool,
}

const fn counter(
    total: &'static str,
    rate: &'static str,
    value: fn(&Counts) -> Option<u64>,
    shown: rates::Formatter,
) -> Counter {
    Counter { total, rate, value, shown, is_wide: false }
}

/// Counter for `--output wide` only.
const fn wide(counter: Counter) -> Counter {
    Counter { is_wide: true, ..counter }
}

const COUNTERS: [Counter; 12] = [
    counter("FAULTS", "FAULTS/s", |counts| Some(counts.fault_entries), text::count),
    counter("H2D", "H2D/s", |counts| Some(counts.bytes_htod), text::bytes),
    counter("D2H", "D2H/s", |counts| Some(counts.bytes_dtoh), text::bytes),
    counter("EVICTED", "EVICTED/s", |counts| counts.evicted_bytes, text::bytes),
    counter("INDUCED", "INDUCED/s", |counts| counts.induced_eviction_bytes, text::bytes),
    wide(counter("INSTANCES", "INSTANCES/s", |counts| counts.fault_instances, text::count)),
    wide(counter("BATCHES", "BATCHES/s", |counts| counts.batches, text::count)),
    wide(counter("CPU-FAULTS", "CPU-FAULTS/s", |counts| Some(counts.cpu_faults), text::count)),
    wide(counter("EVICTIONS", "EVICTIONS/s", |counts| counts.evictions, text::count)),
    wide(counter("FREED", "FREED/s", |counts| counts.freed_blocks, text::count)),
    wide(counter("THRASH", "THRASH/s", |counts| counts.thrashing_pages, text::count)),
    wide(counter("REMOTE", "REMOTE/s", |counts| counts.remote_mapped_bytes, text::bytes)),
];

/// Reductions of the table. Name and verdict matter most: the name is shortened late, the verdict
/// never.
const CONCESSIONS: [Concession; 10] = [
    Concession::DropUnknown("RESIDENT"),
    Concession::Drop("INDUCED"),
    Concession::Shorten("OWNER", 12),
    Concession::Shorten("PROCESS", 12),
    Concession::Drop("GPU"),
    Concession::Drop("D2H"),
    Concession::Drop("MANAGED"),
    Concession::Drop("OWNER"),
    Concession::Drop("FAULTS"),
    Concession::Drop("RESIDENT"),
];

/// Processes, with earlier counts of each if rates are shown.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) processes: Processes,
    pub(crate) verdicts: Verdicts,
    pub(crate) before: Option<Vec<Baseline>>,
}

/// The view of processes, with the previous reading.
pub(crate) struct Ps {
    options: Options,
    before: Option<Processes>,
}

impl Ps {
    pub(crate) const fn new(options: Options) -> Self {
        Self { options, before: None }
    }

    /// Parameters of the filter, and of the state unless all are listed.
    fn selection(&self) -> String {
        let state = if self.options.all { "" } else { "&state=running" };
        state.to_owned() + &self.options.filter.query()
    }

    fn processes(&self, client: &Client) -> Result<Processes, Error> {
        let path = format!("/api/v1/processes/summary?order=id&limit={PAGE}{}", self.selection());
        client.list::<ProcessSummaries>(&path).map(busiest_first)
    }
}

impl View for Ps {
    fn page(&mut self, client: &Client, _: Screen) -> anyhow::Result<Page> {
        let Options { all, totals, interval, .. } = self.options;
        let before = match self.before.take() {
            None if !totals => {
                let first = self.processes(client)?;
                if !first.processes.is_empty() {
                    thread::sleep(interval);
                }
                Some(first)
            }
            before => before,
        };
        let processes = self.processes(client)?;
        if processes.processes.is_empty() {
            if !self.options.filter.query().is_empty() {
                return Ok(Page::nothing("no process matches the filter"));
            }
            return Ok(Page::nothing(empty_reason(&client.get::<Status>("/api/v1/status")?.body)));
        }
        if !totals {
            self.before = Some(processes.clone());
        }
        let before = before.map(|before| self::before(&before, &processes));
        let listing =
            Listing { processes, verdicts: client.list(&format!("/api/v1/verdicts?order=id&limit={PAGE}"))?, before };
        let is_lossy = listing.processes.processes.iter().any(|process| process.counts.dropped_events > 0);
        Ok(Page::list(table(&listing, all), &CONCESSIONS)
            .with_note(policy::acting(client)?.map(acting))
            .with_note(unavailable(&listing.verdicts))
            .with_note(is_lossy.then_some("events were dropped: figures are lower bounds (see uvmctl status)")))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        let first = format!("/api/v1/processes?limit={PAGE}{}", self.selection());
        client.pass_on(&first, &format!("{first}&order=id"), "processes", out)
    }

    fn columns(&self) -> Vec<String> {
        let Options { all, totals, .. } = self.options;
        table(&Listing { before: (!totals).then(Vec::new), ..Listing::default() }, all).column_names()
    }
}

/// Sorts running processes first, then by pages faulted on or copied, like the daemon. The daemon's
/// own order may change between the pages of a list.
pub(crate) fn busiest_first(summaries: ProcessSummaries) -> Processes {
    const PAGE_BYTES: u64 = 4096;
    let ProcessSummaries { time, processes, .. } = summaries;
    let mut processes: Vec<Process> = processes.into_iter().map(Process::from).collect();
    processes.sort_by_key(|process| {
        let Counts { fault_entries, cpu_faults, bytes_htod, bytes_dtoh, bytes_dtod, .. } = &process.counts;
        let bytes = bytes_htod.saturating_add(*bytes_dtoh).saturating_add(bytes_dtod.unwrap_or(0));
        let busyness = fault_entries.saturating_add(*cpu_faults).saturating_add(bytes / PAGE_BYTES);
        (process.state == "exited", Reverse(busyness))
    });
    Processes { time, processes, ..Processes::default() }
}

/// Note on whether uvmd acts.
const fn acting(is_active: bool) -> &'static str {
    if is_active { "acting: on" } else { "acting: off (see uvmctl policy show)" }
}

/// Note on unavailable verdicts, which would otherwise read as no verdict.
fn unavailable(verdicts: &Verdicts) -> Option<String> {
    let kinds: Vec<_> = verdicts.unavailable.iter().map(|each| text::printable(&each.label)).collect();
    (!kinds.is_empty())
        .then(|| format!("verdicts that uvmd cannot give: {} (see uvmctl explain PID)", kinds.join(", ")))
}

/// Earlier counts of each process, from the first reading; zero for a new process.
pub(crate) fn before(first: &Processes, now: &Processes) -> Vec<Baseline> {
    let moment = |of: &Processes| Moment { taken: humantime::parse_rfc3339(&of.time).ok(), counting_started_at: None };
    let seconds = moment(now).seconds_since(moment(first));
    let known: HashMap<_, _> =
        first.processes.iter().map(|process| ((process.pid, process.start_ticks), &process.counts)).collect();
    let zero = Counts::default();
    let before = |process: &Process| {
        let earlier = known.get(&(process.pid, process.start_ticks)).copied().unwrap_or(&zero);
        seconds.map(|seconds| Baseline::new(earlier, seconds, &process.counts)).unwrap_or_default()
    };
    now.processes.iter().map(before).collect()
}

/// Reason for an empty list.
fn empty_reason(status: &Status) -> String {
    if status.state == "counting" {
        return "no process uses managed memory".to_owned();
    }
    let reasons: Vec<_> = status.reasons.iter().map(|reason| text::printable(reason)).collect();
    format!("uvmd is not counting ({}): {}", text::printable(&status.state), reasons.join("; "))
}

pub(crate) fn table(listing: &Listing, with_state: bool) -> Table {
    let Listing { processes: Processes { time: now, processes, .. }, before, .. } = listing;
    let cells = |cell: fn(&Process) -> Cell| processes.iter().map(cell);
    let mut columns = vec![
        Column::number("PID", cells(|process| Cell::ordinal(process.pid))),
        Column::text("PROCESS", cells(|process| text::printable(&process.name).into_owned().into())),
        Column::text("OWNER", cells(|process| words::owner(process).into())),
        Column::text("USER", cells(|process| words::user(process).into())).wide(),
        Column::text("GPU", cells(|process| gpu_ids(process).into())),
        Column::number("MANAGED", cells(|process| Cell::known(process.managed_bytes, text::bytes))),
        Column::number(
            "RESIDENT",
            cells(|process| Cell::known(process.resident.map(|resident| resident.bytes), text::bytes)),
        ),
    ];
    columns.extend(COUNTERS.iter().map(|Counter { total, rate, value, shown, is_wide }| {
        let column = match before {
            None => Column::number(total, processes.iter().map(|process| Cell::known(value(&process.counts), *shown))),
            Some(before) => {
                let rates = processes.iter().zip(before).map(|(process, before)| before.rate(&process.counts, value));
                Column::number(rate, rates.map(|rate| Cell::rate(rate, *shown)))
            }
        };
        if *is_wide { column.wide() } else { column }
    }));
    let verdict = |process: &Process| {
        let headline = Headline::of(process, now);
        Cell::optional(headline.map(|headline| headline.within(usize::MAX)))
    };
    columns.push(Column::text("VERDICT", processes.iter().map(verdict)));
    let cgroup = |process: &Process| Cell::optional(process.cgroup.as_deref().map(text::printable));
    columns.push(Column::text("CGROUP", processes.iter().map(cgroup)).wide());
    if with_state {
        columns.push(Column::text("STATE", cells(|process| text::printable(&process.state).into_owned().into())));
    }
    Table::new(columns, processes.iter().map(style).collect())
        .named(processes.iter().map(|process| Kind::Process.named(process.pid)))
}

fn style(process: &Process) -> Style {
    match (process.state.as_str(), process.verdicts.is_empty()) {
        ("exited", _) => Style::Faded,
        (_, false) => Style::Warning,
        _ => Style::Plain,
    }
}

fn gpu_ids(process: &Process) -> String {
    let ids: Vec<_> = process.gpus.iter().map(|gpu| text::gpu(&gpu.id)).collect();
    if ids.is_empty() { "-".to_owned() } else { ids.join(",") }
}

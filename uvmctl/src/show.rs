//! `uvmctl show`.

use std::{fmt::Write as _, io};

use api::{Block, Evictor, Owner, Process, ProcessDetail, ProcessGpu, VerdictSummary};
use clap::Args;

use crate::{
    client::Client,
    completion,
    explain::finding,
    output::{
        Page, Screen, View,
        cell::Cell,
        table::{Column, Concession, Table},
    },
    resource::{self, Kind},
    summary,
    terminal::{Colour, Style},
    text, words,
};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Process
    #[arg(value_parser = resource::process, add = completion::processes())]
    pid: u32,

    /// Start time of the process in clock ticks since boot [default: the running process, else the
    /// last one]
    #[arg(long, value_name = "TICKS")]
    start_ticks: Option<u64>,

    /// Maximum number of blocks
    #[arg(long, short = 'n', value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=64))]
    blocks: u32,
}

/// The view of one process.
pub(crate) struct One(pub(crate) Options);

impl One {
    fn path(&self) -> String {
        let Options { pid, start_ticks, blocks } = self.0;
        let start = start_ticks.map(|ticks| format!("&start_ticks={ticks}")).unwrap_or_default();
        format!("/api/v1/processes/{pid}?blocks={blocks}{start}")
    }
}

impl View for One {
    fn page(&mut self, client: &Client, Screen { width, colour }: Screen) -> anyhow::Result<Page> {
        let detail = client.get::<ProcessDetail>(&self.path())?.body;
        let redacted = || format!("its command line and its blocks require read permission: {}", client.remedy());
        let is_lossy = detail.process.counts.dropped_events > 0;
        Ok(Page::text(render(&detail, width, colour)?)
            .named(Kind::Process.named(detail.process.pid))
            .with_note(detail.redacted.then(redacted))
            .with_note(is_lossy.then_some("events were dropped: figures are lower bounds (see uvmctl status)")))
    }

    fn json(&mut self, client: &Client, out: &mut dyn io::Write) -> anyhow::Result<()> {
        client.pass_on_one::<ProcessDetail>(&self.path(), out)
    }
}

pub(crate) fn render(detail: &ProcessDetail, width: Option<usize>, colour: Colour) -> Result<String, std::fmt::Error> {
    let ProcessDetail { process, command_line, blocks, .. } = detail;
    let mut out = String::new();
    let mut line =
        |title: &str, text: &str| writeln!(out, "{} {text}", colour.paint(Style::Heading, &format!("{title:<9}")));
    line("Process", &format!("{} {}", process.pid, text::printable(&process.name)))?;
    if let Some(command_line) = command_line {
        line("Command", &text::printable(command_line))?;
    }
    line("State", &state(process, colour))?;
    if let Some(time) = &process.counted_from {
        line("Counted", &format!("from {} on; not what it did before", text::printable(time)))?;
    }
    for text in problems(process) {
        line("Verdict", &colour.paint(Style::Warning, &text))?;
    }
    line("User", &words::user(process))?;
    if let Some(owner) = owner(&process.owner) {
        line("Owner", &owner)?;
    }
    if let Some(cgroup) = &process.cgroup {
        line("Cgroup", &text::printable(cgroup))?;
    }
    if let Some(bytes) = process.managed_bytes {
        let resident = finding::resident(process.resident);
        line("Managed", &format!("{} mapped; {resident} in GPU memory", text::bytes(bytes)))?;
    }
    for (title, text) in summary::lines(&process.counts) {
        line(title, &text)?;
    }
    let Process { counts, reuse, .. } = process;
    if let Some(reuse) = reuse.filter(|reuse| reuse.fetched_bytes > 0) {
        let share = |bytes| text::share(bytes, reuse.fetched_bytes);
        let (refetched, reclaimed) = (share(reuse.refetched_bytes), share(reuse.cpu_reclaimed_bytes));
        line(
            "Reuse",
            &format!(
                "of fetched bytes, {refetched} refetched after eviction, {reclaimed} reclaimed by CPU faults before"
            ),
        )?;
    }
    if let Some(induced_evictions) = counts.induced_evictions.filter(|evictions| *evictions > 0) {
        let bytes = text::known_bytes(counts.induced_eviction_bytes);
        let chunks = text::counted(induced_evictions, "chunk");
        line("Induced", &format!("{bytes} of any process evicted for it, in {chunks}"))?;
    }
    if let Some(table) = summary::distributions(counts) {
        write!(out, "\n{}", table.render(colour))?;
    }
    if !process.gpus.is_empty() {
        const CONCESSIONS: [Concession; 1] = [Concession::Shorten("UUID", 13)];
        write!(out, "\n{}", gpus(&process.gpus).known().fit(width, &CONCESSIONS).render(colour))?;
    }
    if !blocks.is_empty() {
        const CONCESSIONS: [Concession; 2] = [Concession::Drop("LAST (UTC)"), Concession::Drop("CPU-FLT")];
        write!(out, "\n{}", table(blocks, process).known().fit(width, &CONCESSIONS).render(colour))?;
    }
    writeln!(out, "\n{}", block_coverage(detail, colour))?;
    Ok(out)
}

/// Verdicts on a process, and its evictor.
fn problems(process: &Process) -> Vec<String> {
    let gpu =
        |uuid: Option<&str>| process.gpus.iter().find(|gpu| gpu.id.uuid.is_some() && gpu.id.uuid.as_deref() == uuid);
    let verdict = |verdict: &VerdictSummary| {
        let gpu = gpu(verdict.gpu_uuid.as_deref()).map_or_else(|| "a GPU".to_owned(), |gpu| text::gpu_label(&gpu.id));
        let (kind, since) = (text::printable(&verdict.label), finding::time_of_day(&verdict.started_at));
        format!("{kind} on {gpu} since {since} (uvmctl explain {})", process.pid)
    };
    let victim = |evictor: &Evictor| text::printable(&evictor.description()).into_owned();
    process.verdicts.iter().map(verdict).chain(process.victim_of.as_ref().map(victim)).collect()
}

/// Owner in all parts that the cgroup shows, outermost first.
fn owner(owner: &Owner) -> Option<String> {
    let Owner { kind: _, id: _, label: _, container, container_runtime, pod_uid, names, slurm_job, slurm_step, unit } =
        owner;
    let names = names.as_ref();
    let runtime = container_runtime.as_deref().map(|runtime| format!(" ({runtime})")).unwrap_or_default();
    let parts = [
        names.map(|names| format!("pod {}/{}", names.namespace, names.pod)),
        names.and_then(|names| names.workload.as_ref()).map(|workload| format!("workload {workload}")),
        pod_uid.as_ref().map(|uid| if names.is_some() { format!("UID {uid}") } else { format!("pod {uid}") }),
        names.and_then(|names| names.container.as_ref()).map(|container| format!("container {container}")),
        slurm_job.as_ref().map(|job| format!("Slurm job {job}")),
        slurm_step.as_ref().map(|step| format!("step {step}")),
        container.as_ref().map(|id| format!("container ID {id}{runtime}")),
        unit.as_ref().map(|unit| format!("unit {unit}")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().map(|part| text::printable(&part).into_owned()).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn state(process: &Process, colour: Colour) -> String {
    let at = |time: &Option<String>| match time.as_deref() {
        Some(time) => text::printable(time).into_owned(),
        None => "an unknown time".to_owned(),
    };
    if process.state == "exited" {
        return format!("{} at {}", colour.paint(Style::Faded, "exited"), at(&process.exited_at));
    }
    format!("{} since {}", colour.paint(Style::Good, &text::printable(&process.state)), at(&process.started_at))
}

fn gpus(gpus: &[ProcessGpu]) -> Table {
    let cells = |cell: fn(&ProcessGpu) -> String| gpus.iter().map(cell);
    let known = |cell: fn(&ProcessGpu) -> Cell| gpus.iter().map(cell);
    let uuid = |gpu: &ProcessGpu| {
        gpu.id.uuid.as_deref().map_or_else(|| "-".to_owned(), |uuid| text::printable(uuid).into_owned())
    };
    let columns = vec![
        Column::number("GPU", cells(|gpu| text::gpu(&gpu.id))),
        Column::number("FAULTS", cells(|gpu| text::count(gpu.counts.fault_entries))),
        Column::number("BATCHES", known(|gpu| Cell::known(gpu.counts.batches, text::count))),
        Column::number("H2D", cells(|gpu| text::bytes(gpu.counts.bytes_htod))),
        Column::number("D2H", cells(|gpu| text::bytes(gpu.counts.bytes_dtoh))),
        Column::number("EVICTED", known(|gpu| Cell::known(gpu.counts.evicted_bytes, text::bytes))),
        Column::number("RESIDENT", known(|gpu| Cell::known(gpu.resident.map(|resident| resident.bytes), text::bytes))),
        Column::text("UUID", cells(uuid)),
    ];
    Table::new(columns, vec![Style::Plain; gpus.len()])
}

fn table(blocks: &[Block], process: &Process) -> Table {
    let cells = |cell: fn(&Block) -> String| blocks.iter().map(cell);
    let counts =
        |count: fn(&Block) -> Option<u64>| blocks.iter().map(move |block| Cell::known(count(block), text::count));
    let gpu = |block: &Block| {
        let uuid = block.gpu_uuid.as_deref()?;
        process.gpus.iter().find(|gpu| gpu.id.uuid.as_deref() == Some(uuid))
    };
    let columns = vec![
        Column::number("BLOCK", cells(|block| text::printable(&block.address).into_owned())),
        Column::number(
            "GPU",
            blocks.iter().map(|block| gpu(block).map_or_else(|| "-".to_owned(), |gpu| text::gpu(&gpu.id))),
        ),
        Column::number("FAULTS", counts(|block| block.fault_entries)),
        Column::number("CPU-FLT", counts(|block| block.cpu_faults)),
        Column::number("H2D", cells(|block| text::bytes(block.bytes_htod))),
        Column::number("D2H", cells(|block| text::bytes(block.bytes_dtoh))),
        Column::number("EVICTED", cells(|block| text::bytes(block.evicted_bytes))),
        Column::number("EVICTIONS", counts(|block| block.evictions)),
        Column::number("LAST (UTC)", cells(|block| time_of_day(&block.last_seen_at))),
    ];
    Table::new(columns, vec![Style::Plain; blocks.len()])
}

/// `14:06:23` of an RFC 3339 time.
fn time_of_day(time: &str) -> String {
    let (_, of_day) = time.split_once('T').unwrap_or_default();
    text::printable(of_day.get(..8).unwrap_or("-")).into_owned()
}

/// Number of known blocks, and the certainty of their figures.
fn block_coverage(detail: &ProcessDetail, colour: Colour) -> String {
    let ProcessDetail {
        redacted,
        blocks,
        blocks_known,
        blocks_forgotten,
        block_records_sampled_out,
        block_records_dropped,
        ..
    } = detail;
    if *blocks_known == 0 {
        return "No 2 MiB block of it is known".to_owned();
    }
    let shown = if *redacted {
        format!("{} of 2 MiB are known", text::counted(*blocks_known, "block"))
    } else {
        format!("{} of {} blocks of 2 MiB, busiest first", blocks.len(), text::count(*blocks_known))
    };
    let losses: Vec<_> = [
        (block_records_sampled_out, "records sampled out, as too many came at once"),
        (block_records_dropped, "records dropped for lack of space"),
        (blocks_forgotten, "blocks forgotten for lack of space"),
    ]
    .into_iter()
    .filter(|(count, _)| **count > 0)
    .map(|(count, what)| format!("{} {what}", text::count(*count)))
    .collect();
    if losses.is_empty() {
        return shown;
    }
    let sampled = format!("blocks' figures are lower bounds ({})", losses.join(", "));
    format!("{shown}; {}", colour.paint(Style::Warning, &sampled))
}

//! Detail pane of one process, down to the blocks of its memory.

use std::{collections::BTreeMap, time::SystemTime};

use api::{Block, Counts, Distribution, Process, ProcessDetail};
use ratatui_core::text::{Line, Span};

use super::{evidence, wrapped};
use crate::{
    look::Look,
    text,
    top::{columns::Row, state::State},
};

/// At most `most` lines: verdicts first, then ranges, counts, and blocks.
pub(crate) fn lines(state: &State, row: &Row, look: Look, width: usize, most: usize) -> Vec<Line<'static>> {
    let process = &row.process;
    let mut lines = vec![title(process, look, width)];
    lines.extend(evidence::decisions(process, look, width));
    let detailed = match state.detail() {
        None => return with_counts(lines, process, state, look, width, vec![Line::raw("Loading")], most),
        Some(Err(error)) => {
            let error = Line::raw(format!("No data: {}", look.text(&error.to_string())));
            return with_counts(lines, process, state, look, width, vec![error], most);
        }
        Some(Ok(detailed)) => detailed,
    };
    lines.extend(evidence::verdicts(state, detailed, look, width));
    let left = most.saturating_sub(lines.len());
    let mut ranges = evidence::ranges(state, detailed, look, width);
    // With a verdict, the ranges matter more than the counts.
    ranges.truncate(if lines.len() > 1 { left } else { left / 3 });
    lines.extend(ranges);
    let blocks = blocks(&detailed.process, process, look, width);
    // The detailed process has the breakdowns, which summaries lack.
    with_counts(lines, &detailed.process.process, state, look, width, blocks, most)
}

/// Appends counts and blocks; each gets half of the remaining lines if both need them.
fn with_counts(
    mut lines: Vec<Line<'static>>,
    process: &Process,
    state: &State,
    look: Look,
    width: usize,
    blocks: Vec<Line<'static>>,
    most: usize,
) -> Vec<Line<'static>> {
    let about = about(process, state, look).into_iter().flat_map(|text| wrapped(&text, width)).map(Line::raw);
    let left = most.saturating_sub(lines.len());
    lines.extend(about.take(left.saturating_sub(blocks.len().min(left / 2))));
    lines.extend(blocks);
    lines.truncate(most);
    lines
}

fn title(process: &Process, look: Look, width: usize) -> Line<'static> {
    let managed = process.managed_bytes.map(|bytes| format!("{} managed", text::bytes(bytes)));
    let resident = process.resident.map(|resident| format!("{} resident", text::bytes(resident.bytes)));
    let memory: Vec<_> = managed.into_iter().chain(resident.filter(|_| process.managed_bytes.is_some())).collect();
    let memory = if memory.is_empty() { String::new() } else { format!(": {}", memory.join(", ")) };
    let title = format!("-- {} {}{memory} ", process.pid, look.text(&process.name));
    Line::styled(format!("{title:-<width$}"), look.strong())
}

/// Counts, most important first, without those at 0.
fn about(process: &Process, state: &State, look: Look) -> Vec<String> {
    let Counts {
        fault_entries,
        fault_instances,
        cpu_faults,
        populated_bytes,
        evictions,
        evicted_bytes,
        induced_evictions,
        induced_eviction_bytes,
        batches,
        batch_entries,
        batch_duration_ns,
        replays,
        thrashing_pages,
        throttles,
        throttled_ns,
        remote_mappings,
        remote_mapped_bytes,
        dropped_events,
        ..
    } = &process.counts;
    let count = |value: &u64| text::count(*value);
    let known = |value: &Option<u64>| text::known(*value, text::count);
    let exceeds_zero = |values: &[&Option<u64>]| values.iter().any(|value| value.is_some_and(|value| value > 0));
    let directions = [("htod", "H2D"), ("dtoh", "D2H"), ("dtod", "D2D")];
    let copied = directions.iter().filter_map(|(direction, what)| {
        let by_cause = process.counts.bytes_by_cause.as_ref()?.get(*direction)?;
        let total: u64 = by_cause.values().sum();
        (total > 0).then(|| format!("{what} {}: {}", text::bytes(total), by_kind(by_cause, text::bytes, look)))
    });
    // Summaries lack this distribution.
    let entries = batch_entries.as_ref().filter(|entries| Some(entries.count) == *batches);
    let entries = entries.map(|entries| format!("entries {}; ", quantiles(entries, text::count))).unwrap_or_default();
    let mut lines = vec![format!(
        "GPU faults {} ({} before coalescing), CPU faults {}{}",
        count(fault_entries),
        known(fault_instances),
        count(cpu_faults),
        replays.map(|replays| format!("; replays {}", text::count(replays))).unwrap_or_default()
    )];
    lines.extend(batch_duration_ns.as_ref().map(|duration| {
        format!(
            "Batches {}: {entries}service {} max {}",
            known(batches),
            quantiles(duration, text::nanoseconds),
            text::nanoseconds(duration.max)
        )
    }));
    lines.extend(copied);
    let mut if_any = |any: bool, line: String| lines.extend(any.then_some(line));
    if_any(
        exceeds_zero(&[evicted_bytes, evictions, induced_evictions]),
        [
            Some(format!("Evicted of it {}", evicted(*evicted_bytes, *evictions))),
            induced_eviction_bytes.map(|bytes| format!(", for it {}", evicted(Some(bytes), *induced_evictions))),
            populated_bytes.map(|bytes| format!("; first touched {}", text::bytes(bytes))),
        ]
        .into_iter()
        .flatten()
        .collect(),
    );
    if_any(
        exceeds_zero(&[thrashing_pages, throttles]),
        format!(
            "Thrashing pages {}, throttled {} times, {} in total",
            known(thrashing_pages),
            known(throttles),
            text::known(*throttled_ns, text::nanoseconds)
        ),
    );
    if_any(
        exceeds_zero(&[remote_mappings]),
        format!(
            "Remote mappings {} of {}{}",
            known(remote_mappings),
            text::known_bytes(*remote_mapped_bytes),
            process
                .counts
                .remote_mapped_bytes_by_cause
                .as_ref()
                .map(|causes| because(causes, look))
                .unwrap_or_default()
        ),
    );
    let calls =
        [("Own calls:", &process.counts.api_calls_by_kind), ("Calls by tools:", &process.counts.tool_calls_by_kind)];
    for (who, calls) in calls.into_iter().filter_map(|(who, calls)| Some((who, calls.as_ref()?))) {
        if_any(calls.values().any(|calls| *calls > 0), format!("{who} {}", by_kind(calls, text::count, look)));
    }
    if_any(*dropped_events > 0, format!("{} events dropped: figures are lower bounds", count(dropped_events)));
    lines.push(identity(process, state, look));
    lines
}

/// `588 MiB in 294`
fn evicted(bytes: Option<u64>, evictions: Option<u64>) -> String {
    let chunks = evictions.map(|evictions| format!(" in {}", text::count(evictions))).unwrap_or_default();
    text::known_bytes(bytes) + &chunks
}

fn identity(process: &Process, state: &State, look: Look) -> String {
    let time = |text: &str| humantime::parse_rfc3339(text).ok();
    let age = |since: SystemTime| time(&state.samples.status.time)?.duration_since(since).ok().map(text::duration);
    let since = |what: &str, at: &Option<String>| Some(format!("{what} {} ago", age(time(at.as_deref()?)?)?));
    let user = match &process.user {
        Some(user) => format!("user {} ({})", look.text(user), process.uid),
        None => format!("uid {}", process.uid),
    };
    let managed = process.managed_bytes.map(|bytes| format!("{} of managed memory", text::bytes(bytes)));
    let parts = [
        managed,
        Some(user),
        since("started", &process.started_at),
        since("exited", &process.exited_at),
        process.cgroup.as_deref().map(|cgroup| format!("cgroup {}", look.text(cgroup))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Bytes by cause; empty if unknown.
fn because(causes: &BTreeMap<String, u64>, look: Look) -> String {
    if causes.is_empty() { String::new() } else { format!(": {}", by_kind(causes, text::bytes, look)) }
}

/// Values by kind, largest first, without those at 0.
fn by_kind(kinds: &BTreeMap<String, u64>, shown: fn(u64) -> String, look: Look) -> String {
    let mut kinds: Vec<_> = kinds.iter().filter(|(_, value)| **value > 0).collect();
    kinds.sort_by_key(|(_, value)| std::cmp::Reverse(**value));
    let kinds: Vec<_> = kinds
        .into_iter()
        .map(|(kind, value)| format!("{} {}", look.text(&kind.replace('_', " ")), shown(*value)))
        .collect();
    kinds.join(", ")
}

fn quantiles(of: &Distribution, shown: fn(u64) -> String) -> String {
    format!("p50 {} p99 {}", shown(of.p50), shown(of.p99))
}

// === blocks ===

/// Column of the blocks: title, width and text, which is `None` where it is not counted.
type Figure = (&'static str, usize, fn(&Block) -> Option<String>);

const FIGURES: [Figure; 6] = [
    ("FAULTS", 6, |block| block.fault_entries.map(text::count)),
    ("CPUFLT", 6, |block| block.cpu_faults.map(text::count)),
    ("H2D", 8, |block| Some(text::bytes(block.bytes_htod))),
    ("D2H", 8, |block| Some(text::bytes(block.bytes_dtoh))),
    ("EVICTED", 8, |block| Some(text::bytes(block.evicted_bytes))),
    ("TIMES", 6, |block| block.evictions.map(text::count)),
];

fn blocks(detail: &ProcessDetail, process: &Process, look: Look, width: usize) -> Vec<Line<'static>> {
    // The line of the ranges has the reason.
    if detail.redacted {
        return Vec::new();
    }
    let busiest = detail.blocks.iter().map(busyness).max().unwrap_or(0);
    let gpu = |block: &Block| {
        let known = process.gpus.iter().find(|gpu| gpu.id.uuid.is_some() && gpu.id.uuid == block.gpu_uuid);
        known.map_or_else(|| "-".to_owned(), |gpu| text::gpu(&gpu.id))
    };
    // A GPU without an index has its UUID's first digits.
    let gpu_width = detail.blocks.iter().map(|block| gpu(block).len()).max().unwrap_or(0).max("GPU".len());
    let mut lines = vec![blocks_title(detail, look)];
    let is_known = |(_, _, figure): &&Figure| detail.blocks.iter().any(|block| figure(block).is_some());
    let columns: Vec<_> = FIGURES.iter().filter(is_known).collect();
    if !detail.blocks.is_empty() {
        let titles: Vec<_> = columns.iter().map(|&&(title, width, _)| format!("{title:>width$}")).collect();
        let heading = format!(" {:<14} {:>gpu_width$} {}", "ADDRESS", "GPU", titles.join(" "));
        lines.push(Line::styled(format!("{heading:<width$}"), Look::HEADING));
    }
    lines.extend(detail.blocks.iter().map(|block| {
        let cell =
            |&&(_, width, figure): &&Figure| format!("{:>width$}", figure(block).unwrap_or_else(|| "-".to_owned()));
        let cells: Vec<_> = columns.iter().map(cell).collect();
        let figures = format!(" {:<14} {:>gpu_width$} {} ", look.text(&block.address), gpu(block), cells.join(" "));
        let bar =
            Look::bar(busyness(block) as f64 / busiest.max(1) as f64, width.saturating_sub(figures.len()).min(40));
        Line::raw(figures + bar.trim_end())
    }));
    lines
}

fn blocks_title(detail: &ProcessDetail, look: Look) -> Line<'static> {
    let ProcessDetail { blocks_known, blocks_forgotten, block_records_sampled_out, block_records_dropped, .. } = detail;
    let missing = block_records_sampled_out + block_records_dropped;
    let mut spans = vec![Span::raw(format!("Busiest of {} blocks of 2 MiB", text::count(*blocks_known)))];
    if *blocks_forgotten > 0 {
        spans.push(Span::raw(format!(" ({} forgotten)", text::count(*blocks_forgotten))));
    }
    if missing > 0 {
        let bound = format!("; LOWER BOUNDS: {} records missing", text::count(missing));
        spans.push(Span::styled(bound, look.strong()));
    }
    Line::from(spans)
}

/// Pages faulted on or copied, as the daemon ranks them.
fn busyness(block: &Block) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let bytes = block.bytes_htod.saturating_add(block.bytes_dtoh).saturating_add(block.bytes_dtod);
    [block.fault_entries, block.cpu_faults].into_iter().flatten().fold(bytes / PAGE_BYTES, u64::saturating_add)
}

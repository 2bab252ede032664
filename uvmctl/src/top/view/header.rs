//! Header: node, remarks, and GPUs.

use std::time::Instant;

use api::GpuDetail;
use ratatui_core::{
    style::Style,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr;

use super::{parts_that_fit, wrapped};
use crate::{
    look::Look,
    rates, text,
    top::{
        columns::{Counter, Figures},
        samples::GpuRow,
        state::State,
    },
    words,
};

/// Maximum lines of a remark.
const REMARK_LINES: usize = 3;
/// Maximum width of a history chart: one character per second.
const SPARKLINE_MAX: usize = 60;

/// Header of at most `most` lines, if `most` exceeds a few.
pub(crate) fn header(state: &State, look: Look, width: usize, most: usize, now: Instant) -> Vec<Line<'static>> {
    let mut lines = vec![title(state, look, width)];
    for (text, style) in remarks(state, look, now) {
        lines.extend(wrapped(&text, width).into_iter().take(REMARK_LINES).map(|line| Line::styled(line, style)));
    }
    let room = most.saturating_sub(lines.len());
    lines.extend(gpus(state, look, width, room));
    lines
}

fn title(state: &State, look: Look, width: usize) -> Line<'static> {
    let status = &state.samples.status;
    let driver = status.driver.as_ref().map_or_else(
        || "no driver".to_owned(),
        |driver| match &status.layout {
            Some(layout) => format!("driver {} ({})", look.text(driver), look.text(layout)),
            None => format!("driver {}", look.text(driver)),
        },
    );
    let counting = match state.samples.counting_for() {
        Some(age) => format!("counts for {}", text::duration(age)),
        None => look.text(&status.state),
    };
    let drops = format!("drops {}", text::count(status.dropped_events));
    let acting = state.samples.acting.map(|is_active| format!("acting: {}", if is_active { "on" } else { "off" }));
    let rest = [counting, look.text(&status.backend), format!("uvmd {}", look.text(&status.version))];
    // In order of importance: the last parts are dropped first.
    let parts = [driver].into_iter().chain(acting).chain(rest);
    let hostname = look.text(&status.hostname);
    let room = width.saturating_sub(hostname.width() + drops.width() + 4);
    let drops_style = if status.dropped_events > 0 { look.alarm() } else { Style::new() };
    Line::from(vec![
        Span::styled(hostname, look.strong()),
        Span::raw("  "),
        Span::styled(drops, drops_style),
        Span::raw(format!("  {}", parts_that_fit(parts, room))),
    ])
}

/// Remarks that qualify the figures.
fn remarks(state: &State, look: Look, now: Instant) -> Vec<(String, Style)> {
    let status = &state.samples.status;
    let mut remarks = Vec::new();
    if let Some((age, reason)) = state.silence(now) {
        let since = text::duration(age);
        remarks.push((format!("NO RESPONSE for {since}, figures are that old: {}", look.text(reason)), look.alarm()));
    }
    let reasons = status.reasons.iter().map(|reason| look.text(reason));
    match status.state.as_str() {
        "counting" => remarks.extend(reasons.map(|reason| (format!("Note: {reason}"), Style::new()))),
        "waiting" => {
            remarks
                .push(("WAITING: uvmd does not count yet, and retries by itself. Missing:".to_owned(), look.alarm()));
            remarks.extend(reasons.map(|reason| (format!("- {reason}"), Style::new())));
        }
        other => {
            remarks.push((format!("{}: this driver is not supported.", look.text(other).to_uppercase()), look.alarm()));
            remarks.extend(reasons.map(|reason| (format!("- {reason}"), Style::new())));
        }
    }
    if status.dropped_events > 0 {
        let by_reason: Vec<_> = (status.dropped_events_by_reason.iter())
            .filter(|(_, events)| **events > 0)
            .map(|(reason, events)| format!("{} {}", look.text(reason), text::count(*events)))
            .collect();
        remarks.push((
            format!(
                "{} events dropped ({}): figures are lower bounds",
                text::count(status.dropped_events),
                by_reason.join(", ")
            ),
            look.alarm(),
        ));
    }
    remarks
}

// === GPUs ===

fn gpus(state: &State, look: Look, width: usize, room: usize) -> Vec<Line<'static>> {
    let gpus = &state.samples.gpus;
    let all = |gpu: &GpuRow| {
        let memory = memory(gpu, look, width);
        [figures(state, gpu, look, width)].into_iter().chain(memory).chain([bars(state, gpu, look, width)])
    };
    let full: Vec<_> = gpus.iter().flat_map(all).collect();
    if full.len() <= room {
        return full;
    }
    let shown = if gpus.len() <= room { gpus.len() } else { room.saturating_sub(1) };
    let more = (shown < gpus.len()).then(|| Line::raw(format!("and {} more GPUs not shown", gpus.len() - shown)));
    gpus.iter().take(shown).map(|gpu| short(state, gpu, look, width)).chain(more).collect()
}

fn per_second(rate: Option<f64>, shown: fn(u64) -> String) -> String {
    let per_second = if rate.is_some() { "/s" } else { "" };
    rates::per_second(rate, shown) + per_second
}

fn label(gpu: &GpuRow) -> String {
    text::gpu_label(&gpu.gpu.id)
}

/// `GPU0 H200  faults 20.5k/s  ...`
fn figures(state: &State, gpu: &GpuRow, look: Look, width: usize) -> Line<'static> {
    // `None` for what is not counted.
    let counted = |what: &str, counter: Counter, shown: fn(u64) -> String, width: usize| {
        let total = counter(&gpu.gpu.counts)?;
        Some(match state.settings.figures {
            Figures::Rates => format!("{what} {:>1$}", per_second(gpu.rate(counter), shown), width + 2),
            Figures::Totals => format!("{what} {:>width$}", shown(total)),
        })
    };
    let p99 = gpu.gpu.counts.batch_duration_ns.as_ref().map(|duration| {
        let time_ns = Some(duration.p99).filter(|time_ns| *time_ns > 0);
        format!("p99 {:>6}", text::known(time_ns, text::nanoseconds))
    });
    let name = gpu.gpu.name.as_deref().map(|name| look.text(name.trim_start_matches("NVIDIA "))).unwrap_or_default();
    let label = format!("{} {name}", label(gpu));
    let parts = [
        counted("faults", |counts| Some(counts.fault_entries), text::count, 5),
        counted("evicted", |counts| counts.evicted_bytes, text::bytes, 8),
        counted("batches", |counts| counts.batches, text::count, 5),
        p99,
        counted("replays", |counts| counts.replays, text::count, 5),
        counted("thrashing", |counts| counts.thrashing_pages, text::count, 5),
        counted("remote", |counts| counts.remote_mapped_bytes, text::bytes, 8),
        counted("d2d", |counts| counts.bytes_dtod, text::bytes, 8),
    ];
    let rest = width.saturating_sub(label.width() + 2);
    Line::from(vec![
        Span::styled(label, look.strong()),
        Span::raw(format!("  {}", parts_that_fit(parts.into_iter().flatten(), rest))),
    ])
}

/// Memory of the GPU: used, managed, and the ratio of managed memory; `None` if unknown.
fn memory(gpu: &GpuRow, look: Look, width: usize) -> Option<Line<'static>> {
    let GpuDetail { memory_bytes, memory_used_bytes, managed_bytes, resident, oversubscription_ratio, .. } =
        gpu.memory.as_ref()?;
    let ratio = oversubscription_ratio.map(|ratio| format!(" ({})", words::ratio(ratio))).unwrap_or_default();
    let managed = format!("managed {}{ratio}", text::bytes(*managed_bytes));
    let Some(memory) = memory_bytes.filter(|memory| *memory > 0) else {
        let resident = text::known_bytes(resident.map(|resident| resident.bytes));
        return (*managed_bytes > 0).then(|| Line::raw(format!("  mem {managed}, {resident} resident")));
    };
    if memory_used_bytes.is_none() && resident.is_none() {
        return Some(Line::raw(format!("  mem {}, use unknown  {managed}", text::bytes(memory))));
    }
    let resident = resident.map_or(0, |resident| resident.bytes);
    let used = memory_used_bytes.unwrap_or(resident).max(resident);
    let figures = format!("] {} of {}  {managed}", text::bytes(used), text::bytes(memory));
    let bar = width.saturating_sub("  mem [".len() + figures.width());
    let share = |bytes: u64| bytes as f64 / memory as f64;
    let (of_managed, of_all) = (Look::bar(share(resident), bar), Look::bar(share(used), bar));
    let others: String = of_all
        .chars()
        .zip(of_managed.chars())
        .filter(|(_, managed)| *managed == ' ')
        .map(|(all, _)| if all == '|' { ':' } else { ' ' })
        .collect();
    Some(Line::from(vec![
        Span::raw("  mem ["),
        Span::styled(of_managed.trim_end().to_owned(), look.htod()),
        Span::raw(others),
        Span::raw(figures),
    ]))
}

/// Bar and rate for each direction, and a chart of their sum over the last minute.
fn bars(state: &State, gpu: &GpuRow, look: Look, width: usize) -> Line<'static> {
    // "  h2d [", "] 1023 KiB/s" twice, and a gap.
    const BESIDE_BARS: usize = 2 * (7 + 12) + 2;
    let spare = width.saturating_sub(BESIDE_BARS);
    let spark_width = (spare / 2).min(SPARKLINE_MAX);
    let bar_width = (spare - spark_width) / 2;
    let mut spans = both_bars(state, gpu, look, bar_width, "  ");
    spans.push(Span::raw(format!("  {}", sparkline(gpu, look, spark_width))));
    Line::from(spans)
}

/// One-line form, for many GPUs.
fn short(state: &State, gpu: &GpuRow, look: Look, width: usize) -> Line<'static> {
    let label = label(gpu);
    let faults =
        format!("  {:>5} flt/s", rates::per_second(gpu.rate(|counts| Some(counts.fault_entries)), text::count));
    let spare = width.saturating_sub(label.width() + faults.width() + 2 * (6 + 12) + 1);
    let spark_width = (spare / 3).min(SPARKLINE_MAX);
    let mut spans = vec![Span::styled(label, look.strong())];
    spans.extend(both_bars(state, gpu, look, (spare - spark_width) / 2, " "));
    spans.push(Span::raw(format!("{faults} {}", sparkline(gpu, look, spark_width))));
    Line::from(spans)
}

/// Bars of both directions, scaled by the highest rate so far.
fn both_bars(state: &State, gpu: &GpuRow, look: Look, width: usize, gap: &'static str) -> Vec<Span<'static>> {
    let both = [("h2d", gpu.htod_rate(), look.htod()), ("d2h", gpu.dtoh_rate(), look.dtoh())];
    let bar = |(what, now, style): (&str, Option<f64>, _)| {
        let share = now.map_or(0.0, |now| now / state.samples.highest_rate.max(1.0));
        [
            Span::raw(format!("{gap}{what} [")),
            Span::styled(Look::bar(share, width), style),
            Span::raw(format!("] {:>10}", per_second(now, text::bytes))),
        ]
    };
    both.into_iter().flat_map(bar).collect()
}

/// Chart of the last minute, scaled by its maximum.
fn sparkline(gpu: &GpuRow, look: Look, width: usize) -> String {
    let minute = gpu.traffic.columns(width);
    let highest = minute.iter().flatten().copied().fold(0.0, f64::max);
    look.sparkline(minute, highest)
}

//! Self-contained HTML page with charts of memory and transfers over time, for light and dark
//! colour schemes.

use std::fmt::Write;

use sim::history::Stretch;

use super::{Figures, Report, seconds};
use crate::text;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const MEMORY: Plot = Plot { top: 8.0, height: 120.0 };
const LINK: Plot = Plot { top: 152.0, height: 96.0 };
const BOTTOM: f64 = 272.0;

/// Vertical extent of one plot.
#[derive(Clone, Copy)]
struct Plot {
    top: f64,
    height: f64,
}

/// Common scale of all charts of a page, so that they can be compared.
struct Scale {
    time_s: f64,
    bytes: f64,
    bytes_per_s: f64,
}

const STYLE: &str = "
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2430; --faint: #5d6979; --line: #d5dbe3; --memory: #9db8dd; --in: #1668c4; --out: #c2570c }
@media (prefers-color-scheme: dark) {
:root { --paper: #14181e; --ink: #e6eaf0; --faint: #9aa7b8; --line: #333c48; --memory: #35527c; --in: #62a8f5; --out: #f09a5b }
}
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 0 auto; padding: 1.5rem 1rem }
h1 { font-size: 1.3rem; margin: 0 } h2 { font-size: 1.05rem; margin: 2rem 0 0 }
p { margin: .2rem 0; color: var(--faint) } .figures { color: var(--ink); font-variant-numeric: tabular-nums }
figure { margin: .4rem 0 0; overflow-x: auto } svg { display: block; width: 100%; min-width: 40rem; height: auto } svg text { fill: var(--faint); font: 11px system-ui, sans-serif }
.grid { stroke: var(--line) } .limit { stroke: var(--ink); stroke-dasharray: 5 4; opacity: .7 } .memory { fill: var(--memory) }
.alive { fill: none; stroke: var(--ink); stroke-width: 1.5 } .in { fill: var(--in) } .out { fill: var(--out) }
.key span { display: inline-block; margin-right: 1.2rem } .key i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; vertical-align: -1px }
";

pub(super) fn page(report: &Report) -> String {
    let mut page = String::new();
    // Writing into a string does not fail.
    _ = write(&mut page, report);
    page
}

fn write(page: &mut String, report: &Report) -> std::fmt::Result {
    let title = escaped(&format!("{} with {} on {}", report.trace, text::bytes(report.gpu_bytes), report.machine));
    writeln!(page, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">")?;
    writeln!(page, "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>")?;
    writeln!(page, "<style>{STYLE}</style>\n<h1>{title}</h1>")?;
    writeln!(page, "<p>Modelled, not measured: one iteration in steady state. All charts have the same scales.</p>")?;
    for condition in report.conditions() {
        writeln!(page, "<p>{}</p>", escaped(&condition))?;
    }
    let key = [
        ("memory", "GPU memory in use"),
        ("ink", "live, at the GPU or elsewhere"),
        ("in", "to the GPU"),
        ("out", "to the host"),
    ];
    let key = key.map(|(name, what)| format!("<span><i style=\"background: var(--{name})\"></i>{what}</span>"));
    writeln!(page, "<p class=\"key\">{}</p>", key.concat())?;
    let scale = Scale::of(report);
    for figures in &report.policies {
        policy(page, report, figures, &scale)?;
    }
    for failure in &report.failed {
        let (policy, why) = (escaped(&failure.policy), escaped(&failure.why));
        writeln!(page, "<h2>{policy}</h2>\n<p class=\"figures\">Cannot run there: {why}</p>")?;
    }
    writeln!(page, "</html>")
}

fn policy(page: &mut String, report: &Report, figures: &Figures, scale: &Scale) -> std::fmt::Result {
    let outcome = &figures.outcome;
    let (time, stall) = (seconds(outcome.time_s), seconds(outcome.stall_s));
    let name = escaped(&figures.policy);
    writeln!(
        page,
        "<h2>{name}</h2>\n<p class=\"figures\">{time}, {} of ideal; kernels wait {stall}; {} to the GPU, {} to the host, {} pages faulted on</p>",
        text::percent(outcome.share_of_ideal),
        text::bytes(outcome.bytes_htod),
        text::bytes(outcome.bytes_dtoh),
        text::count(outcome.faults)
    )?;
    if figures.history.stretches().is_empty() {
        return writeln!(page, "<p>No transfers.</p>");
    }
    let most = text::bytes(outcome.peak_bytes);
    writeln!(
        page,
        "<figure>\n<svg viewBox=\"0 0 {WIDTH} {BOTTOM}\" role=\"img\" aria-label=\"{name}: GPU memory, at most {most}, and transfers over {time}\">"
    )?;
    memory(page, report, figures, scale)?;
    link(page, figures, scale)?;
    for (at, anchor) in [(0.0, "start"), (0.25, "middle"), (0.5, "middle"), (0.75, "middle"), (1.0, "end")] {
        let (x, label) = (LEFT + at * (WIDTH - LEFT), seconds(at * scale.time_s));
        writeln!(page, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label}</text>", BOTTOM - 6.0)?;
    }
    writeln!(page, "</svg>\n</figure>")
}

/// Memory chart: memory in use as an area, live memory as a line, the limit as a dashed line.
fn memory(page: &mut String, report: &Report, figures: &Figures, scale: &Scale) -> std::fmt::Result {
    let y = |bytes: u64| MEMORY.top + MEMORY.height * (1.0 - bytes as f64 / scale.bytes);
    let steps = |value: fn(&Stretch) -> u64| {
        let mut path = String::new();
        for (from, until, stretch) in scale.stretches(figures) {
            let y = y(value(stretch));
            _ = write!(path, " L{from:.1} {y:.1} L{until:.1} {y:.1}");
        }
        path.split_off(2)
    };
    let (base, end) = (y(0), scale.x(figures.outcome.time_s));
    let area = steps(|of| of.resident_bytes);
    writeln!(page, "<path class=\"memory\" d=\"M{LEFT} {base:.1} L{area} L{end:.1} {base:.1}Z\"/>")?;
    writeln!(page, "<path class=\"alive\" d=\"M{}\"/>", steps(|of| of.alive_bytes))?;
    for (class, bytes) in [("grid", 0), ("limit", report.gpu_bytes)] {
        let y = y(bytes);
        writeln!(page, "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>")?;
        writeln!(
            page,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            text::bytes(bytes)
        )?;
    }
    Ok(())
}

/// Transfer chart: to the GPU upwards, to the host downwards.
fn link(page: &mut String, figures: &Figures, scale: &Scale) -> std::fmt::Result {
    let middle = LINK.top + LINK.height / 2.0;
    let stretch_s = figures.history.stretch_ns() as f64 / 1e9;
    for (from, until, stretch) in scale.stretches(figures) {
        for (class, bytes) in [("in", stretch.to_gpu_bytes), ("out", stretch.to_host_bytes)] {
            let height = LINK.height / 2.0 * (bytes as f64 / stretch_s / scale.bytes_per_s).min(1.0);
            let y = if class == "in" { middle - height } else { middle };
            if height >= 0.05 {
                let width = until - from;
                writeln!(
                    page,
                    "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.1}\"/>"
                )?;
            }
        }
    }
    writeln!(page, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>")?;
    let most = format!("{}/s", text::bytes(rounded(scale.bytes_per_s)));
    for y in [LINK.top + 8.0, LINK.top + LINK.height] {
        writeln!(page, "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{most}</text>", LEFT - 6.0)?;
    }
    Ok(())
}

impl Scale {
    fn of(report: &Report) -> Self {
        let mut scale = Self { time_s: 1e-9, bytes: report.gpu_bytes as f64, bytes_per_s: 1.0 };
        for Figures { outcome, history, .. } in &report.policies {
            scale.time_s = scale.time_s.max(outcome.time_s);
            for stretch in history.stretches() {
                scale.bytes = scale.bytes.max(stretch.alive_bytes as f64);
                let moved_bytes = stretch.to_gpu_bytes.max(stretch.to_host_bytes);
                scale.bytes_per_s = scale.bytes_per_s.max(moved_bytes as f64 * 1e9 / history.stretch_ns() as f64);
            }
        }
        scale
    }

    fn x(&self, at_s: f64) -> f64 {
        LEFT + (WIDTH - LEFT) * at_s / self.time_s
    }

    /// Stretches with the coordinates of their begin and end.
    fn stretches<'a>(&'a self, figures: &'a Figures) -> impl Iterator<Item = (f64, f64, &'a Stretch)> {
        let stretch_s = figures.history.stretch_ns() as f64 / 1e9;
        let end_s = figures.outcome.time_s;
        let x_at = move |index: usize| self.x((index as f64 * stretch_s).min(end_s));
        figures.history.stretches().iter().enumerate().map(move |(at, of)| (x_at(at), x_at(at + 1), of))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

/// Escapes untrusted text, such as names from files, for HTML.
fn escaped(text: &str) -> String {
    let safe = text::printable(text);
    safe.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

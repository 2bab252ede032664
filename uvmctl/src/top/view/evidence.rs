//! Verdicts on one process, and its ranges.

use api::{DecisionSummary, HeatRange, Pattern, Process, Range, Verdict};
use ratatui_core::text::Line;

use super::wrapped;
use crate::{
    explain::{Evidence, finding},
    heat::{self, Measure},
    look::Look,
    text,
    top::{fetch::Detailed, state::State},
};

/// Active verdicts with their figures and victims; empty without verdicts.
pub(crate) fn verdicts(state: &State, detailed: &Detailed, look: Look, width: usize) -> Vec<Line<'static>> {
    let evidence: Evidence = state.samples.evidence(detailed);
    let mut lines = Vec::new();
    for verdict in &evidence.verdicts.active {
        let headline = finding::headline(verdict, &evidence.verdicts.time);
        lines.extend(wrapped(&look.text(&headline), width).into_iter().map(|line| Line::styled(line, look.warning())));
        let facts = [finding::reason(verdict)].into_iter().chain(finding::costs(&verdict.victims));
        lines.extend(facts.flat_map(|fact| wrapped(&look.text(&fact), width)).map(Line::raw));
    }
    lines
}

/// Decisions about the process.
pub(crate) fn decisions(process: &Process, look: Look, width: usize) -> Vec<Line<'static>> {
    let line =
        |decision: &DecisionSummary| format!("{} (uvmctl decisions {})", text::printable(&decision.label), decision.id);
    let lines = process.decisions.iter().flat_map(|decision| wrapped(&look.text(&line(decision)), width));
    lines.map(|line| Line::styled(line, look.strong())).collect()
}

/// Widths before a strip (address, size and pattern) and after it (refetched share).
const BEFORE_STRIP: usize = 1 + 14 + 1 + 8 + 1 + 10 + 1;
const AFTER_STRIP: usize = 1 + 9 + 1;

/// Table of ranges, busiest first.
pub(crate) fn ranges(state: &State, detailed: &Detailed, look: Look, width: usize) -> Vec<Line<'static>> {
    let Some(ranges) = &detailed.ranges else {
        return vec![Line::raw("The ranges require read permission: root, the socket's group, or a token")];
    };
    let room = width.saturating_sub(BEFORE_STRIP + AFTER_STRIP);
    let heat = detailed.heat.as_ref();
    let most = heat.map_or(0, |heat| Measure::Activity.most(heat));
    let process = &detailed.process.process;
    let is_of_process = |verdict: &&Verdict| (verdict.pid, verdict.start_ticks) == (process.pid, process.start_ticks);
    let verdicts = || state.samples.verdicts.active.iter().filter(is_of_process);
    let line = |range: &Range| {
        let map = heat.and_then(|heat| heat.ranges.iter().find(|map| map.begin == range.begin));
        let strip = |map: &HeatRange| heat::strip(map, Measure::Activity, most, room, look);
        let strip = map.map(strip).unwrap_or_default();
        // An active verdict has the recent share; else the share since the start of the process.
        let involved = verdicts().filter_map(|verdict| verdict.ranges.as_ref()).flatten();
        let refetched = involved.into_iter().find(|involved| involved.begin == range.begin).map_or_else(
            || text::share(range.counts.reuse.refetched_bytes, range.counts.reuse.fetched_bytes),
            |involved| text::percent(involved.refetch_ratio),
        );
        Line::raw(format!(
            " {:<14} {:>8} {} {strip:<room$} {refetched:>9}",
            look.text(&range.begin),
            text::bytes(range.bytes),
            pattern(&range.pattern),
        ))
    };
    let mut lines: Vec<_> = ranges.ranges.iter().map(line).collect();
    if !lines.is_empty() {
        let (range, bytes, kind, map) = ("RANGE", "SIZE", "PATTERN", "ACTIVITY BY ADDRESS");
        let heading = format!(" {range:<14} {bytes:>8} {kind:<10} {map:<room$} {:>9}", "REFETCHED");
        lines.insert(0, Line::styled(format!("{heading:<width$}"), Look::HEADING));
    }
    lines
}

fn pattern(pattern: &Pattern) -> String {
    text::left(&text::shortened(&text::printable(&pattern.kind).replace('_', " "), 10, '~'), 10)
}

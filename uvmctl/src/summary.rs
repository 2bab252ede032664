//! Sums as text, for `status` and `show`.

use std::collections::BTreeMap;

use api::{Counts, Distribution};

use crate::{
    output::table::{Column, Table},
    terminal::Style,
    text,
};

/// Lines with title and text. Counters at 0 are omitted where that carries no information.
pub(crate) fn lines(counts: &Counts) -> Vec<(&'static str, String)> {
    let Counts { fault_entries, fault_instances, cpu_faults, bytes_htod, bytes_dtoh, bytes_dtod, .. } = counts;
    let instances = fault_instances.map(|instances| format!(" ({} before coalescing)", text::count(instances)));
    let faults = format!(
        "{} on GPUs{}, {} on CPUs",
        text::count(*fault_entries),
        instances.unwrap_or_default(),
        text::count(*cpu_faults)
    );
    let copied = format!(
        "{} host to GPU, {} GPU to host, {} GPU to GPU",
        text::bytes(*bytes_htod),
        text::bytes(*bytes_dtoh),
        text::known_bytes(*bytes_dtod)
    );
    let mut lines = vec![("Faults", faults)];
    lines.extend(batches(counts).map(|batches| ("Batches", batches)));
    lines.push(("Copied", copied));
    let populated = |bytes| format!("{} without a copy", text::bytes(bytes));
    lines.push(("Populated", counts.populated_bytes.map_or_else(|| "-".to_owned(), populated)));
    lines.push(("Evicted", evicted(counts)));
    lines.extend(thrash(counts).map(|thrash| ("Thrash", thrash)));
    lines.extend(remote(counts).map(|remote| ("Remote", remote)));
    let calls = |title, calls: &Option<_>, bytes: &Option<_>| {
        self::calls(calls.as_ref(), bytes.as_ref()).map(|calls| (title, calls))
    };
    lines.extend(calls("Calls", &counts.api_calls_by_kind, &counts.api_bytes_by_kind));
    lines.extend(calls("Tools", &counts.tool_calls_by_kind, &counts.tool_bytes_by_kind));
    lines
}

fn batches(counts: &Counts) -> Option<String> {
    let Counts { batches, replays, .. } = counts;
    let replayed = replays.map(|replays| format!(", {}", text::counted(replays, "replay"))).unwrap_or_default();
    [*batches, *replays]
        .into_iter()
        .flatten()
        .any(|count| count > 0)
        .then(|| format!("{}{replayed}", text::known(*batches, text::count)))
}

fn evicted(counts: &Counts) -> String {
    let chunks = counts.evictions.map(|evictions| format!(" in {}", text::counted(evictions, "chunk")));
    format!("{}{}", text::known_bytes(counts.evicted_bytes), chunks.unwrap_or_default())
}

fn thrash(counts: &Counts) -> Option<String> {
    let known = |value: Option<u64>| value.filter(|value| *value > 0);
    let pages = known(counts.thrashing_pages).map(|pages| text::counted(pages, "thrashing page"));
    let throttles = known(counts.throttles).map(|throttles| {
        format!(
            "{} of {} in total",
            text::counted(throttles, "throttle"),
            text::known(counts.throttled_ns, text::nanoseconds)
        )
    });
    let parts: Vec<_> = pages.into_iter().chain(throttles).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn remote(counts: &Counts) -> Option<String> {
    let causes: Vec<_> = counts
        .remote_mapped_bytes_by_cause
        .iter()
        .flatten()
        .filter(|(_, bytes)| **bytes > 0)
        .map(|(cause, bytes)| format!("{} {}", text::printable(cause), text::bytes(*bytes)))
        .collect();
    let mappings = counts.remote_mappings.filter(|mappings| *mappings > 0)?;
    let bytes = text::known_bytes(counts.remote_mapped_bytes);
    Some(format!("{bytes} in {} ({})", text::counted(mappings, "mapping"), causes.join(", ")))
}

fn calls(calls: Option<&BTreeMap<String, u64>>, bytes: Option<&BTreeMap<String, u64>>) -> Option<String> {
    let made: Vec<_> = calls?
        .iter()
        .filter(|(_, calls)| **calls > 0)
        .map(|(kind, calls)| {
            let bytes = bytes.and_then(|bytes| bytes.get(kind).copied());
            format!("{} {} ({})", text::count(*calls), text::printable(kind), text::known_bytes(bytes))
        })
        .collect();
    (!made.is_empty()).then(|| made.join(", "))
}

/// Table of batch distributions; `None` without batches.
pub(crate) fn distributions(counts: &Counts) -> Option<Table> {
    type Format = fn(u64) -> String;
    let known: [(&str, Option<&Distribution>, Format); 3] = [
        ("faults", counts.batch_entries.as_ref(), text::count),
        ("service time", counts.batch_duration_ns.as_ref(), text::nanoseconds),
        ("handler run", counts.fault_handler_duration_ns.as_ref(), text::nanoseconds),
    ];
    let shown: Vec<_> = known
        .into_iter()
        .filter_map(|(title, distribution, format)| Some((title, distribution?, format)))
        .filter(|(_, distribution, _)| distribution.count > 0)
        .collect();
    let cells = |cell: fn(&Distribution) -> u64| shown.iter().map(move |(_, of, format)| format(cell(of)));
    let columns = vec![
        Column::text("BATCH", shown.iter().map(|(title, ..)| (*title).to_owned())),
        Column::number("COUNT", shown.iter().map(|(_, of, _)| text::count(of.count))),
        Column::number("MEAN", cells(|of| of.sum.checked_div(of.count).unwrap_or(0))),
        Column::number("P50", cells(|of| of.p50)),
        Column::number("P90", cells(|of| of.p90)),
        Column::number("P99", cells(|of| of.p99)),
        Column::number("MAX", cells(|of| of.max)),
    ];
    (!shown.is_empty()).then(|| Table::new(columns, vec![Style::Plain; shown.len()]))
}

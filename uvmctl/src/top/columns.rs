//! Columns of the process table: values, sort order, and drop order on narrow terminals.

use std::cmp::Ordering;

use api::{Counts, Process};

use crate::look::Look;
use crate::{
    rates::{self, Baseline},
    text,
    words::{self, Headline},
};

/// Process with its earlier counts, for rates.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) process: Process,
    /// Diagnosis of the process, if there is one.
    pub(crate) headline: Option<Headline>,
    pub(crate) before: Baseline,
}

impl Row {
    /// Rate of a counter per second.
    pub(crate) fn rate(&self, counter: Counter) -> Option<f64> {
        self.before.rate(&self.process.counts, counter)
    }
}

/// Form of counters: rates or totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figures {
    Rates,
    Totals,
}

/// One column.
#[derive(Debug)]
pub(crate) struct Column {
    /// Unique name, as in `--sort`.
    pub(crate) name: &'static str,
    /// Title; rates of counters get the suffix "/s".
    title: &'static str,
    width: usize,
    /// Drop order: the largest number is dropped first, 0 never.
    drop_rank: u8,
    value: Value,
    /// Meaning, for the help.
    pub(crate) meaning: &'static str,
}

#[derive(Debug)]
enum Value {
    Text(fn(&Process) -> String),
    /// Text that is truncated at its start.
    Path(fn(&Process) -> String),
    Number(fn(&Process) -> u32),
    Size(fn(&Process) -> Option<u64>),
    /// Nanoseconds.
    Time(Counter),
    Count(Counter),
    Bytes(Counter),
    Verdict,
}

/// One of the counters; `None` where the driver does not count it.
pub(crate) type Counter = fn(&Counts) -> Option<u64>;

const fn column(
    name: &'static str,
    title: &'static str,
    width: usize,
    drop_rank: u8,
    value: Value,
    meaning: &'static str,
) -> Column {
    Column { name, title, width, drop_rank, value, meaning }
}

/// Names, titles, widths, drop order, values and meanings, from left to right. Widths fit the
/// titles and the longest figures.
#[rustfmt::skip]
pub(crate) static COLUMNS: &[Column] = &[
    column("pid", "PID", 7, 0, Value::Number(|process| process.pid), "process id"),
    column("process", "PROCESS", 15, 0, Value::Text(|process| process.name.clone()), "short name"),
    column("owner", "OWNER", 16, 3, Value::Text(words::owner), "pod, job, container, unit or user"),
    column("gpu", "GPU", 4, 10, Value::Text(gpus), "GPUs that it used, by NVML's indices"),
    column("faults", "FLT", 6, 0, Value::Count(|counts| Some(counts.fault_entries)), "GPU faults, equal ones of a batch merged"),
    column("cpu-faults", "CPUFLT", 8, 7, Value::Count(|counts| Some(counts.cpu_faults)), "CPU faults on managed memory"),
    column("h2d", "H2D", 8, 0, Value::Bytes(|counts| Some(counts.bytes_htod)), "copied from host to GPU"),
    column("d2h", "D2H", 8, 1, Value::Bytes(|counts| Some(counts.bytes_dtoh)), "copied from GPU to host"),
    column("evicted", "EVICT", 8, 2, Value::Bytes(|counts| counts.evicted_bytes), "its memory evicted from GPUs"),
    column("verdict", "VERDICT", 17, 0, Value::Verdict, "worst verdict and its age, or the evictor of its memory"),
    column("managed", "MANAGED", 8, 5, Value::Size(|process| process.managed_bytes), "managed memory it has mapped"),
    column("resident", "RESIDENT", 8, 4, Value::Size(|process| Some(process.resident?.bytes)), "bytes of it in GPU memory: an estimate"),
    column("induced", "INDUCE", 8, 8, Value::Bytes(|counts| counts.induced_eviction_bytes), "evicted bytes of any process for it"),
    column("thrash", "THRASH", 8, 6, Value::Count(|counts| counts.thrashing_pages), "pages that the driver found thrashing"),
    column("batches", "BATCH", 7, 9, Value::Count(|counts| counts.batches), "fault batches with faults of it"),
    column("p99", "BATCHP99", 8, 11, Value::Time(|counts| Some(counts.batch_duration_ns.as_ref()?.p99).filter(|time_ns| *time_ns > 0)), "99th percentile of its batches' duration"),
    column("replays", "REPLAY", 8, 18, Value::Count(|counts| counts.replays), "replays of faults"),
    column("throttles", "THROTL", 8, 13, Value::Count(|counts| counts.throttles), "throttles at thrashing pages"),
    column("remote", "REMOTE", 8, 14, Value::Bytes(|counts| counts.remote_mapped_bytes), "mapped where it stays, on another processor"),
    column("d2d", "D2D", 8, 17, Value::Bytes(|counts| counts.bytes_dtod), "copied from GPU to GPU"),
    column("api", "API", 6, 15, Value::Count(|counts| counts.api_calls), "its own prefetches and advice"),
    column("dropped", "DROP", 6, 16, Value::Count(|counts| Some(counts.dropped_events)), "dropped events: not counted"),
    column("user", "USER", 8, 12, Value::Text(words::user), "user, or the id of one without a name"),
    column("cgroup", "CGROUP", 16, 19, Value::Path(|process| process.cgroup.clone().unwrap_or_default()), "cgroup; the end of a long one"),
];

fn gpus(process: &Process) -> String {
    // Without NVML a dash, as UUIDs do not fit; the page of a process has them.
    let index = |index: Option<u32>| index.map_or_else(|| "-".to_owned(), |index| index.to_string());
    let indices: Vec<_> = process.gpus.iter().map(|gpu| index(gpu.id.gpu)).collect();
    indices.join(",")
}

/// The column with this name.
pub(crate) fn named(name: &str) -> Option<&'static Column> {
    COLUMNS.iter().find(|column| column.name == name)
}

impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Column {
    /// Title of the column.
    pub(crate) fn title(&self, figures: Figures) -> String {
        let counter = matches!(self.value, Value::Count(_) | Value::Bytes(_));
        format!("{}{}", self.title, if counter && figures == Figures::Rates { "/s" } else { "" })
    }

    /// Heading, in exactly `width` characters.
    pub(crate) fn heading(&self, width: usize, figures: Figures, look: Look) -> String {
        self.aligned(&self.title(figures), width, look)
    }

    /// Cell of a row, in exactly `width` characters.
    pub(crate) fn cell(&self, row: &Row, width: usize, figures: Figures, look: Look) -> String {
        self.aligned(&self.text(row, width, figures, look), width, look)
    }

    fn aligned(&self, text: &str, width: usize, look: Look) -> String {
        let shortened = match self.value {
            Value::Path(_) => text::shortened_at_the_start(text, width, look.ellipsis()),
            _ => text::shortened(text, width, look.ellipsis()),
        };
        match self.value {
            Value::Text(_) | Value::Path(_) | Value::Verdict => text::left(&shortened, width),
            _ => text::right(&shortened, width),
        }
    }

    fn text(&self, row: &Row, width: usize, figures: Figures, look: Look) -> String {
        let figure = |counter: Counter, shown: fn(u64) -> String| match figures {
            Figures::Totals => text::known(counter(&row.process.counts), shown),
            Figures::Rates => rates::per_second(row.rate(counter), shown),
        };
        match self.value {
            Value::Text(value) | Value::Path(value) => look.text(&value(&row.process)),
            Value::Number(value) => value(&row.process).to_string(),
            Value::Size(value) => value(&row.process).map_or_else(unknown, text::bytes),
            Value::Time(value) => text::known(value(&row.process.counts), text::nanoseconds),
            Value::Count(counter) => figure(counter, text::count),
            Value::Bytes(counter) => figure(counter, text::bytes),
            Value::Verdict => row.headline.as_ref().map_or_else(unknown, |headline| headline.within(width)),
        }
    }

    /// Compares rows: figures in descending order with unknown ones last, text and names in
    /// ascending order.
    pub(crate) fn compare(&self, a: &Row, b: &Row, figures: Figures) -> Ordering {
        let figure = |row: &Row| match self.value {
            Value::Size(value) => value(&row.process).map(|bytes| bytes as f64),
            Value::Time(value) => value(&row.process.counts).map(|time_ns| time_ns as f64),
            Value::Count(counter) | Value::Bytes(counter) => match figures {
                Figures::Totals => counter(&row.process.counts).map(|value| value as f64),
                Figures::Rates => row.rate(counter),
            },
            Value::Text(_) | Value::Path(_) | Value::Number(_) | Value::Verdict => None,
        };
        match self.value {
            Value::Text(value) | Value::Path(value) => value(&a.process).cmp(&value(&b.process)),
            Value::Number(value) => value(&a.process).cmp(&value(&b.process)),
            Value::Verdict => {
                let text = |row: &Row| row.headline.as_ref().map(|headline| headline.text.clone());
                a.headline.is_none().cmp(&b.headline.is_none()).then_with(|| text(a).cmp(&text(b)))
            }
            _ => figure(b).unwrap_or(-1.0).total_cmp(&figure(a).unwrap_or(-1.0)),
        }
    }
}

fn unknown() -> String {
    "-".to_owned()
}

/// Width of a verdict with its age: `victim of 4194304 00:04:12`.
const VERDICT_WITH_AGE: usize = 26;
/// Minimum width of a line with ages.
const WIDTH_WITH_AGES: usize = 90;

/// Columns that fit a line of `width` characters, with their widths. A space precedes each.
pub(crate) fn fitting(width: usize) -> Vec<(&'static Column, usize)> {
    let preferred = |column: &'static Column| match column.name {
        "verdict" if width >= WIDTH_WITH_AGES => (column, VERDICT_WITH_AGE),
        _ => (column, column.width),
    };
    let mut shown: Vec<_> = COLUMNS.iter().map(preferred).collect();
    let used_width = |shown: &[(&Column, usize)]| shown.iter().map(|(_, width)| width + 1).sum::<usize>();
    while used_width(&shown) > width
        && let Some(first) = shown.iter().map(|(column, _)| column.drop_rank).max()
        && first > 0
    {
        shown.retain(|(column, _)| column.drop_rank != first);
    }
    // Spare width goes to the texts that are truncated most.
    for (name, most) in [("process", 16), ("owner", 24), ("cgroup", usize::MAX), ("user", 16)] {
        let spare = width.saturating_sub(used_width(&shown));
        for (_, width) in shown.iter_mut().filter(|(column, _)| column.name == name) {
            *width = (*width + spare).min(most);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: usize) -> Vec<&'static str> {
        fitting(width).iter().map(|(column, _)| column.name).collect()
    }

    #[test]
    fn columns_leave_a_narrow_terminal_in_order() {
        assert_eq!(shown(80), ["pid", "process", "faults", "h2d", "d2h", "evicted", "verdict"]);
        assert_eq!(shown(60), ["pid", "process", "faults", "h2d", "verdict"]);
        assert_eq!(shown(0), ["pid", "process", "faults", "h2d", "verdict"]);
        assert_eq!(shown(crate::top::batch::WIDTH).len(), COLUMNS.len());
        let mut ranks: Vec<_> = COLUMNS.iter().map(|column| column.drop_rank).filter(|rank| *rank > 0).collect();
        ranks.sort_unstable();
        assert!(ranks.windows(2).all(|pair| pair[0] != pair[1]), "two leave at once: {ranks:?}");
    }

    #[test]
    fn a_line_is_never_longer_than_the_terminal() {
        for width in 59..300 {
            assert!(fitting(width).iter().map(|(_, width)| width + 1).sum::<usize>() <= width, "{width}");
        }
    }

    #[test]
    fn titles_fit_their_columns() {
        for column in COLUMNS {
            assert!(column.title(Figures::Rates).len() <= column.width, "{}", column.name);
        }
    }

    #[test]
    fn the_document_has_every_column() {
        let document = include_str!("../../../docs/top.md");
        for Column { name, title, meaning, .. } in COLUMNS {
            let line = format!("| {title} | `{name}` | {meaning} |");
            assert!(document.contains(&line), "docs/top.md lacks: {line}");
        }
    }
}

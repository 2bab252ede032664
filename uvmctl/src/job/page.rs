//! Report on a job as text.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use api::{OwnerEviction, ReportedUsage, Verdict};
use model::{OwnerKey, VerdictKind};

use super::{
    report::{JobReport, NodeReport, OtherJob},
    slurm::Job,
};
use crate::{
    explain::page::{Paragraph, remedies},
    output::{
        Screen,
        cell::Cell,
        table::{Column, Concession, Table},
    },
    terminal::Style,
    text, words,
};

/// Maximum width of lines.
const WIDTH_MAX: usize = 100;
/// Maximum number of owners in a line.
const OWNERS_MAX: usize = 5;
/// Maximum number of nodes in a line.
const NODES_MAX: usize = 8;
/// Maximum of other jobs that a line names.
const OTHER_JOBS_MAX: usize = 3;

const CONCESSIONS: [Concession; 3] =
    [Concession::DropUnknown("COST"), Concession::DropUnknown("PEAK"), Concession::Drop("EVICTED")];

pub(super) fn render(report: &JobReport, Screen { width, colour }: Screen) -> String {
    let width = width.unwrap_or(WIDTH_MAX).min(WIDTH_MAX);
    let mut out = String::new();
    for (title, line) in lines(report) {
        for line in text::wrapped(&format!("{title:<12} {line}"), width, "", "             ") {
            // The title is the beginning of the first line.
            let (start, rest) = line.split_at(if line.starts_with(title) { title.len() } else { 0 });
            out.push_str(&colour.paint(Style::Heading, start));
            out.push_str(rest);
            out.push('\n');
        }
    }
    out.push('\n');
    out.push_str(&table(&report.nodes).fit(Some(width), &CONCESSIONS).render(colour));
    for paragraph in report.worst_verdict().into_iter().flat_map(|(node, verdict)| explained(report, node, verdict)) {
        for line in paragraph.lines(width) {
            out.push_str(&colour.paint(paragraph.style, &line));
            out.push('\n');
        }
    }
    out
}

fn lines(report: &JobReport) -> Vec<(&'static str, String)> {
    let total = &report.total;
    let mut lines =
        vec![("Job", job(&report.job)), (if report.nodes.len() == 1 { "Node" } else { "Nodes" }, nodes(report))];
    lines.push(("Verdicts", verdicts(total).unwrap_or_else(|| "none".to_owned())));
    lines.push(("Fetched", fetched(total)));
    lines.push(("Cost", cost(report)));
    lines.extend(peak(report).map(|peak| ("Peak", peak)));
    let suffered = |node: &NodeReport| node.report.evictions_suffered.clone();
    let inflicted = |node: &NodeReport| node.report.evictions_inflicted.clone();
    lines.extend(owners(report, suffered).map(|owners| ("Evicted by", owners)));
    lines.extend(owners(report, inflicted).map(|owners| ("Evicts", owners)));
    lines.extend(other_jobs(&report.other_jobs).map(|jobs| ("Other jobs", jobs)));
    lines
}

/// `4711 (sEKNKTV3WPV500) train, account ml, partition gpu, user alice`
fn job(Job { id, sluid, name, cluster, account, partition, user }: &Job) -> String {
    let sluid = sluid.as_ref().filter(|sluid| *sluid != id).map(|sluid| format!(" ({sluid})")).unwrap_or_default();
    let name = name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let of = [("cluster", cluster), ("account", account), ("partition", partition), ("user", user)];
    let of = of.iter().filter_map(|(title, value)| Some(format!(", {title} {}", value.as_ref()?)));
    text::printable(&format!("{id}{sluid}{name}{}", of.collect::<String>())).into_owned()
}

fn nodes(report: &JobReport) -> String {
    node_names(report.nodes.iter().map(|node| node.node.as_str()))
}

fn node_names<'a>(mut nodes: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = nodes.by_ref().take(NODES_MAX).map(text::printable).collect();
    format!("{}{}", names.join(", "), and_more(nodes.count()))
}

fn and_more(more: usize) -> String {
    if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// Other jobs with the number of this one, the latest first; `None` without any.
fn other_jobs(jobs: &[OtherJob]) -> Option<String> {
    let words = |OtherJob { job: other, time, nodes }: &OtherJob| {
        let nodes = node_names(nodes.iter().map(String::as_str));
        format!("{}, until {} on {nodes}", job(other), text::printable(time))
    };
    let words: Vec<String> = jobs.iter().take(OTHER_JOBS_MAX).map(words).collect();
    let more = and_more(jobs.len().saturating_sub(OTHER_JOBS_MAX));
    (!words.is_empty()).then(|| format!("with the same number, not in these figures: {}{more}", words.join("; ")))
}

/// `capacity thrash 4 min 12 s, streaming 3 s`, the longest first; `None` without any.
fn verdicts(usage: &ReportedUsage) -> Option<String> {
    let mut verdicts: Vec<_> = usage.verdict_seconds.iter().filter(|(_, seconds)| **seconds > 0.0).collect();
    verdicts.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let words = |(kind, seconds): (&String, &f64)| {
        let label =
            VerdictKind::named(kind).map_or_else(|| text::printable(kind).into_owned(), |kind| kind.label().to_owned());
        format!("{label} {}", seconds_text(*seconds))
    };
    let words: Vec<String> = verdicts.into_iter().map(words).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn fetched(usage: &ReportedUsage) -> String {
    let refetched = match (usage.refetched_bytes, usage.fetched_bytes) {
        (Some(refetched), Some(fetched)) => {
            format!("; refetched after an eviction {}: {}", text::bytes(refetched), text::share(refetched, fetched))
        }
        _ => String::new(),
    };
    let evicted = usage.evicted_bytes.map(|bytes| format!("; evicted {}", text::bytes(bytes))).unwrap_or_default();
    format!("{}{refetched}{evicted}", text::bytes(usage.bytes_htod))
}

fn cost(report: &JobReport) -> String {
    let rates: Vec<u64> = report.nodes.iter().filter_map(|node| node.report.link_bytes_per_second).collect();
    match (report.total.refetched_bytes, report.total.refetch_seconds, rates.iter().max()) {
        (Some(0), ..) => "no refetches".to_owned(),
        (_, Some(seconds), Some(rate)) => {
            format!("at least {} of link time for refetches, at {}/s", seconds_text(seconds), text::bytes(*rate))
        }
        (None, ..) => "unknown, as there are no block records".to_owned(),
        _ => "unknown, as the rate of the link is unknown: set it with --link-rate".to_owned(),
    }
}

fn peak(report: &JobReport) -> Option<String> {
    let own = words::ratio(report.total.peak_oversubscription_ratio?);
    let mut all: Option<f64> = None;
    for node in &report.nodes {
        if all < node.report.peak_gpu_oversubscription_ratio {
            all = node.report.peak_gpu_oversubscription_ratio;
        }
    }
    let all = all.map(words::ratio).filter(|all| *all != own);
    let all = all.map(|all| format!(", {all} with all processes there")).unwrap_or_default();
    Some(format!("managed memory {own} of a GPU's{all}"))
}

/// Other owners in evictions with their bytes, the largest first; `None` without any.
fn owners(report: &JobReport, evictions: impl Fn(&NodeReport) -> Option<Vec<OwnerEviction>>) -> Option<String> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for node in &report.nodes {
        for OwnerEviction { kind, id, bytes, .. } in evictions(node).into_iter().flatten() {
            let key = kind.zip(id).and_then(|(kind, id)| OwnerKey::parse(&kind, &id));
            let name = match key {
                Some(OwnerKey::Job(id)) if id == node.report.id && node.report.kind == "job" => {
                    "the job itself".to_owned()
                }
                Some(OwnerKey::Other) => "others".to_owned(),
                Some(key) => key.label(),
                None => "unknown".to_owned(),
            };
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    let mut sums: Vec<_> = sums.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    sums.sort_by_key(|(_, bytes)| Reverse(*bytes));
    let words: Vec<String> = sums
        .iter()
        .take(OWNERS_MAX)
        .map(|(name, bytes)| format!("{} {}", text::printable(name), text::bytes(*bytes)))
        .collect();
    let more = and_more(sums.len().saturating_sub(OWNERS_MAX));
    (!words.is_empty()).then(|| format!("{}{more}", words.join(", ")))
}

/// Steps of all nodes.
fn table(nodes: &[NodeReport]) -> Table {
    let rows: Vec<_> = nodes.iter().flat_map(|node| node.report.steps.iter().map(move |step| (node, step))).collect();
    let of_usage = |cell: fn(&ReportedUsage) -> Cell| rows.iter().map(move |(_, step)| cell(&step.usage));
    let step = |step: Option<&str>| step.map_or_else(|| "(none)".to_owned(), |step| text::printable(step).into_owned());
    let mut columns = Vec::new();
    if nodes.len() > 1 {
        columns.push(Column::text("NODE", rows.iter().map(|(node, _)| text::printable(&node.node).into_owned())));
    }
    columns.extend([
        Column::text("STEP", rows.iter().map(|(_, each)| step(each.step.as_deref()))),
        Column::number("FETCHED", of_usage(|usage| Cell::amount(usage.bytes_htod, text::bytes))),
        Column::number("REFETCHED", of_usage(|usage| Cell::known(usage.refetched_bytes, text::bytes))),
        Column::number("EVICTED", of_usage(|usage| Cell::known(usage.evicted_bytes, text::bytes))),
        Column::number("COST", of_usage(|usage| shown(usage.refetch_seconds, seconds_text))),
        Column::number("PEAK", of_usage(|usage| shown(usage.peak_oversubscription_ratio, words::ratio))),
        Column::text("VERDICTS", of_usage(|usage| Cell::optional(verdicts(usage)))),
    ]);
    let styles =
        rows.iter().map(|(_, step)| if verdicts(&step.usage).is_some() { Style::Warning } else { Style::Plain });
    Table::new(columns, styles.collect())
}

fn shown(value: Option<f64>, format: fn(f64) -> String) -> Cell {
    value.map_or_else(Cell::unknown, |value| Cell::shown_as(format(value), Some(value)))
}

/// `18.2 s` below a minute, `4 min 12 s` from then on.
fn seconds_text(seconds: f64) -> String {
    const MINUTE: f64 = 60.0;
    if seconds < MINUTE {
        return format!("{:.1} s", seconds.max(0.0));
    }
    Duration::try_from_secs_f64(seconds).map_or_else(|_| format!("{seconds:.0} s"), text::duration)
}

fn explained(report: &JobReport, node: &NodeReport, verdict: &Verdict) -> Vec<Paragraph> {
    let step = node.report.worst_verdict_step.as_ref().map(|step| format!(" of step {step}")).unwrap_or_default();
    let on = if report.nodes.len() > 1 { format!(" on {}", node.node) } else { String::new() };
    let title = format!("Worst verdict{step}{on}");
    let summary = format!("{} {}", verdict.summary, verdict.reason);
    let mut page = vec![
        Paragraph::new(Style::Plain, (0, 0), ""),
        Paragraph::title(&text::printable(&title)),
        Paragraph::new(Style::Warning, (2, 2), text::printable(&summary)),
    ];
    page.extend(verdict.remedies.iter().flat_map(remedies));
    page
}

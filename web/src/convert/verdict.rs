//! Verdicts, with their evidence.

use std::{cell::LazyCell, cmp::Reverse, time::SystemTime};

use api::{
    decision::Event,
    explain::{self, Case},
};
use model::{
    Capabilities, GpuKey, ProcessId, Quantity, Snapshot, SourceState, VerdictKind, Verdicts,
    owner::label_or_user,
    verdict::{Check, Involved, Unjudged, Verdict, Victim},
};

use super::{INFERRED, View, address, diagnosis, gpu::gpu_of, memory::pattern, of, owner::owner, rate, time};
use crate::{
    gpus,
    paging::{Cursors, Order, Page, PageRequest},
    problem::Problem,
};

/// Page of verdicts: active ones, most traffic first, then ended ones; with ranges for a requester
/// with read permission.
pub(crate) fn verdicts(
    view: &View<'_>,
    with_ranges: bool,
    order: Order,
    is_selected: impl Fn(&Verdict) -> bool,
    cursors: &Cursors,
    page_request: &PageRequest,
) -> Result<Page, Problem> {
    let key = |each: &Verdict| {
        let rank = order.rank(|| each.ended_at.map_or_else(|| each.traffic_bytes(), since_1970_ns));
        (each.ended_at.is_some(), Reverse(rank), each.process, each.gpu, each.kind, each.started_at)
    };
    let all = view.verdicts.active.iter().chain(&view.verdicts.ended).filter(|each| is_selected(each));
    let all = all.map(|each| (key(each), each)).collect();
    cursors.page(page_request, all, |each: &&Verdict| verdict(view, each, with_ranges))
}

/// Verdicts on one process, active ones with remedies; those that depend on ranges only `with_ranges`.
/// `in_mode_act`: whether the policy in effect for a process has the mode act.
pub(crate) fn verdicts_of(
    view: &View<'_>,
    with_ranges: bool,
    id: ProcessId,
    in_mode_act: impl Fn(&model::Process) -> bool,
) -> api::Verdicts {
    let ended = view.verdicts.ended.iter().filter(|verdict| verdict.process == id);
    let show = |each: &Verdict| verdict(view, each, with_ranges);
    // All verdicts of the process share them.
    let evidence = LazyCell::new(|| {
        let process = view.process(id)?;
        let ranges = with_ranges.then(|| super::ranges(view.snapshot, process));
        Some((super::process::process(view, process, &process.total()), ranges))
    });
    let with_remedies = |each: &Verdict| {
        let (verdict, gpu) = (show(each), gpu_of(view.snapshot, each.gpu));
        let evictor = verdict.evictor.as_ref();
        let concerned = evictor.map_or(id, |evictor| ProcessId { pid: evictor.pid, start_ticks: evictor.start_ticks });
        let in_mode_act = view.process(concerned).is_some_and(&in_mode_act);
        let remedies = evidence.as_ref().map(|(process, ranges)| {
            let (ranges, gpu) = (ranges.as_ref(), gpu.as_ref());
            explain::remedies(&Case { kind: each.kind, verdict: &verdict, process, ranges, gpu, in_mode_act })
        });
        api::Verdict { remedies, ..verdict }
    };
    api::Verdicts {
        time: time(view.snapshot.taken),
        active: of(&view.active, id).map(with_remedies).collect(),
        ended: ended.map(show).collect(),
        unavailable: unavailable(view.snapshot),
        remarks: remarks(view, id),
        ..api::Verdicts::default()
    }
}

/// Remarks on a process that are no verdict.
fn remarks(view: &View<'_>, id: ProcessId) -> Vec<String> {
    let running = view.process(id).filter(|process| process.exited_at.is_none());
    let churn = running.and_then(|process| churn(view.snapshot, process));
    let growth = running.and_then(|process| process.managed_growth).and_then(explain::growth);
    let unjudged = view.verdicts.unjudged.iter().filter(|each| each.process == id).map(|each| unjudged(view, each));
    churn.into_iter().chain(growth).chain(unjudged).collect()
}

/// Remark on windows that could not be judged.
fn unjudged(view: &View<'_>, each: &Unjudged) -> String {
    let Unjudged { gpu, started_at, ended_at, windows, .. } = *each;
    explain::unjudged(windows, &time(started_at), &time(ended_at), &gpu_label(view.snapshot, gpu))
}

/// Remark on a process that frees its managed memory all the time.
fn churn(snapshot: &Snapshot, process: &model::Process) -> Option<String> {
    let SourceState::Counting { since } = snapshot.source.state else { return None };
    let begun = process.started_at.map_or(since, |started| started.max(since));
    let counted = snapshot.taken.duration_since(begun).ok()?;
    let total = process.total();
    explain::churn(total.freed_blocks, total.populated_bytes, process.managed_bytes, counted)
}

fn since_1970_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Events of verdicts that started or ended at a snapshot.
#[must_use]
pub fn verdict_events<'a>(
    changed: impl IntoIterator<Item = &'a Verdict>,
    snapshot: &Snapshot,
    verdicts: &Verdicts,
) -> Vec<Event> {
    let mut changed = changed.into_iter().peekable();
    if changed.peek().is_none() {
        return Vec::new();
    }
    let view = View::new(snapshot, verdicts, &[]);
    changed.map(|each| Event::of_verdict(verdict(&view, each, true), snapshot.taken)).collect()
}

/// Kinds of verdict that are unavailable, because an input is not counted.
pub(crate) fn unavailable(snapshot: &Snapshot) -> Vec<api::UnavailableKind> {
    let capabilities = Capabilities::of(snapshot);
    let kind = |kind: VerdictKind| {
        Some(api::UnavailableKind {
            kind: kind.name().to_owned(),
            label: kind.label().to_owned(),
            reason: lack(kind, capabilities)?,
        })
    };
    VerdictKind::ALL.into_iter().filter_map(kind).collect()
}

/// Reason why a kind is unavailable; `None` if it is available.
fn lack(kind: VerdictKind, capabilities: Capabilities) -> Option<String> {
    let others = kind.lacks(capabilities).filter(|quantity| *quantity != Quantity::Reuse);
    let others: Vec<_> = others.map(words).collect();
    if !others.is_empty() {
        return Some(format!("not counted by the source: {}", others.join(", ")));
    }
    let unknown = kind.needs_records_for().filter(|_| !capabilities.has(Quantity::Reuse))?;
    Some(format!("block records are off (records.enabled = false), so it is unknown {unknown}"))
}

/// Quantity in words.
fn words(quantity: Quantity) -> String {
    match quantity {
        Quantity::Populated => "populated memory".to_owned(),
        Quantity::CopyCauses => "causes of copies".to_owned(),
        other => other.name().replace('_', " "),
    }
}

pub(super) fn verdict(view: &View<'_>, each: &Verdict, with_ranges: bool) -> api::Verdict {
    let process = view.process(each.process);
    // An ended verdict has no current victims.
    let victims = of(&view.caused, each.process).filter(|lost| each.ended_at.is_none() && lost.gpu == each.gpu);
    let verdict = api::Verdict {
        pid: each.process.pid,
        start_ticks: each.process.start_ticks,
        name: process.map(|process| process.name.clone()).unwrap_or_default(),
        owner: process.map(|process| owner(&view.snapshot.owner_names, &process.owner)).unwrap_or_default(),
        uid: process.map(|process| process.uid),
        user: process.and_then(|process| process.user.clone()),
        gpu_uuid: gpus::uuid(each.gpu),
        peer_uuid: each.peer.and_then(gpus::uuid),
        kind: each.kind.name().to_owned(),
        label: each.kind.label().to_owned(),
        thrashing: each.kind.is_thrashing(),
        started_at: time(each.started_at),
        confirmed_at: time(each.confirmed_at),
        ended_at: each.ended_at.map(time),
        ranges: with_ranges.then(|| each.ranges.iter().map(involved).collect()),
        window_seconds: each.window.as_secs_f64(),
        inputs: each.inputs,
        total: each.total,
        checks: each.checks.iter().map(check).collect(),
        evictor: diagnosis::evictor(view, each),
        victims: victims.map(|lost| victim(view, lost)).collect(),
        ..api::Verdict::default()
    };
    let owner = |process: &model::Process| {
        let label = view.snapshot.owner_names.label(&process.owner.key());
        label_or_user(&label, process.user.as_deref(), process.uid)
    };
    let owner = process.map(owner).unwrap_or_default();
    let peer = each.peer.map_or_else(|| "another GPU".to_owned(), |peer| gpu_label(view.snapshot, peer));
    let summary = explain::summary(each.kind, &verdict, &owner, &gpu_label(view.snapshot, each.gpu), &peer);
    let reason = explain::reason(each.kind, &verdict);
    api::Verdict { summary, reason, ..verdict }
}

/// `GPU0 (NVIDIA H200)`
fn gpu_label(snapshot: &Snapshot, key: GpuKey) -> String {
    let key = gpus::resolved(key);
    let id = gpus::id(snapshot, key);
    if id.gpu.is_none() && id.uuid.is_none() {
        return "a GPU".to_owned();
    }
    let name = snapshot.gpus.get(&key).and_then(|gpu| gpu.name.as_ref());
    name.map_or_else(|| id.label(), |name| format!("{} ({name})", id.label()))
}

fn victim(view: &View<'_>, lost: &Victim) -> api::VerdictVictim {
    let process = view.process(lost.victim);
    api::VerdictVictim {
        pid: lost.victim.pid,
        start_ticks: lost.victim.start_ticks,
        name: process.map(|process| process.name.clone()).unwrap_or_default(),
        owner: process.map(|process| owner(&view.snapshot.owner_names, &process.owner)).unwrap_or_default(),
        bytes_per_second: rate(lost.bytes, lost.window),
        inferred: INFERRED,
    }
}

fn involved(range: &Involved) -> api::InvolvedRange {
    api::InvolvedRange {
        begin: address(range.begin),
        end: address(range.end),
        bytes: range.end.saturating_sub(range.begin),
        pattern: pattern(range.pattern),
        traffic_ratio: range.traffic_ratio,
        refetch_ratio: range.refetch_ratio,
    }
}

fn check(check: &Check) -> api::Check {
    let Check { description, name, value, threshold, met } = check;
    api::Check {
        name: (*name).to_owned(),
        description: description.clone(),
        value: *value,
        threshold: *threshold,
        met: *met,
    }
}

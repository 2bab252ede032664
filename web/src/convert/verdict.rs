//! What is wrong, with what that rests on.

use model::{
    Snapshot, VerdictKind, Verdicts,
    api::{self, decision::Event},
    verdict::{Check, Involved, Verdict, Victim},
};

use super::{INFERRED, View, address, memory::pattern, owner::owner, rate, time};
use crate::gpus;

/// Those that are `wanted`, with the ranges they are about if the reader may see addresses.
pub(crate) fn verdicts(view: &View<'_>, with_ranges: bool, wanted: impl Fn(&Verdict) -> bool) -> api::Verdicts {
    let told = |verdicts: &[Verdict]| {
        verdicts.iter().filter(|each| wanted(each)).map(|each| verdict(view, each, with_ranges)).collect()
    };
    api::Verdicts {
        time: time(view.snapshot.taken),
        active: told(&view.verdicts.active),
        ended: told(&view.verdicts.ended),
        untold: if view.snapshot.source.block_records.is_off { untold() } else { Vec::new() },
    }
}

/// That a verdict has begun, or ended.
#[must_use]
pub fn verdict_event(each: &Verdict, snapshot: &Snapshot, verdicts: &Verdicts) -> Event {
    Event::of_verdict(verdict(&View::new(snapshot, verdicts, &[]), each, true), snapshot.taken)
}

/// Without block records.
fn untold() -> Vec<api::UntoldKind> {
    let reason = |what| format!("block records are off (records.enabled = false), so it is not known {what}");
    let kind = |kind: VerdictKind| {
        Some(api::UntoldKind { kind: kind.name().to_owned(), reason: reason(kind.needs_records_for()?) })
    };
    VerdictKind::ALL.into_iter().filter_map(kind).collect()
}

fn verdict(view: &View<'_>, each: &Verdict, with_ranges: bool) -> api::Verdict {
    let process = view.process(each.process);
    let victims = view.verdicts.victims.iter().filter(|lost| {
        let at_all_others = lost.victim != each.process;
        // What an ended verdict did is over.
        at_all_others && each.ended.is_none() && (lost.evictor, lost.gpu) == (each.process, each.gpu)
    });
    api::Verdict {
        pid: each.process.pid,
        start_ticks: each.process.start_ticks,
        name: process.map(|process| process.name.clone()).unwrap_or_default(),
        owner: process.map(|process| owner(&process.owner)).unwrap_or_default(),
        gpu_uuid: gpus::uuid(each.gpu),
        kind: each.kind.name().to_owned(),
        thrashing: each.kind.is_thrashing(),
        since: time(each.since),
        confirmed: time(each.confirmed),
        ended: each.ended.map(time),
        ranges: with_ranges.then(|| each.ranges.iter().map(involved).collect()),
        window_seconds: each.window.as_secs_f64(),
        inputs: each.inputs,
        total: each.total,
        checks: each.checks.iter().map(check).collect(),
        victims: victims.map(|lost| victim(view, lost)).collect(),
    }
}

fn victim(view: &View<'_>, lost: &Victim) -> api::VerdictVictim {
    let process = view.process(lost.victim);
    api::VerdictVictim {
        pid: lost.victim.pid,
        start_ticks: lost.victim.start_ticks,
        name: process.map(|process| process.name.clone()).unwrap_or_default(),
        owner: process.map(|process| owner(&process.owner)).unwrap_or_default(),
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
        share: range.share,
        refetch_ratio: range.refetch_ratio,
    }
}

fn check(check: &Check) -> api::Check {
    let Check { what, name, value, threshold, holds } = *check;
    api::Check { name: name.to_owned(), what: what.to_owned(), value, threshold, holds }
}

//! Main diagnosis of a process, with the evictor. The page and uvmctl only show it.

use std::{cmp::Reverse, collections::BTreeMap};

use api::{DecisionSummary, Diagnosis, Evictor, VerdictSummary};
use model::{
    Decision, ProcessId, VerdictKind,
    decision::Stage,
    verdict::{Verdict, Victim},
};

use super::{INFERRED, View, of, rate, time};
use crate::gpus;

/// Main diagnosis of a process. A decision in effect takes precedence over its verdict.
pub(super) fn diagnosis(view: &View<'_>, id: ProcessId) -> Option<Diagnosis> {
    if let Some(in_effect) = of(&view.decisions, id).find(|decision| !matches!(decision.stage, Stage::Shadow(_))) {
        return Some(Diagnosis {
            kind: "decision".to_owned(),
            label: in_effect.label(),
            description: "A decision is in effect".to_owned(),
            decision: Some(decision(in_effect)),
            ..Diagnosis::default()
        });
    }
    let worst = of(&view.active, id).next();
    let evictor = match worst {
        Some(worst) => evictor(view, worst),
        None => victim_of(view, id),
    };
    let (kind, label, description) = match (&evictor, worst) {
        (Some(evictor), _) => ("victim", format!("victim of {}", evictor.pid), evictor.description()),
        (None, Some(Verdict { kind, .. })) => ("verdict", kind.label().to_owned(), kind.description().to_owned()),
        (None, None) => return None,
    };
    let verdict = worst.map(verdict);
    Some(Diagnosis { kind: kind.to_owned(), label, description, decision: None, evictor, verdict })
}

/// Evictor for a verdict; see [`api::Verdict::evictor`]. Only evicted memory has one.
pub(super) fn evictor(view: &View<'_>, verdict: &Verdict) -> Option<Evictor> {
    if verdict.kind != VerdictKind::CapacityThrash || verdict.ended_at.is_some() {
        return None;
    }
    let losses = || of(&view.lost, verdict.process).filter(|loss| loss.gpu == verdict.gpu);
    let largest = largest_evictor(losses());
    let gpu_use = view.gpu_use(verdict.gpu);
    let oversubscriber = gpu_use.oversubscriber(verdict.process);
    let evictor = described(view, oversubscriber.or(largest)?, losses());
    let caused_at_least_half = || {
        let bytes = evictor.bytes_per_second as f64 * verdict.window.as_secs_f64();
        bytes * 2.0 >= verdict.inputs.evicted_bytes as f64
    };
    let managed_bytes = view.process(verdict.process).and_then(|process| process.managed_bytes);
    let fits_alone = managed_bytes.zip(gpu_use.capacity_bytes).map(|(managed, capacity)| managed <= capacity);
    fits_alone.unwrap_or_else(caused_at_least_half).then_some(evictor)
}

/// Evictor of a process without a verdict: the oversubscriber of the GPU where it lost most, else
/// the process for which most of its memory was evicted in the last window.
pub(super) fn victim_of(view: &View<'_>, id: ProcessId) -> Option<Evictor> {
    let losses = || of(&view.lost, id);
    let gpu = losses().max_by_key(|loss| (loss.bytes, Reverse(loss.gpu)))?.gpu;
    let evictor = view.gpu_use(gpu).oversubscriber(id).or_else(|| largest_evictor(losses()))?;
    Some(described(view, evictor, losses()))
}

fn largest_evictor<'a>(losses: impl Iterator<Item = &'a Victim>) -> Option<ProcessId> {
    let mut rates: BTreeMap<ProcessId, u64> = BTreeMap::new();
    for loss in losses {
        let bytes_per_second = rates.entry(loss.evictor).or_default();
        *bytes_per_second = bytes_per_second.saturating_add(rate(loss.bytes, loss.window));
    }
    rates.into_iter().max_by_key(|(evictor, rate)| (*rate, Reverse(*evictor))).map(|(evictor, _)| evictor)
}

/// Evictor with the rate of these losses that are for it.
fn described<'a>(view: &View<'_>, evictor: ProcessId, losses: impl Iterator<Item = &'a Victim>) -> Evictor {
    let for_it = losses.filter(|loss| loss.evictor == evictor).map(|loss| rate(loss.bytes, loss.window));
    Evictor {
        pid: evictor.pid,
        start_ticks: evictor.start_ticks,
        name: view.process(evictor).map(|process| process.name.clone()).unwrap_or_default(),
        bytes_per_second: for_it.fold(0, u64::saturating_add),
        inferred: INFERRED,
    }
}

/// Summary of a verdict.
pub(super) fn verdict(verdict: &Verdict) -> VerdictSummary {
    VerdictSummary {
        gpu_uuid: gpus::uuid(verdict.gpu),
        kind: verdict.kind.name().to_owned(),
        label: verdict.kind.label().to_owned(),
        thrashing: verdict.kind.is_thrashing(),
        started_at: time(verdict.started_at),
    }
}

/// Summary of a decision.
pub(super) fn decision(decision: &Decision) -> DecisionSummary {
    DecisionSummary {
        id: decision.id.0,
        gpu_uuid: decision.gpu.to_string(),
        policy: decision.policy.to_owned(),
        stage: decision.stage.name().to_owned(),
        action: decision.action(),
        label: decision.label(),
        effect: decision.effect(),
        expected: decision.expected,
        link_bytes_saved: decision.link_bytes_saved(),
        faults_saved: decision.faults_saved(),
    }
}

//! Report on an owner, from sums that outlive its processes and verdicts.

use std::time::Duration;

use api::{
    Remedies,
    explain::{self, Case},
};
use model::{
    Capabilities, GpuKey, OwnerEvictions, OwnerKey, Quantity, Snapshot, StepUsage, Traffic, Verdicts, WorstVerdict,
    usage,
};

use super::{INFERRED, View, gpu::gpu_of, owner_detail::evictions, process::process, sum, time, verdict::verdict};

/// Report on a listed owner. Remedies that depend on ranges only `with_ranges`.
pub(crate) fn owner_report(
    snapshot: &Snapshot,
    verdicts: &Verdicts,
    key: &OwnerKey,
    with_ranges: bool,
) -> Option<api::OwnerReport> {
    let totals = snapshot.owners.get(key)?;
    // The verdicts may be those of an earlier snapshot.
    let mut known = verdicts.usage.as_ref().clone();
    known.observe(snapshot);
    let known = known.of(key).cloned().unwrap_or_default();
    let capabilities = Capabilities::of(snapshot);
    let link_bytes_per_second = totals.gpus.keys().filter_map(|gpu| link(snapshot, *gpu)).max();
    let usage = |usage: &StepUsage| reported(usage, capabilities, link_bytes_per_second);
    let counters = totals.gpus.values().chain([&totals.host]).sum();
    let traffic = Traffic::of(&counters, &sum(totals.reuse.values()));
    let (inflicted, suffered) = evictions(snapshot, key);
    let worst = known.worst.as_deref();
    Some(api::OwnerReport {
        time: time(snapshot.taken),
        kind: key.kind().to_owned(),
        id: key.id().to_owned(),
        uid: known.uid,
        user: known.user.clone(),
        processes: totals.processes,
        link_bytes_per_second,
        peak_gpu_oversubscription_ratio: known.peak_gpu_oversubscription,
        usage: usage(&StepUsage { traffic, ..known.total() }),
        steps: known
            .steps
            .iter()
            .map(|(step, each)| api::StepReport { step: step.clone(), usage: usage(each) })
            .collect(),
        evictions_inflicted: inflicted,
        evictions_suffered: suffered,
        worst_verdict: worst.map(|worst| {
            let fits_alone = known.peak_oversubscription.is_none_or(|ratio| ratio <= 1.0);
            let evictor = main_evictor(snapshot, key).filter(|_| fits_alone);
            explained(snapshot, verdicts, worst, evictor, with_ranges)
        }),
        worst_verdict_step: worst.and_then(|worst| usage::step(&worst.process)).map(str::to_owned),
        inferred: INFERRED,
    })
}

fn link(snapshot: &Snapshot, gpu: GpuKey) -> Option<u64> {
    snapshot.gpus.get(&gpu)?.link_bytes_per_second.filter(|rate| *rate > 0)
}

fn reported(usage: &StepUsage, capabilities: Capabilities, link: Option<u64>) -> api::ReportedUsage {
    let StepUsage { traffic, verdict_time, peak_oversubscription } = usage;
    let Traffic {
        fault_entries,
        bytes_htod,
        bytes_dtoh,
        evicted_bytes,
        induced_eviction_bytes,
        fetched_bytes,
        refetched_bytes,
        cpu_reclaimed_bytes,
    } = *traffic;
    let reuse = |bytes| capabilities.counted(Quantity::Reuse, bytes);
    let seconds = |duration: &Duration| duration.as_secs_f64();
    api::ReportedUsage {
        fault_entries,
        bytes_htod,
        bytes_dtoh,
        evicted_bytes: capabilities.counted(Quantity::CopyCauses, evicted_bytes),
        induced_eviction_bytes: capabilities.counted(Quantity::EvictionPairs, induced_eviction_bytes),
        fetched_bytes: reuse(fetched_bytes),
        refetched_bytes: reuse(refetched_bytes),
        cpu_reclaimed_bytes: reuse(cpu_reclaimed_bytes),
        refetch_seconds: reuse(refetched_bytes).zip(link).map(|(bytes, rate)| bytes as f64 / rate as f64),
        verdict_seconds: verdict_time.iter().map(|(kind, time)| (kind.name().to_owned(), seconds(time))).collect(),
        peak_oversubscription_ratio: *peak_oversubscription,
    }
}

/// Other owner for which at least half of an owner's evicted memory was evicted, with these bytes and
/// all bytes.
fn main_evictor<'a>(snapshot: &'a Snapshot, key: &OwnerKey) -> Option<(&'a OwnerKey, u64, u64)> {
    let suffered: Vec<&OwnerEvictions> =
        snapshot.owner_evictions.iter().filter(|each| each.victim.as_ref() == Some(key)).collect();
    let bytes = |evictor: Option<&OwnerKey>| {
        let selected = suffered.iter().filter(|each| evictor.is_none() || each.evictor.as_ref() == evictor);
        selected.fold(0, |sum: u64, each| sum.saturating_add(each.bytes))
    };
    let all = bytes(None);
    let others = suffered.iter().filter_map(|each| each.evictor.as_ref()).filter(|evictor| *evictor != key);
    let (evictor, most) = others.map(|evictor| (evictor, bytes(Some(evictor)))).max_by_key(|(_, bytes)| *bytes)?;
    (most > 0 && most >= all / 2).then_some((evictor, most, all))
}

/// Verdict with its remedies, as of the time when it was in effect.
fn explained(
    snapshot: &Snapshot,
    verdicts: &Verdicts,
    worst: &WorstVerdict,
    evictor: Option<(&OwnerKey, u64, u64)>,
    with_ranges: bool,
) -> api::Verdict {
    let mut view = View::new(snapshot, verdicts, &[]);
    let now = view.process(worst.process.id);
    let is_over = now.is_none_or(|process| process.exited_at.is_some());
    let mut each = worst.verdict.clone();
    if is_over {
        // The judge may have seen the exit not yet.
        each.ended_at = each.ended_at.or_else(|| now.and_then(|process| process.exited_at)).or(Some(snapshot.taken));
    }
    // The process as it was then.
    view.processes.insert(worst.process.id, &worst.process);
    let verdict = verdict(&view, &each, with_ranges);
    let remedies = if let Some((evictor, bytes, all)) = evictor {
        explain::separation(&evictor.to_string(), bytes, all)
    } else {
        let process = process(&view, &worst.process, &worst.process.total());
        let ranges = with_ranges.then(|| super::ranges(snapshot, &worst.process));
        let gpu = gpu_of(snapshot, each.gpu);
        let (ranges, gpu) = (ranges.as_ref(), gpu.as_ref());
        // An override would be for a job that is over.
        let in_mode_act = is_over;
        explain::remedies(&Case { kind: each.kind, verdict: &verdict, process: &process, ranges, gpu, in_mode_act })
    };
    api::Verdict { remedies: Some(remedies).filter(|remedies| *remedies != Remedies::default()), ..verdict }
}

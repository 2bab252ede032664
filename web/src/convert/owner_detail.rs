//! Detail of an owner, with its processes, verdicts and evictions.

use std::cmp::Reverse;

use model::{Capabilities, OwnerEvictions, OwnerKey, Process, Quantity, Snapshot};

use super::{INFERRED, View, busyness::busyness, owner::owner_totals, time};
use crate::gpus;

/// Maximum length of each list.
const ITEMS_MAX: usize = 100;

/// Detail of a listed owner.
pub(crate) fn owner_detail(view: &View<'_>, key: &OwnerKey) -> Option<api::OwnerDetail> {
    let snapshot = view.snapshot;
    let totals = snapshot.owners.get(key)?;
    let total = totals.gpus.values().chain([&totals.host]).sum();
    let is_of = |process: &&Process| process.owner.key() == *key;
    let mut members: Vec<&Process> = snapshot.processes.iter().filter(is_of).collect();
    members.sort_by_cached_key(|each| {
        (each.exited_at.is_some(), Reverse(busyness(each.gpus.values().chain([&each.host]))), each.id)
    });
    let all = view.verdicts.active.iter().chain(&view.verdicts.ended);
    let verdicts: Vec<_> = all.filter(|each| view.process(each.process).as_ref().is_some_and(is_of)).collect();
    let (evictions_inflicted, evictions_suffered) = evictions(snapshot, key);
    Some(api::OwnerDetail {
        time: time(snapshot.taken),
        totals: owner_totals(key, totals, &total, snapshot),
        members_omitted: members.len().saturating_sub(ITEMS_MAX) as u64,
        members: members.into_iter().take(ITEMS_MAX).map(member).collect(),
        verdicts_omitted: verdicts.len().saturating_sub(ITEMS_MAX) as u64,
        verdicts: verdicts.into_iter().take(ITEMS_MAX).map(verdict).collect(),
        evictions_inflicted,
        evictions_suffered,
        inferred: INFERRED,
    })
}

/// Evictions for an owner and of its memory; `None` where the pairs are not counted.
pub(super) fn evictions(
    snapshot: &Snapshot,
    key: &OwnerKey,
) -> (Option<Vec<api::OwnerEviction>>, Option<Vec<api::OwnerEviction>>) {
    let inflicted = |each: &&OwnerEvictions| each.evictor.as_ref() == Some(key);
    let suffered = |each: &&OwnerEvictions| each.victim.as_ref() == Some(key);
    let evictions = || snapshot.owner_evictions.iter();
    let capabilities = Capabilities::of(snapshot);
    let counted = |evictions| capabilities.counted(Quantity::EvictionPairs, evictions);
    (
        counted(by_bytes(evictions().filter(inflicted).map(|each| eviction(each, each.victim.as_ref())))),
        counted(by_bytes(evictions().filter(suffered).map(|each| eviction(each, each.evictor.as_ref())))),
    )
}

fn member(process: &Process) -> api::OwnerProcess {
    api::OwnerProcess {
        pid: process.id.pid,
        start_ticks: process.id.start_ticks,
        name: process.name.clone(),
        state: if process.exited_at.is_some() { "exited" } else { "running" }.to_owned(),
    }
}

fn verdict(verdict: &model::Verdict) -> api::OwnerVerdict {
    api::OwnerVerdict {
        pid: verdict.process.pid,
        start_ticks: verdict.process.start_ticks,
        gpu_uuid: gpus::uuid(verdict.gpu),
        kind: verdict.kind.name().to_owned(),
        started_at: time(verdict.started_at),
        ended_at: verdict.ended_at.map(time),
    }
}

fn eviction(each: &OwnerEvictions, other: Option<&OwnerKey>) -> api::OwnerEviction {
    api::OwnerEviction {
        gpu_uuid: gpus::uuid(each.gpu),
        kind: other.map(|other| other.kind().to_owned()),
        id: other.map(|other| other.id().to_owned()),
        cause: each.cause.name().to_owned(),
        evictions: each.evictions,
        bytes: each.bytes,
    }
}

fn by_bytes(evictions: impl Iterator<Item = api::OwnerEviction>) -> Vec<api::OwnerEviction> {
    let mut evictions: Vec<_> = evictions.collect();
    evictions.sort_by_key(|each| Reverse((each.bytes, each.evictions)));
    evictions
}

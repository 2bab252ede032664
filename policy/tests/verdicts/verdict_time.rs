//! Time for which verdicts held, by owner.

use std::{collections::BTreeMap, time::Duration};

use model::{
    Counters, GpuKey, Owner, OwnerKey, OwnerTotals, Process, Snapshot, VerdictKind, VerdictTimeKey, owner::Pod,
};

use crate::support::*;

fn pod() -> OwnerKey {
    OwnerKey::Pod("7c1f".to_owned())
}

fn totals() -> OwnerTotals {
    OwnerTotals {
        host: Counters::ZERO,
        gpus: BTreeMap::new(),
        reuse: BTreeMap::new(),
        processes: 1,
        last_active_at: at(0),
    }
}

/// The history's process belongs to a pod, and these are the listed owners.
fn seen(history: &History, listed: &[OwnerKey]) -> Snapshot {
    let owner = Owner { pod: Some(Pod { uid: "7c1f".to_owned() }), ..Owner::default() };
    let process = Process { owner, ..history.process() };
    let owners = listed.iter().map(|key| (key.clone(), totals())).collect();
    Snapshot { owners, ..snapshot(history.now_ms, vec![process]) }
}

/// Each second under a load, and the known seconds after each.
fn pass(history: &mut History, load: &Load, seconds: u64, listed: &[OwnerKey]) -> Vec<f64> {
    let mut known = Vec::new();
    for _ in 0..seconds {
        history.count(load, 1000);
        let taken = seen(history, listed);
        history.observe(&taken);
        known.push(history.judge.verdicts().verdict_time.values().map(Duration::as_secs_f64).sum());
    }
    known
}

fn verdict_time(history: &History) -> Vec<(VerdictTimeKey, Duration)> {
    history.judge.verdicts().verdict_time.into_iter().collect()
}

#[test]
fn verdict_time_is_the_duration_of_verdicts_and_never_decreases() {
    let mut history = History::new();
    let mut known = pass(&mut history, &thrashes(), 20, &[pod()]);
    known.extend(pass(&mut history, &idles(), 30, &[pod()]));
    known.extend(pass(&mut history, &thrashes(), 9, &[pod()]));
    // The process exits, and is forgotten.
    let gone = Snapshot { processes: Vec::new(), ..seen(&history, &[pod()]) };
    history.observe(&gone);
    let ended: Duration = history
        .judge
        .verdicts()
        .ended
        .iter()
        .map(|verdict| verdict.ended_at.unwrap().duration_since(verdict.started_at).unwrap())
        .sum();
    assert!(ended > Duration::from_secs(20), "{ended:?}");
    let by = VerdictTimeKey { owner: pod(), gpu: GPU, kind: VerdictKind::CapacityThrash };
    assert_eq!(verdict_time(&history), [(by, ended)]);
    assert!(known.is_sorted(), "{known:?}");
}

#[test]
fn verdict_time_of_unlisted_owners_is_summed_and_of_gone_owners_forgotten() {
    let mut history = History::new();
    pass(&mut history, &thrashes(), 10, &[OwnerKey::Other]);
    assert_eq!(verdict_time(&history).into_iter().map(|(by, _)| by.owner).collect::<Vec<_>>(), [OwnerKey::Other]);
    pass(&mut history, &thrashes(), 1, &[]);
    assert_eq!(verdict_time(&history), []);
}

#[test]
fn verdict_time_at_a_pending_gpu_counts_once_it_is_known() {
    let mut history = History::new();
    history.gpu = GpuKey::Pending(1);
    assert_eq!(pass(&mut history, &thrashes(), 10, &[pod()]).last(), Some(&0.0));
    history.gpu = GPU;
    let known = pass(&mut history, &thrashes(), 10, &[pod()]);
    assert!(*known.last().unwrap() >= 8.0, "{known:?}");
}

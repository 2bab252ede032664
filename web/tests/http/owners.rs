//! One owner: `/api/v1/owners/{kind}/{id}` and its history.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{OwnerDetail, OwnerReport};
use axum::http::StatusCode;
use model::{
    Counters, EvictionCause, Gpu, HistoryOf, Job, OwnerEvictions, OwnerKey, OwnerTotals, Reuse, Snapshot, Usage,
    Verdict, VerdictKind, Verdicts, verdict::Inputs,
};
use web::{Source, Sources, VerdictSource};

use crate::{
    populated,
    support::{always, assert_problem, at, busy, get, router_over},
};

#[tokio::test]
async fn an_owner_has_its_processes_verdicts_and_evictions() {
    let response = get(&populated::router(), "/api/v1/owners/pod/7c1f").await;
    let owner: OwnerDetail = serde_json::from_str(&response.text).unwrap();
    assert_eq!((owner.totals.kind.as_str(), owner.totals.id.as_str(), owner.totals.processes), ("pod", "7c1f", 1));
    let [member] = &owner.members[..] else { panic!("{owner:?}") };
    assert_eq!((member.pid, member.start_ticks, member.state.as_str()), (20, 120, "running"));
    let verdicts: Vec<_> = owner.verdicts.iter().map(|each| (each.pid, each.ended_at.is_some())).collect();
    assert_eq!(verdicts, [(20, false), (20, true)], "active ones first");
    let bytes = |evictions: &Option<Vec<api::OwnerEviction>>| {
        evictions.iter().flatten().map(|each| (each.kind.clone(), each.bytes)).collect::<Vec<_>>()
    };
    let other = || Some("other".to_owned());
    assert_eq!(bytes(&owner.evictions_suffered), [(other(), 8192), (None, 4096)], "most bytes first");
    assert_eq!(bytes(&owner.evictions_inflicted), [(other(), 2048)]);
}

async fn report(sources: impl Into<Sources>, owner: &str) -> OwnerReport {
    let response = get(&router_over(sources), &format!("/api/v1/owners/{owner}/report")).await;
    assert_eq!(response.status, StatusCode::OK, "{}", response.text);
    serde_json::from_str(&response.text).unwrap()
}

const JOB: &str = "4711";

/// Node with a job of one step, which has exited, and its former snapshot; and evictions of its memory
/// for an owner.
fn ended_job(evictor: &OwnerKey) -> (Snapshot, Verdicts) {
    let mut snapshot = busy();
    let owner = OwnerKey::Job(JOB.to_owned());
    let gpu = *snapshot.gpus.keys().next().unwrap();
    let card = Gpu { memory_bytes: Some(64 << 20), link_bytes_per_second: Some(1024), ..Gpu::default() };
    snapshot.gpus.insert(gpu, card);
    let mut process = snapshot.processes.remove(0);
    process.owner.job = Some(Job { id: JOB.to_owned(), step: Some("0".to_owned()) });
    process.managed_bytes = Some(32 << 20);
    process.exited_at = None;
    process.gpus = [(gpu, process.total())].into();
    process.reuse = [(gpu, Reuse { fetched_bytes: 8192, refetched_bytes: 4096, ..Reuse::default() })].into();
    let totals = OwnerTotals {
        host: process.host.clone(),
        gpus: process.gpus.clone(),
        reuse: process.reuse.clone(),
        processes: 1,
        last_active_at: at(0),
    };
    snapshot.owners = [(owner.clone(), totals)].into();
    snapshot.processes = vec![process.clone()];
    let verdict = Verdict {
        process: process.id,
        gpu,
        peer: None,
        kind: VerdictKind::CapacityThrash,
        started_at: at(10),
        confirmed_at: at(12),
        ended_at: None,
        ranges: Vec::new(),
        window: Duration::from_secs(2),
        inputs: Inputs { fetched_bytes: 8192, refetched_bytes: 4096, ..Inputs::default() },
        total: Inputs::default(),
        checks: Vec::new(),
    };
    let mut usage = Usage::default();
    usage.observe(&snapshot);
    usage.add_verdict_time(owner.clone(), Some("0"), verdict.kind, Duration::from_secs(8));
    usage.judge(&verdict, &process, &snapshot);
    let between = |evictor: &OwnerKey, bytes| OwnerEvictions {
        gpu,
        victim: Some(owner.clone()),
        evictor: Some(evictor.clone()),
        cause: EvictionCause::Fault,
        evictions: 1,
        bytes,
    };
    snapshot.owner_evictions = vec![between(&owner, 1024), between(evictor, 2048)];
    // The process is forgotten, the job is not.
    snapshot.processes.clear();
    (snapshot, Verdicts { usage: Arc::new(usage), ..Verdicts::default() })
}

fn sources((snapshot, verdicts): (Snapshot, Verdicts)) -> Sources {
    let verdicts = Arc::new(verdicts);
    Sources { verdicts: VerdictSource::new(move || Arc::clone(&verdicts)), ..always(snapshot).into() }
}

#[tokio::test]
async fn a_job_has_a_report_by_step_after_its_processes_are_forgotten() {
    let report = report(sources(ended_job(&OwnerKey::Other)), "job/4711").await;
    let [step] = &report.steps[..] else { panic!("{report:?}") };
    assert_eq!(step.step.as_deref(), Some("0"));
    for usage in [&report.usage, &step.usage] {
        assert_eq!((usage.refetched_bytes, usage.refetch_seconds), (Some(4096), Some(4.0)), "4096 B at 1024 B/s");
        assert_eq!(usage.verdict_seconds.get("capacity_thrash"), Some(&8.0));
        assert_eq!(usage.peak_oversubscription_ratio, Some(0.5));
        assert!(usage.bytes_htod > 0, "{usage:?}");
    }
    assert_eq!((report.user.as_deref(), report.worst_verdict_step.as_deref()), (Some("alice"), Some("0")));
    let verdict = report.worst_verdict.unwrap();
    assert!(verdict.ended_at.is_some() && verdict.summary.contains("job 4711"), "{verdict:?}");
    let suffered = report.evictions_suffered.unwrap();
    assert_eq!(suffered.iter().map(|each| each.bytes).collect::<Vec<_>>(), [2048, 1024]);
}

#[tokio::test]
async fn counts_since_the_last_judgement_are_in_the_report() {
    let (mut snapshot, _) = ended_job(&OwnerKey::Other);
    snapshot.processes = busy().processes;
    snapshot.processes.truncate(1);
    let process = &mut snapshot.processes[0];
    process.owner.job = Some(Job { id: JOB.to_owned(), step: Some("0".to_owned()) });
    let bytes = process.total().bytes_htod.total();
    let report = report(sources((snapshot, Verdicts::default())), "job/4711").await;
    assert_eq!(report.steps[0].usage.bytes_htod, bytes);
}

#[tokio::test]
async fn a_job_that_fits_alone_is_to_run_apart_from_its_evictor() {
    let report = report(sources(ended_job(&OwnerKey::Job("7".to_owned()))), "job/4711").await;
    let remedies = report.worst_verdict.unwrap().remedies.unwrap();
    assert_eq!(remedies.effective[0].action, "run it apart from job 7: one after the other, or on different GPUs");
    let expected = "its memory fits on the GPU, and 67 % of the 3.0 KiB evicted from it were for job 7";
    assert_eq!(remedies.effective[0].evidence, expected);
}

#[tokio::test]
async fn an_unlisted_owner_is_a_problem() {
    let router = populated::router();
    for path in [
        "pod/7c1",
        "job/7c1f",
        "unit/x.scope",
        "pod/7c1f/history?seconds=1",
        "job/1/history",
        "job/1/report",
        "pod/7c1f/report",
    ] {
        let response = get(&router, &format!("/api/v1/owners/{path}")).await;
        let is_known = path.starts_with("pod/7c1f/");
        assert_eq!(response.status == StatusCode::OK, is_known, "{path}: {}", response.text);
    }
    for path in ["node/7", "other/", "other/x"] {
        assert_problem(&get(&router, &format!("/api/v1/owners/{path}")).await, StatusCode::NOT_FOUND, path);
    }
}

#[tokio::test]
async fn the_history_of_an_owner_is_requested_by_its_full_id() {
    let unit = OwnerKey::Unit("user@1000.service/train.service".to_owned());
    let mut snapshot = busy();
    let totals = OwnerTotals {
        host: Counters::default(),
        gpus: BTreeMap::default(),
        reuse: BTreeMap::default(),
        processes: 0,
        last_active_at: at(0),
    };
    snapshot.owners.insert(unit.clone(), totals);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let history = Source::new(move |request: model::HistoryRequest| {
        recorded.lock().unwrap().push(request.of);
        std::future::ready(Some(None))
    });
    let router = router_over(Sources { history, ..always(snapshot).into() });
    let path = "/api/v1/owners/unit/user@1000.service%2Ftrain.service";
    assert_eq!(get(&router, path).await.status, StatusCode::OK);
    assert_problem(&get(&router, &format!("{path}/history")).await, StatusCode::NOT_FOUND, "there is no history");
    assert_eq!(*requests.lock().unwrap(), [HistoryOf::Owner(unit)]);
}

//! `/api/v1/verdicts`, `/api/v1/processes/{pid}/verdict`, and verdicts in lists of processes.

use std::{sync::Arc, time::Duration};

use axum::Router;
use model::{
    GpuKey, GpuUuid, ManagedGrowth, ProcessId, Verdict, VerdictKind, Verdicts,
    verdict::{Check, Inputs, Unjudged, Victim},
};
use serde_json::Value;
use web::{Sources, VerdictSource};

use crate::support::{always, at, busy, get, router_over};

const HEAVY: ProcessId = ProcessId { pid: 20, start_ticks: 120 };
const LIGHT: ProcessId = ProcessId { pid: 10, start_ticks: 110 };
const FORGOTTEN: ProcessId = ProcessId { pid: 5, start_ticks: 1 };

fn gpu() -> GpuKey {
    GpuKey::Known(GpuUuid([0xab; 16]))
}

fn verdict(process: ProcessId, kind: VerdictKind, ended_at: Option<u64>) -> Verdict {
    Verdict {
        process,
        gpu: gpu(),
        peer: None,
        kind,
        started_at: at(10),
        confirmed_at: at(12),
        ended_at: ended_at.map(at),
        ranges: Vec::new(),
        window: Duration::from_millis(1500),
        inputs: Inputs { fetched_bytes: 100, refetched_bytes: 90, ..Inputs::default() },
        total: Inputs { fetched_bytes: 1000, missing_records: 3, ..Inputs::default() },
        checks: vec![Check {
            description: "share".to_owned(),
            name: "refetch_ratio",
            value: 0.9,
            threshold: 0.5,
            met: true,
        }],
    }
}

fn eviction(victim: ProcessId, evictor: ProcessId, bytes: u64) -> Victim {
    Victim { victim, evictor, gpu: gpu(), bytes, window: Duration::from_millis(500) }
}

fn router() -> Router {
    let worst = verdict(HEAVY, VerdictKind::CapacityThrash, None);
    let verdicts = Arc::new(Verdicts {
        active: vec![
            Verdict { inputs: Inputs { bytes_htod: 1, ..worst.inputs }, ..worst },
            verdict(LIGHT, VerdictKind::Streaming, None),
            verdict(HEAVY, VerdictKind::FirstTouchStorm, None),
        ],
        ended: vec![verdict(FORGOTTEN, VerdictKind::PingPong, Some(20))],
        unjudged: vec![Unjudged { process: LIGHT, gpu: gpu(), started_at: at(10), ended_at: at(20), windows: 5 }],
        unjudged_windows: 5,
        victims: vec![eviction(LIGHT, HEAVY, 1000), eviction(HEAVY, HEAVY, 900), eviction(LIGHT, FORGOTTEN, 100)],
        ..Verdicts::default()
    });
    let source = VerdictSource::new(move || Arc::clone(&verdicts));
    router_over(Sources { verdicts: source, ..always(busy()).into() })
}

async fn verdicts(path: &str) -> api::Verdicts {
    serde_json::from_str(&get(&router(), path).await.text).unwrap()
}

#[tokio::test]
async fn a_verdict_has_its_evidence() {
    let verdicts = verdicts("/api/v1/verdicts").await;
    let first = &verdicts.active[0];
    assert_eq!((first.pid, first.start_ticks, first.name.as_str()), (20, 120, "heavy"));
    assert_eq!((first.kind.as_str(), first.thrashing, first.owner.kind.as_str()), ("capacity_thrash", true, "other"));
    assert_eq!(first.gpu_uuid.as_deref(), Some("GPU-abababab-abab-abab-abab-abababababab"));
    assert_eq!(
        (first.started_at.as_str(), first.confirmed_at.as_str()),
        ("2023-11-14T22:13:30.000Z", "2023-11-14T22:13:32.000Z")
    );
    assert_eq!((first.window_seconds, first.inputs.refetched_bytes, first.total.missing_records), (1.5, 90, 3));
    assert_eq!(
        (first.checks[0].name.as_str(), first.checks[0].value, first.checks[0].met),
        ("refetch_ratio", 0.9, true)
    );
    assert!(!verdicts.active[1].thrashing);
}

#[tokio::test]
async fn a_verdict_has_its_sentences_and_on_its_process_its_remedies() {
    let listed = verdicts("/api/v1/verdicts").await;
    let first = &listed.active[0];
    assert_eq!((first.label.as_str(), &first.remedies), ("capacity thrash", &None));
    assert!(first.summary.starts_with("20 heavy (user ") && first.summary.contains("is thrashing GPU"), "{first:?}");
    assert!(first.reason.starts_with("In the last window (1.5 s) it fetched "), "{}", first.reason);
    assert!(listed.ended[0].summary.starts_with("5 used memory that bounced "), "{}", listed.ended[0].summary);
    let of_process = verdicts("/api/v1/processes/20/verdict").await;
    let remedies = of_process.active[0].remedies.as_ref().unwrap();
    assert_eq!(remedies.effective[0].action, "uvmctl policy set --pid 20 --policy auto-live --mode shadow");
    assert_eq!(remedies.ineffective.len(), 1);
}

#[tokio::test]
async fn a_verdict_has_its_victims_without_the_process_itself() {
    let verdicts = verdicts("/api/v1/verdicts").await;
    let victims = &verdicts.active[0].victims;
    assert_eq!(victims.len(), 1);
    assert_eq!((victims[0].pid, victims[0].name.as_str(), victims[0].bytes_per_second), (10, "light", 2000));
    assert!(victims[0].inferred && verdicts.active[1].victims.is_empty());
}

#[tokio::test]
async fn an_ended_verdict_of_a_forgotten_process_is_listed() {
    let verdicts = verdicts("/api/v1/verdicts").await;
    let ended = &verdicts.ended[0];
    assert_eq!((ended.pid, ended.name.as_str(), ended.kind.as_str()), (5, "", "ping_pong"));
    assert_eq!(ended.ended_at.as_deref(), Some("2023-11-14T22:13:40.000Z"));
    assert!(ended.victims.is_empty());
}

#[tokio::test]
async fn verdicts_of_a_process_are_its_own() {
    let verdicts = verdicts("/api/v1/processes/20/verdict").await;
    let kinds: Vec<_> = verdicts.active.iter().map(|verdict| verdict.kind.as_str()).collect();
    assert_eq!((kinds, verdicts.ended.len()), (vec!["capacity_thrash", "first_touch_storm"], 0));
}

#[tokio::test]
async fn a_running_process_whose_memory_grows_has_a_remark() {
    let remarks = |exited_at| async move {
        let mut snapshot = busy();
        let process = snapshot.processes.iter_mut().find(|process| process.id == HEAVY).unwrap();
        process.managed_growth =
            Some(ManagedGrowth { from_bytes: 1 << 30, to_bytes: 4 << 30, over: Duration::from_hours(1) });
        process.exited_at = exited_at;
        get(&router_over(always(snapshot)), "/api/v1/processes/20/verdict").await.json()["remarks"].clone()
    };
    let growing = remarks(None).await;
    assert!(
        growing[0].as_str().unwrap().starts_with("Its managed memory grows steadily, by 3.0 GiB per hour"),
        "{growing}"
    );
    assert_eq!(remarks(Some(at(20))).await, serde_json::json!([]));
}

#[tokio::test]
async fn kinds_that_need_block_records_are_unavailable_without_them() {
    assert!(verdicts("/api/v1/verdicts").await.unavailable.is_empty());
    let mut snapshot = busy();
    snapshot.source.block_records.is_off = true;
    let body = get(&router_over(always(snapshot)), "/api/v1/verdicts").await.json();
    let kinds: Vec<_> =
        body["unavailable"].as_array().unwrap().iter().map(|unavailable| &unavailable["kind"]).collect();
    assert_eq!(kinds, ["capacity_thrash", "ping_pong", "streaming"]);
    let expected =
        "block records are off (records.enabled = false), so it is unknown whether fetched bytes were evicted before";
    assert_eq!(body["unavailable"][0]["reason"], expected);
}

#[tokio::test]
async fn lists_of_processes_have_verdicts_and_evictors() {
    let body = get(&router(), "/api/v1/processes").await.json();
    let [heavy, light, gone] = &body["processes"].as_array().unwrap()[..] else { panic!("{body}") };
    assert_eq!(
        (&heavy["verdicts"][0]["kind"], &heavy["verdicts"][1]["kind"]),
        (&"capacity_thrash".into(), &"first_touch_storm".into())
    );
    assert_eq!((&heavy["victim_of"], &light["verdicts"][0]["kind"]), (&Value::Null, &"streaming".into()));
    let evictor = &light["victim_of"];
    assert_eq!(
        (&evictor["pid"], &evictor["name"], &evictor["bytes_per_second"]),
        (&20.into(), &"heavy".into(), &2000.into())
    );
    assert_eq!((&gone["verdicts"], &gone["victim_of"]), (&Value::Array(Vec::new()), &Value::Null));
}

#[tokio::test]
async fn remarks_name_the_windows_of_a_process_that_could_not_be_judged() {
    let remarks = verdicts("/api/v1/processes/10/verdict").await.remarks;
    let [remark] = remarks.as_slice() else { panic!("{remarks:?}") };
    assert!(remark.starts_with("5 windows at "), "{remark}");
    assert!(remark.contains("between 2023-11-14T22:13:30.000Z and 2023-11-14T22:13:40.000Z"), "{remark}");
    assert_eq!(verdicts("/api/v1/processes/20/verdict").await.remarks, [""; 0]);
}

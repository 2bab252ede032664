//! `/api/v1`, `/livez`, `/readyz`, the page, and problems of invalid requests.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::support::{
    Response, assert_problem, at, busy, counting, get, metrics, process, refused, router, router_on, router_over, send,
    waiting,
};
use api::{Processes, Status};
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, Version},
};
use model::{Degradation, DegradedReason, Gpu, GpuKey, GpuUuid, QuotaRefusals};
use serde_json::Value;
use web::Snapshots;

fn names(response: &Response) -> Vec<String> {
    let Processes { processes, .. } = serde_json::from_str(&response.text).unwrap();
    processes.into_iter().map(|process| process.name).collect()
}

#[tokio::test]
async fn running_processes_are_first_and_then_the_busiest() {
    assert_eq!(names(&get(&router(busy()), "/api/v1/processes").await), ["heavy", "light", "gone"]);
}

#[tokio::test]
async fn a_list_has_the_time_of_its_snapshot() {
    let snapshot = counting();
    let taken = model::text::time(snapshot.taken);
    assert_eq!(get(&router(snapshot), "/api/v1/processes").await.json()["time"], taken);
}

#[tokio::test]
async fn prefetches_count_as_activity() {
    let mut snapshot = counting();
    let mut prefetches = model::Counters::default();
    prefetches.bytes_htod[model::Cause::Api] = 1 << 30;
    let mut faults = model::Counters::default();
    faults.fault_entries[model::Access::Read] = 100;
    snapshot.processes = vec![
        process(1, "faults", None, BTreeMap::from([(GpuKey::Unknown(1), faults)])),
        process(2, "prefetches", None, BTreeMap::from([(GpuKey::Unknown(1), prefetches)])),
    ];
    assert_eq!(names(&get(&router(snapshot), "/api/v1/processes").await), ["prefetches", "faults"]);
}

#[tokio::test]
async fn process_older_than_its_source_has_the_time_from_which_it_is_counted() {
    let mut snapshot = busy();
    for process in &mut snapshot.processes {
        process.counted_from = Some(at(3));
    }
    let body = get(&router(snapshot), "/api/v1/processes/20").await.json();
    assert_eq!(body["counted_from"], "2023-11-14T22:13:23.000Z");
}

#[tokio::test]
async fn a_process_has_sums_with_breakdowns_also_by_gpu() {
    let body = get(&router(busy()), "/api/v1/processes").await.json();
    let heavy = &body["processes"][0];
    assert_eq!((&heavy["pid"], &heavy["start_ticks"]), (&20.into(), &120.into()));
    assert_eq!(
        (&heavy["user"], &heavy["uid"], &heavy["cgroup"]),
        (&"alice".into(), &1000.into(), &"/user.slice".into())
    );
    assert_eq!((&heavy["state"], &heavy["exited_at"]), (&"running".into(), &Value::Null));
    assert_eq!(heavy["started_at"], "2023-11-14T22:13:21.000Z");
    assert_eq!(heavy["counted_from"], Value::Null);
    assert_eq!((&heavy["fault_entries"], &heavy["fault_instances"]), (&310.into(), &465.into()));
    assert_eq!((&heavy["cpu_faults"], &heavy["cpu_faults_by_access"]["write"]), (&7.into(), &4.into()));
    assert_eq!((&heavy["bytes_htod"], &heavy["bytes_dtoh"]), (&65536.into(), &12288.into()));
    assert_eq!((&heavy["evicted_bytes"], &heavy["dropped_events"]), (&8192.into(), &0.into()));
    assert_eq!(heavy["fault_entries_by_access"]["write"], 300);
    assert_eq!(heavy["fault_entries_by_access"]["atomic_strong"], 0);
    assert_eq!(heavy["bytes_by_cause"]["htod"]["tree_prefetch"], 65536);
    assert_eq!(heavy["bytes_by_cause"]["dtoh"]["eviction"], 8192);
    assert_eq!(heavy["gpus"][0]["uuid"], "GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f");
    assert_eq!((&heavy["gpus"][0]["fault_entries"], &heavy["gpus"][1]["fault_entries"]), (&300.into(), &10.into()));
    assert_eq!(body["processes"][2]["state"], "exited");
    assert_eq!(body["processes"][2]["exited_at"], "2023-11-14T22:14:10.000Z");
}

#[tokio::test]
async fn processes_are_selected_by_state() {
    let router = router(busy());
    assert_eq!(names(&get(&router, "/api/v1/processes?state=running").await), ["heavy", "light"]);
    assert_eq!(names(&get(&router, "/api/v1/processes?state=exited").await), ["gone"]);
}

#[tokio::test]
async fn totals_of_the_status_include_forgotten_processes() {
    let response = get(&router(busy()), "/api/v1/status").await;
    let status: Status = serde_json::from_str(&response.text).unwrap();
    assert_eq!((status.version.as_str(), status.hostname.as_str()), ("1.2.3", "gpu-17"));
    assert_eq!((status.state.as_str(), status.reasons.len()), ("counting", 0));
    assert_eq!((status.driver.as_deref(), status.layout.as_deref()), (Some("550.163.01"), Some("550-555")));
    assert_eq!(status.counting_started_at.as_deref(), Some("2023-11-14T22:13:20.000Z"));
    assert_eq!((status.dropped_events, status.dropped_events_by_reason["map_full"]), (5, 5));
    assert_eq!((status.total.fault_entries, status.total.cpu_faults), (927, 7));
    assert_eq!((status.gpus[0].counts.fault_entries, status.gpus[1].counts.fault_entries), (917, 10));
    assert_eq!((status.probes[0].hits, status.probes[0].run_time_ns), (1234, Some(1_500_000_000)));
    assert_eq!(status.probes[1].run_time_ns, None);
}

#[tokio::test]
async fn a_gpu_without_processor_id_is_listed_by_its_uuid_with_its_counts() {
    let mut snapshot = busy();
    let first = *snapshot.gpus.keys().next().unwrap();
    snapshot.gpus.get_mut(&first).unwrap().id = None;
    snapshot.gpus.insert(GpuKey::Known(GpuUuid([0xab; 16])), Gpu { id: Some(1), name: None, ..Gpu::default() });
    let router = router(snapshot);
    let status = get(&router, "/api/v1/status").await.json();
    let names = |gpu: &Value| (gpu["gpu"].clone(), gpu["processor_id"].clone(), gpu["uuid"].clone());
    let gpus: Vec<_> = status["gpus"].as_array().unwrap().iter().map(names).collect();
    let (last, other) = ("GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f", "GPU-abababab-abab-abab-abab-abababababab");
    assert_eq!(
        gpus,
        [
            (0.into(), Value::Null, last.into()),
            (Value::Null, 1.into(), other.into()),
            (Value::Null, 2.into(), Value::Null),
        ]
    );
    assert_eq!(status["gpus"][0]["fault_entries"], 917);
    let heavy = &get(&router, "/api/v1/processes").await.json()["processes"][0]["gpus"][0];
    assert_eq!((&heavy["processor_id"], &heavy["uuid"]), (&Value::Null, &last.into()));
}

#[tokio::test]
async fn pending_counts_are_in_those_of_unknown_gpus_and_in_the_totals() {
    let mut snapshot = busy();
    let light = snapshot.gpu_totals[&GpuKey::Unknown(2)].clone();
    snapshot.gpu_totals.insert(GpuKey::Pending(2), light);
    let response = get(&router(snapshot), "/api/v1/status").await;
    let status: Status = serde_json::from_str(&response.text).unwrap();
    assert_eq!((status.gpus[1].id.processor_id, status.gpus[1].id.uuid.as_deref()), (Some(2), None));
    assert_eq!((status.gpus[1].counts.fault_entries, status.gpus.len()), (20, 2));
    assert_eq!(status.total.fault_entries, 937);
}

#[tokio::test]
async fn a_warning_is_among_the_reasons_though_uvmd_counts() {
    let mut snapshot = counting();
    snapshot.source.warnings = vec!["uvmd sees little: move it".to_owned()];
    let router = router(snapshot);
    let status = get(&router, "/api/v1/status").await.json();
    assert_eq!((&status["state"], &status["reasons"][0]), (&"counting".into(), &"uvmd sees little: move it".into()));
    assert_eq!(get(&router, "/readyz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_reached_quota_is_in_status_readyz_and_metrics() {
    let mut snapshot = counting();
    snapshot.source.degraded = vec![Degradation {
        reason: DegradedReason::QuotaReached,
        uid: Some(1000),
        user: Some("eve".to_owned()),
        pid: Some(7),
        description: "process 7 of user eve (uid 1000): too much".to_owned(),
    }];
    snapshot.source.quota_refusals =
        vec![QuotaRefusals { uid: Some(1000), user: None, resource: "va_spaces", refusals: 3 }];
    let router = router(snapshot);
    let ready = get(&router, "/readyz").await;
    let line = "degraded: quota_reached: process 7 of user eve (uid 1000): too much";
    assert_eq!((ready.status, ready.text.as_str()), (StatusCode::OK, &*format!("ok\n{line}\n")));
    let status: Status = serde_json::from_str(&get(&router, "/api/v1/status").await.text).unwrap();
    assert_eq!(
        (status.state.as_str(), status.reasons[0].as_str()),
        ("counting", &line["degraded: quota_reached: ".len()..])
    );
    assert_eq!((status.degraded[0].reason.as_str(), status.degraded[0].pid), ("quota_reached", Some(7)));
    assert_eq!(status.quota_refusals[0].refusals, 3);
    let metrics = metrics(&router).await;
    for sample in [
        "uvmd_state{state=\"counting\"} 1",
        "uvmd_state{state=\"refused\"} 0",
        "uvmd_degraded{reason=\"quota_reached\"} 1",
        "uvmd_degraded{reason=\"registration_rate\"} 0",
        "uvmd_quota_refusals_total{resource=\"va_spaces\",uid=\"1000\"} 3",
    ] {
        assert!(metrics.lines().any(|line| line == sample), "{sample} is not in {metrics}");
    }
}

#[tokio::test]
async fn status_and_readyz_name_each_missing_prerequisite() {
    let router = router(waiting());
    let status = get(&router, "/api/v1/status").await.json();
    assert_eq!((&status["state"], &status["reasons"][1]), (&"waiting".into(), &"no kprobes: boot with them".into()));
    let ready = get(&router, "/readyz").await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ready.text, "waiting: no driver: load it\nwaiting: no kprobes: boot with them\n");
    assert_eq!(get(&router, "/livez").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_refused_driver_is_not_ready_with_its_reason() {
    let router = router(refused());
    let ready = get(&router, "/readyz").await;
    assert_eq!(
        (ready.status, ready.text.as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "refused: driver 999.1 is not known: update\n")
    );
    assert_eq!(get(&router, "/api/v1/status").await.json()["state"], "refused");
}

#[tokio::test]
async fn counting_without_processes_is_ready() {
    let router = router(counting());
    assert_eq!(get(&router, "/readyz").await.status, StatusCode::OK);
    assert_eq!(get(&router, "/api/v1/processes").await.json()["processes"], Value::Array(Vec::new()));
}

#[tokio::test]
async fn hostile_and_huge_names_come_through_as_json_strings() {
    let huge = "x".repeat(100_000);
    let hostile = ["<script>alert(1)</script>", "\u{1b}[31mred", "a\"b\\c\n", "\u{202e}txt", "", &huge];
    let mut snapshot = counting();
    snapshot.processes = (1..).zip(hostile).map(|(pid, name)| process(pid, name, None, BTreeMap::new())).collect();
    let response = get(&router(snapshot), "/api/v1/processes").await;
    assert_eq!(response.header("content-type"), "application/json");
    assert_eq!(response.header("x-content-type-options"), "nosniff");
    assert_eq!(names(&response), hostile);
    assert!(!response.text.contains('\u{1b}'));
}

#[tokio::test]
async fn an_unknown_path_or_method_is_a_problem() {
    let router = router(counting());
    assert_problem(&get(&router, "/api/v2/status").await, StatusCode::NOT_FOUND, "/api/v2/status");
    let request = Request::post("/api/v1/status").header("Host", "localhost").body(Body::empty()).unwrap();
    let response = send(&router, request).await;
    assert_problem(&response, StatusCode::METHOD_NOT_ALLOWED, "POST");
    assert_eq!(response.header("allow"), "GET,HEAD");
}

#[tokio::test]
async fn an_unknown_parameter_is_a_problem_on_every_path() {
    let router = router(counting());
    for path in ["/", "/page/main.js", "/metrics", "/livez", "/readyz", "/api/v1/status", "/openapi.json"] {
        assert_problem(&get(&router, &format!("{path}?pid=1")).await, StatusCode::BAD_REQUEST, "unknown field `pid`");
    }
    assert_problem(&get(&router, "/api/v1/processes?state=asleep").await, StatusCode::BAD_REQUEST, "asleep");
    assert_problem(
        &get(&router, "/api/v1/processes?state=exited&state=exited").await,
        StatusCode::BAD_REQUEST,
        "state",
    );
}

#[tokio::test]
async fn on_loopback_a_foreign_host_name_is_rejected() {
    let router = router(counting());
    let request = |host: &str| Request::get("/api/v1/status").header("Host", host).body(Body::empty()).unwrap();
    assert_problem(&send(&router, request("evil.example:9477")).await, StatusCode::MISDIRECTED_REQUEST, "evil.example");
    assert_eq!(send(&router, request("localhost:8080")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_request_must_have_one_valid_host_on_every_listener() {
    let served_to_all = router_on("0.0.0.0:9477", counting());
    for router in [router(counting()), served_to_all.clone()] {
        let request = |hosts: &[&'static str]| {
            let request = hosts.iter().fold(Request::get("/livez"), |request, host| request.header("Host", *host));
            request.body(Body::empty()).unwrap()
        };
        assert_problem(&send(&router, request(&[])).await, StatusCode::BAD_REQUEST, "no Host");
        for malformed in ["", "a b", "localhost:port:"] {
            assert_problem(&send(&router, request(&[malformed])).await, StatusCode::BAD_REQUEST, "HOST:PORT");
        }
        let twice = send(&router, request(&["localhost", "evil.example"])).await;
        assert_problem(&twice, StatusCode::BAD_REQUEST, "more than one Host");
        let http_1_0 = Request::get("/livez").version(Version::HTTP_10).body(Body::empty()).unwrap();
        assert_eq!(send(&router, http_1_0).await.status, StatusCode::OK);
    }
    let by_name = |name: &str| Request::get("/livez").header("Host", name).body(Body::empty()).unwrap();
    assert_eq!(send(&served_to_all, by_name("gpu-17:9477")).await.status, StatusCode::OK);
    let foreign = send(&served_to_all, by_name("evil.example:9477")).await;
    assert_problem(&foreign, StatusCode::MISDIRECTED_REQUEST, "http.hosts");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_or_stalled_collector_is_a_problem() {
    let stopped = router_over(Snapshots::new(|| std::future::ready(None)));
    let stalled = router_over(Snapshots::new(|| async {
        tokio::time::sleep(Duration::from_hours(1)).await;
        Some(Arc::new(counting()))
    }));
    for path in ["/metrics", "/readyz", "/api/v1/status", "/api/v1/processes"] {
        assert_problem(&get(&stopped, path).await, StatusCode::SERVICE_UNAVAILABLE, "stopped");
        assert_problem(&get(&stalled, path).await, StatusCode::SERVICE_UNAVAILABLE, "did not respond");
    }
    assert_eq!(get(&stalled, "/livez").await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_page_loads_from_this_service_only() {
    let router = router(counting());
    let page = get(&router, "/").await;
    assert_eq!((page.status, page.header("content-type")), (StatusCode::OK, "text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").starts_with("default-src 'none'; script-src 'self';"));
    assert!(!page.text.contains("http://") && !page.text.contains("https://") && !page.text.contains("style="));
    let parts: Vec<_> = page
        .text
        .split('"')
        .filter(|text| text.starts_with("/page/") || text.starts_with("/api/") || *text == "/metrics")
        .collect();
    assert!(parts.len() >= 6, "{parts:?}");
    for part in parts {
        assert_eq!(get(&router, part).await.status, StatusCode::OK, "{part}");
    }
}

/// Scripts of the page by name, with their text. Modules import each other by name.
async fn scripts(router: &Router) -> BTreeMap<String, String> {
    let mut scripts = BTreeMap::new();
    let mut pending = vec!["main.js".to_owned()];
    while let Some(script) = pending.pop() {
        let response = get(router, &format!("/page/{script}")).await;
        assert_eq!(response.status, StatusCode::OK, "{script}");
        let imports = response.text.lines().filter(|line| line.starts_with("import "));
        let modules = imports.map(|line| line.split("\"./").nth(1).unwrap().strip_suffix("\";").unwrap().to_owned());
        pending.extend(modules.filter(|module| !scripts.contains_key(module)));
        scripts.insert(script, response.text);
    }
    scripts
}

#[tokio::test]
async fn the_token_is_sent_to_the_api_only_and_stored_for_the_tab_only() {
    for (script, text) in scripts(&router(counting())).await {
        for storage in ["localStorage", "document.cookie", "indexedDB", "caches."] {
            assert!(!text.contains(storage), "{script} uses {storage}");
        }
        // One script sends requests, to paths of this service, with the token in a header.
        for request in ["fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon", "sessionStorage", "Bearer"] {
            assert!(script == "api.js" || !text.contains(request), "{script} uses {request}");
        }
    }
}

#[tokio::test]
async fn every_script_that_is_served_is_used() {
    let used = scripts(&router(counting())).await;
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/page")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(path.extension() != Some("js".as_ref()) || used.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn no_script_turns_text_into_markup() {
    let router = router(counting());
    let scripts = scripts(&router).await;
    assert!(scripts.len() >= 8, "{:?}", scripts.keys());
    for (script, text) in scripts {
        for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "setHTML"] {
            assert!(!text.contains(forbidden), "{script} uses {forbidden}");
        }
    }
}

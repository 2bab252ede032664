//! Series of GPUs' memory, of owners, and of uvmd itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use model::{
    Access, Counters, EvictionCause, Gpu, GpuKey, Owner, OwnerEvictions, OwnerKey, OwnerTotals, Residency, Reuse,
    Snapshot, Verdict, VerdictKind, VerdictTimeKey, Verdicts, owner::Pod, verdict::Inputs,
};
use std::{sync::Arc, time::Duration};
use web::{Sources, VerdictSource};

use crate::{
    metrics::scrape_from,
    populated,
    support::{always, at, busy, get, metrics, router, router_over},
};

const GPU: &str = r#"gpu="0",UUID="GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f""#;
const UNKNOWN: &str = r#"gpu="",UUID="unknown""#;
const POD: &str =
    r#"owner_kind="pod",pod_uid="7c1f",hpc_job="",container_id="",unit="",namespace="",pod="",container="""#;
const OTHER: &str =
    r#"owner_kind="other",pod_uid="",hpc_job="",container_id="",unit="",namespace="",pod="",container="""#;

fn gpu(snapshot: &Snapshot) -> GpuKey {
    *snapshot.gpus.keys().next().unwrap()
}

fn totals(gpu: GpuKey, faults: u64) -> OwnerTotals {
    let mut counters = Counters { induced_eviction_bytes: 5, ..Counters::default() };
    counters.fault_entries[Access::Read] = faults;
    let host = Counters { cpu_write_faults: 3, ..Counters::default() };
    let reuse = Reuse { fetched_bytes: 30, refetched_bytes: 20, cpu_reclaimed_bytes: 10, bounces: 1 };
    OwnerTotals {
        host,
        gpus: BTreeMap::from([(gpu, counters)]),
        reuse: BTreeMap::from([(gpu, reuse)]),
        processes: 1,
        last_active_at: at(50),
    }
}

/// Processes with owners: "heavy" has a pod, "light" and "gone" have none.
fn owned() -> Snapshot {
    let mut snapshot = busy();
    let gpu = gpu(&snapshot);
    for process in &mut snapshot.processes {
        process.residency.insert(gpu, Residency { bytes: 4, min_bytes: 3, max_bytes: 5 });
    }
    let heavy = snapshot.processes.iter_mut().find(|process| process.name == "heavy").unwrap();
    heavy.owner = Owner { pod: Some(Pod { uid: "7c1f".to_owned() }), ..Owner::default() };
    snapshot.owners =
        BTreeMap::from([(OwnerKey::Other, totals(gpu, 10)), (OwnerKey::Pod("7c1f".to_owned()), totals(gpu, 300))]);
    snapshot
}

#[track_caller]
fn assert_are(samples: &BTreeMap<String, String>, expected: &[(String, &str)]) {
    for (series, value) in expected {
        assert_eq!(samples.get(series).map(String::as_str), Some(*value), "{series}");
    }
}

#[tokio::test]
async fn an_owner_has_series_with_the_labels_of_its_kind() {
    let samples = scrape_from(&router(owned())).await;
    assert_are(
        &samples,
        &[
            (format!("uvm_owner_gpu_faults_total{{{GPU},{POD}}}"), "300"),
            (format!("uvm_owner_gpu_faults_total{{{GPU},{OTHER}}}"), "10"),
            (format!(r#"uvm_owner_cpu_faults_total{{{POD},access="write"}}"#), "3"),
            (format!(r#"uvm_owner_migrated_bytes_total{{{GPU},{POD},direction="dtod"}}"#), "0"),
            (format!("uvm_owner_induced_eviction_bytes_total{{{GPU},{POD}}}"), "5"),
            (format!("uvm_owner_fetched_bytes_total{{{GPU},{POD}}}"), "30"),
            (format!("uvm_owner_refetched_bytes_total{{{GPU},{POD}}}"), "20"),
            (format!("uvm_owner_cpu_reclaimed_bytes_total{{{GPU},{POD}}}"), "10"),
            (format!("uvm_owner_resident_bytes{{{GPU},{POD}}}"), "4"),
            (format!("uvm_owner_managed_bytes{{{POD}}}"), "67108864"),
            // Of the two processes without an owner, one runs.
            (format!("uvm_owner_managed_bytes{{{OTHER}}}"), "67108864"),
            (format!("uvm_owner_processes{{{POD}}}"), "1"),
        ],
    );
}

#[tokio::test]
async fn a_pod_with_names_has_them_in_its_series_and_its_workload_in_one_of_its_own() {
    let mut snapshot = owned();
    snapshot.owner_names = populated::names();
    let samples = scrape_from(&router(snapshot)).await;
    let named = POD.replace(r#"namespace="",pod="",container="""#, r#"namespace="ml",pod="llm-0",container="train""#);
    let workload = format!(r#"uvmd_owner_info{{{named},workload="StatefulSet/llm"}}"#);
    assert_are(&samples, &[(format!("uvm_owner_gpu_faults_total{{{GPU},{named}}}"), "300"), (workload, "1")]);
    assert_are(&samples, &[(format!("uvm_owner_gpu_faults_total{{{GPU},{OTHER}}}"), "10")]);
    assert_eq!(samples.keys().filter(|series| series.starts_with("uvmd_owner_info")).count(), 1);
}

#[tokio::test]
async fn an_unlisted_owner_has_no_series_and_its_processes_are_in_other() {
    let mut snapshot = owned();
    snapshot.owners.remove(&OwnerKey::Pod("7c1f".to_owned()));
    let samples = scrape_from(&router(snapshot)).await;
    assert!(!samples.keys().any(|series| series.contains("7c1f")));
    assert_are(&samples, &[(format!("uvm_owner_managed_bytes{{{OTHER}}}"), "134217728")]);
}

#[tokio::test]
async fn thrashing_is_1_for_the_owner_gpu_and_kind_and_0_for_the_others() {
    let snapshot = owned();
    let verdict = |name: &str, kind| Verdict {
        process: snapshot.processes.iter().find(|process| process.name == name).unwrap().id,
        gpu: gpu(&snapshot),
        peer: None,
        kind,
        started_at: at(0),
        confirmed_at: at(1),
        ended_at: None,
        ranges: Vec::new(),
        window: Duration::from_secs(1),
        inputs: Inputs::default(),
        total: Inputs::default(),
        checks: Vec::new(),
    };
    let active = vec![verdict("heavy", VerdictKind::PingPong), verdict("light", VerdictKind::Streaming)];
    let verdicts = Arc::new(Verdicts { active, ..Verdicts::default() });
    let source = VerdictSource::new(move || Arc::clone(&verdicts));
    let samples = scrape_from(&router_over(Sources { verdicts: source, ..always(snapshot.clone()).into() })).await;
    let series: BTreeSet<_> = samples.iter().filter(|(series, _)| series.starts_with("uvm_thrashing{")).collect();
    // Two owners on one GPU; streaming is not thrashing.
    assert_eq!(series.len(), 6);
    let thrashing: Vec<_> = series.iter().filter(|(_, value)| *value == "1").map(|(series, _)| *series).collect();
    assert_eq!(thrashing, [&format!(r#"uvm_thrashing{{{GPU},{POD},verdict="ping_pong"}}"#)]);
}

#[tokio::test]
async fn durations_of_verdicts_are_by_owner_with_one_series_of_unknown_gpus() {
    let snapshot = owned();
    let pod = || OwnerKey::Pod("7c1f".to_owned());
    let by = |gpu, kind| VerdictTimeKey { owner: pod(), gpu, kind };
    let verdict_time = BTreeMap::from([
        (by(gpu(&snapshot), VerdictKind::PingPong), Duration::from_millis(4500)),
        (by(GpuKey::Unknown(2), VerdictKind::Streaming), Duration::from_secs(2)),
        (by(GpuKey::Unknown(3), VerdictKind::Streaming), Duration::from_secs(3)),
    ]);
    let verdicts = Arc::new(Verdicts { verdict_time, ..Verdicts::default() });
    let source = VerdictSource::new(move || Arc::clone(&verdicts));
    let samples = scrape_from(&router_over(Sources { verdicts: source, ..always(snapshot).into() })).await;
    let seconds = "uvm_owner_verdict_seconds_total";
    assert_are(
        &samples,
        &[
            (format!(r#"{seconds}{{{GPU},{POD},verdict="ping_pong"}}"#), "4.5"),
            (format!(r#"{seconds}{{{UNKNOWN},{POD},verdict="streaming"}}"#), "5"),
            // Before its first verdict, so that `rate` covers that.
            (format!(r#"{seconds}{{{GPU},{POD},verdict="capacity_thrash"}}"#), "0"),
        ],
    );
    // Five kinds of two owners on one GPU, and the unknown one.
    assert_eq!(samples.keys().filter(|series| series.starts_with(seconds)).count(), 11);
}

#[tokio::test]
async fn evictions_are_by_pair_of_owners_with_one_series_of_unknown_ones() {
    let mut snapshot = owned();
    let gpu = gpu(&snapshot);
    let pair = |gpu, victim, evictor, bytes| OwnerEvictions {
        gpu,
        victim,
        evictor,
        cause: EvictionCause::Fault,
        evictions: 2,
        bytes,
    };
    let pod = || Some(OwnerKey::Pod("7c1f".to_owned()));
    snapshot.owner_evictions = vec![
        pair(gpu, pod(), Some(OwnerKey::Other), 100),
        pair(GpuKey::Unknown(2), None, pod(), 10),
        pair(GpuKey::Unknown(3), None, pod(), 1),
        pair(GpuKey::Pending(4), None, pod(), 1000),
    ];
    let samples = scrape_from(&router(snapshot)).await;
    let known = r#"victim_kind="pod",victim="7c1f",evictor_kind="other",evictor="",cause="fault""#;
    let unknown = r#"victim_kind="unknown",victim="",evictor_kind="pod",evictor="7c1f",cause="fault""#;
    assert_are(
        &samples,
        &[
            (format!("uvm_owner_pair_evicted_bytes_total{{{GPU},{known}}}"), "100"),
            (format!("uvm_owner_pair_evicted_chunks_total{{{GPU},{known}}}"), "2"),
            (format!("uvm_owner_pair_evicted_bytes_total{{{UNKNOWN},{unknown}}}"), "11"),
        ],
    );
}

#[tokio::test]
async fn a_gpu_has_series_of_its_memory_and_reuse() {
    let mut snapshot = owned();
    let gpu = gpu(&snapshot);
    let card = snapshot.gpus.get_mut(&gpu).unwrap();
    *card = Gpu { memory_bytes: Some(64 << 20), memory_used_bytes: Some(60 << 20), ..card.clone() };
    let reuse = Reuse { fetched_bytes: 3, refetched_bytes: 2, cpu_reclaimed_bytes: 1, bounces: 0 };
    snapshot.reuse_totals = BTreeMap::from([(gpu, reuse), (GpuKey::Unknown(2), reuse), (GpuKey::Pending(5), reuse)]);
    let sizes = &mut snapshot.gpu_totals.get_mut(&gpu).unwrap().migration_size_htod_bytes;
    sizes.record(4096, 3, 12_288);
    sizes.record(2 << 20, 1, 2 << 20);
    let samples = scrape_from(&router(snapshot)).await;
    assert_are(
        &samples,
        &[
            (format!("uvm_gpu_memory_bytes{{{GPU}}}"), "67108864"),
            (format!("uvm_gpu_memory_used_bytes{{{GPU}}}"), "62914560"),
            (format!("uvm_gpu_managed_bytes{{{GPU}}}"), "134217728"),
            (format!("uvm_oversubscription_ratio{{{GPU}}}"), "2"),
            (format!("uvm_resident_bytes{{{GPU}}}"), "8"),
            (format!("uvm_resident_min_bytes{{{GPU}}}"), "6"),
            (format!("uvm_resident_max_bytes{{{GPU}}}"), "10"),
            (format!("uvm_fetched_bytes_total{{{GPU}}}"), "3"),
            (format!("uvm_refetched_bytes_total{{{GPU}}}"), "2"),
            (format!("uvm_cpu_reclaimed_bytes_total{{{GPU}}}"), "1"),
            (format!("uvm_refetched_bytes_total{{{UNKNOWN}}}"), "2"),
            (format!(r#"uvm_migration_size_bytes_bucket{{{GPU},direction="htod",le="4096"}}"#), "3"),
            (format!(r#"uvm_migration_size_bytes_bucket{{{GPU},direction="htod",le="2097152"}}"#), "4"),
            (format!(r#"uvm_migration_size_bytes_sum{{{GPU},direction="htod"}}"#), "2109440"),
            (format!(r#"uvm_migration_size_bytes_count{{{GPU},direction="dtoh"}}"#), "0"),
        ],
    );
    assert!(!samples.contains_key(&format!("uvm_gpu_memory_bytes{{{UNKNOWN}}}")));
}

#[tokio::test]
async fn uvmd_has_metrics_of_its_resources() {
    let samples = scrape_from(&router(busy())).await;
    let value = |name: &str| samples[name].parse::<f64>().unwrap();
    assert!(value("process_resident_memory_bytes") > 1e6 && value("process_virtual_memory_bytes") > 1e6);
    assert!(value("process_open_fds") >= 3.0 && value("process_threads") >= 1.0);
    assert!(samples.contains_key("process_cpu_seconds_total"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((0.0..3600.0).contains(&(now - value("process_start_time_seconds"))));
}

/// Complaints of promtool about names of others: DCGM's exporter uses this label for the product.
const EXCEPTIONS: [&str; 1] = ["uvm_gpu_info label names should be written in 'snake_case' not 'camelCase'"];

/// Prometheus' check: the one in PATH, else the one that scripts/setup installs.
fn promtool() -> Command {
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join("promtool"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    let installed = cache.map(|cache| cache.join("uvmd/prometheus/promtool"));
    let found = in_path.chain(installed).find(|file| file.is_file());
    Command::new(found.expect("promtool is missing: run scripts/setup"))
}

#[tokio::test]
async fn promtool_accepts_the_metrics() {
    let text = get(&populated::router(), "/metrics").await.text;
    let mut child = promtool()
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.code().is_some_and(|code| code == 0 || code == 3), "{output:?}");
    let output = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let faults: Vec<_> = output.lines().filter(|line| !line.is_empty() && !EXCEPTIONS.contains(line)).collect();
    assert!(faults.is_empty(), "{faults:?}");
}

#[tokio::test]
async fn uncountable_memory_is_null_and_has_no_metric() {
    let mut snapshot = owned();
    let known = router(snapshot.clone());
    let text = metrics(&known).await;
    let names =
        ["uvm_populated_bytes_total", "uvm_resident_bytes", "uvm_resident_min_bytes", "uvm_owner_resident_bytes"];
    for name in names {
        assert!(text.contains(&format!("\n{name}{{")), "{name}");
    }
    assert!(get(&known, "/api/v1/status").await.json()["total"]["populated_bytes"].is_u64());

    let driver = snapshot.source.driver.as_mut().unwrap();
    driver.residency_unavailable = Some("not on this driver".to_owned());
    let unknown = router(snapshot.clone());
    let text = metrics(&unknown).await;
    for name in names {
        assert!(!text.contains(&format!("\n{name}{{")), "{name}");
    }
    let processes = get(&unknown, "/api/v1/processes").await.json();
    let process = &processes["processes"][0];
    let gpu = &get(&unknown, "/api/v1/gpus").await.json()["gpus"][0];
    for item in [process, &process["gpus"][0], gpu] {
        let of = |name: &str| item.get(name).unwrap_or_else(|| panic!("{name} is not there: {item}"));
        assert_eq!((of("resident"), of("populated_bytes")), (&serde_json::Value::Null, &serde_json::Value::Null));
    }
    let status = get(&unknown, "/api/v1/status").await.json();
    assert_eq!(status["total"].get("populated_bytes"), Some(&serde_json::Value::Null));
    assert!(status["total"]["fault_entries"].is_u64(), "all else is counted");
    let owner = &get(&unknown, "/api/v1/owners").await.json()["owners"][0];
    assert_eq!(owner.get("populated_bytes"), Some(&serde_json::Value::Null));

    // Without block records, residency is not followed.
    snapshot.source.driver.as_mut().unwrap().residency_unavailable = None;
    snapshot.source.block_records.is_off = true;
    let process = get(&router(snapshot), "/api/v1/processes").await.json()["processes"][0].clone();
    assert!(process["resident"].is_null() && process["populated_bytes"].is_u64(), "{process}");
}

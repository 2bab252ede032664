//! What a source does not count: null in the API, absent in the metrics, never 0.

use model::{Access, Quantity, Snapshot, VerdictKind};
use serde_json::Value;

use crate::{
    metrics::scrape_from,
    support::{busy, get, router},
};

/// A snapshot of the driver's tools, which do not know the access types of faults.
fn of_tools() -> Snapshot {
    let mut snapshot = busy();
    snapshot.source.backend = "tools";
    snapshot.source.not_counted = Quantity::NOT_OF_TOOLS;
    snapshot.source.probes = Vec::new();
    let of_gpus = snapshot.processes.iter_mut().flat_map(|process| process.gpus.values_mut());
    for counters in of_gpus.chain(snapshot.gpu_totals.values_mut()) {
        let total = counters.fault_entries.total();
        for access in Access::KNOWN {
            counters.fault_entries[access] = 0;
        }
        counters.fault_entries[Access::Unknown] = total;
    }
    snapshot
}

async fn json(path: &str) -> Value {
    get(&router(of_tools()), path).await.json()
}

#[tokio::test]
async fn status_names_the_source_and_what_it_does_not_count() {
    let status = json("/api/v1/status").await;
    assert_eq!((&status["backend"], &status["source"]["backend"]), (&"tools".into(), &"tools".into()));
    let not_counted = status["source"]["not_counted"].as_array().unwrap();
    assert_eq!(not_counted.len(), Quantity::NOT_OF_TOOLS.len());
    assert!(not_counted.contains(&"batches".into()) && not_counted.contains(&"resident".into()), "{not_counted:?}");
    let of_probes = get(&router(busy()), "/api/v1/status").await.json();
    assert_eq!(of_probes["source"]["not_counted"], Value::Array(Vec::new()));
}

#[tokio::test]
async fn counts_of_the_source_are_numbers_and_all_others_null() {
    let process = json("/api/v1/processes/20").await;
    assert_eq!((&process["fault_entries"], &process["cpu_faults"]), (&310.into(), &7.into()));
    assert_eq!((&process["bytes_htod"], &process["bytes_dtoh"]), (&65536.into(), &12288.into()));
    for count in [
        "evictions",
        "induced_eviction_bytes",
        "populated_bytes",
        "freed_blocks",
        "batches",
        "batch_duration_ns",
        "batch_entries",
        "fault_handler_duration_ns",
        "replays",
        "hmm_moves",
        "api_calls",
        "tool_calls_by_kind",
        "fault_entries_by_access",
        "cpu_faults_by_access",
        "resident",
    ] {
        assert!(process.get(count).is_some_and(Value::is_null), "{count}: {}", process[count]);
    }
}

#[tokio::test]
async fn series_of_what_is_not_counted_are_absent_and_sums_have_one_series() {
    let samples = scrape_from(&router(of_tools())).await;
    let of = |family: &str| -> Vec<_> {
        let is_of = |series: &&String| series.split(['{', ' ']).next() == Some(family);
        samples.keys().filter(is_of).map(|series| (series.clone(), samples[series].clone())).collect()
    };
    let gpu = r#"gpu="0",UUID="GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f""#;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{gpu},access="unknown"}}"#)], "917");
    assert_eq!(of("uvm_cpu_faults_total"), [(r#"uvm_cpu_faults_total{access="unknown"}"#.to_owned(), "7".to_owned())]);
    // One series for each of two GPUs.
    assert_eq!(of("uvm_gpu_faults_total").len(), 2);
    for family in [
        "uvm_fault_batch_duration_seconds_bucket",
        "uvm_fault_batch_entries_bucket",
        "uvm_evictions_total",
        "uvm_populated_bytes_total",
        "uvm_resident_bytes",
        "uvm_freed_blocks_total",
        "uvm_api_calls_total",
        "uvm_tool_bytes_total",
        "uvm_replays_total",
    ] {
        assert_eq!(of(family), [], "{family}");
    }
}

#[tokio::test]
async fn verdicts_without_their_inputs_are_unavailable() {
    let verdicts = json("/api/v1/verdicts").await;
    let unavailable = verdicts["unavailable"].as_array().unwrap();
    let kinds: Vec<_> = unavailable.iter().map(|each| each["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, [VerdictKind::FirstTouchStorm.name()]);
    for each in unavailable {
        let reason = each["reason"].as_str().unwrap();
        assert!(reason.starts_with("not counted by the source: "), "{reason}");
    }
}

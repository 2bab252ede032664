//! `/metrics`, read back as a Prometheus server reads it.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{busy, counting, get, refused, router, waiting};
use axum::http::StatusCode;
use model::{Gpu, GpuKey, GpuUuid, Snapshot};

/// Values as they stand in the text, by series: `name{labels}`.
async fn scrape(snapshot: Snapshot) -> BTreeMap<String, String> {
    let answer = get(&router(snapshot), "/metrics").await;
    assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, "text/plain; version=0.0.4"));
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    for line in answer.text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            assert!(families.insert(family.split(' ').next().unwrap().to_owned()), "twice: {family}");
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(families.contains(series.split('{').next().unwrap()), "no type before {series}");
            assert!(value.parse::<f64>().unwrap() >= 0.0, "{line}");
            assert!(samples.insert(series.to_owned(), value.to_owned()).is_none(), "twice: {series}");
        }
    }
    samples
}

const GPU1: &str = r#"gpu="1",UUID="GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f",hostname="gpu-17""#;
const UNKNOWN: &str = r#"gpu="",UUID="unknown",hostname="gpu-17""#;

#[tokio::test]
async fn counters_are_the_sums_over_all_processes_ever_seen() {
    let samples = scrape(busy()).await;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{GPU1},access="write"}}"#)], "900");
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{GPU1},access="atomic_weak"}}"#)], "7");
    assert_eq!(samples[&format!(r#"uvm_gpu_fault_instances_total{{{GPU1},access="read"}}"#)], "15");
    assert_eq!(samples[&format!(r#"uvm_migrated_bytes_total{{{GPU1},direction="dtoh",cause="eviction"}}"#)], "24576");
    assert_eq!(samples[r#"uvm_cpu_faults_total{hostname="gpu-17",access="write"}"#], "4");
}

#[tokio::test]
async fn every_series_of_a_gpu_is_there_from_its_first_sight() {
    let samples = scrape(busy()).await;
    for gpu in [GPU1, UNKNOWN] {
        let series = |name: &str| samples.keys().filter(|key| key.starts_with(&format!("{name}{{{gpu}"))).count();
        assert_eq!(series("uvm_gpu_faults_total"), 5);
        assert_eq!(series("uvm_gpu_fault_instances_total"), 5);
        assert_eq!(series("uvm_migrated_bytes_total"), 21);
    }
}

#[tokio::test]
async fn what_was_counted_on_gpus_that_are_not_known_is_in_one_series() {
    let mut snapshot = busy();
    let two = snapshot.gpu_totals[&GpuKey::Unknown(2)].clone();
    snapshot.gpu_totals.insert(GpuKey::Unknown(3), two);
    let samples = scrape(snapshot).await;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{UNKNOWN},access="read"}}"#)], "20");
    assert!(!samples.keys().any(|series| series.contains(r#"gpu="2""#) || series.contains(r#"gpu="3""#)));
}

#[tokio::test]
async fn what_is_pending_is_in_no_series_until_its_gpu_is_known_as_counters_only_grow() {
    let mut snapshot = busy();
    let pending = snapshot.gpu_totals.remove(&GpuKey::Unknown(2)).unwrap();
    snapshot.gpu_totals.insert(GpuKey::Pending(2), pending);
    let samples = scrape(snapshot).await;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{UNKNOWN},access="read"}}"#)], "0");
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{GPU1},access="read"}}"#)], "10");
}

#[tokio::test]
async fn a_gpu_whose_number_another_has_by_now_keeps_its_counts_under_its_uuid() {
    let mut snapshot = busy();
    let first = *snapshot.gpus.keys().next().unwrap();
    snapshot.gpus.get_mut(&first).unwrap().id = None;
    snapshot.gpus.insert(GpuKey::Known(GpuUuid([0xab; 16])), Gpu { id: Some(1), first_id: Some(1), name: None });
    let samples = scrape(snapshot).await;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{GPU1},access="write"}}"#)], "900", "the series is the same");
    let other = r#"gpu="1",UUID="GPU-abababab-abab-abab-abab-abababababab",hostname="gpu-17""#;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{other},access="write"}}"#)], "0");
}

#[tokio::test]
async fn the_service_tells_about_itself() {
    let samples = scrape(busy()).await;
    assert_eq!(samples["uvmd_up"], "1");
    assert_eq!(samples[r#"uvmd_build_info{version="1.2.3"}"#], "1");
    assert_eq!(samples[r#"uvmd_backend_info{backend="ebpf",driver="550.163.01",layout="550-555"}"#], "1");
    assert_eq!(samples[r#"uvmd_events_dropped_total{reason="map_full"}"#], "5");
    assert_eq!(samples[r#"uvmd_events_dropped_total{reason="unknown_va_space"}"#], "0");
    assert_eq!(samples[r#"uvmd_probe_hits_total{probe="uvm_perf_event_notify"}"#], "1234");
    assert_eq!(samples[r#"uvmd_probe_run_seconds_total{probe="uvm_perf_event_notify"}"#], "1.5");
    assert!(!samples.contains_key(r#"uvmd_probe_run_seconds_total{probe="uvm_va_space_destroy"}"#));
}

#[tokio::test]
async fn who_does_not_count_is_scraped_all_the_same() {
    for snapshot in [waiting(), refused()] {
        let samples = scrape(snapshot).await;
        assert_eq!(samples["uvmd_up"], "0");
        assert_eq!(samples[r#"uvmd_backend_info{backend="ebpf",driver="",layout=""}"#], "1");
        assert_eq!(samples[r#"uvm_cpu_faults_total{hostname="gpu-17",access="read"}"#], "0");
    }
}

#[tokio::test]
async fn no_label_names_a_process() {
    for series in scrape(busy()).await.keys() {
        assert!(!series.contains("pid=") && !series.contains("heavy") && !series.contains("alice"), "{series}");
    }
}

#[tokio::test]
async fn label_values_are_escaped() {
    let mut snapshot = counting();
    snapshot.source.driver.as_mut().unwrap().version = "5\"5\\0\n".to_owned();
    let samples = scrape(snapshot).await;
    assert_eq!(samples[r#"uvmd_backend_info{backend="ebpf",driver="5\"5\\0\n",layout="550-555"}"#], "1");
}

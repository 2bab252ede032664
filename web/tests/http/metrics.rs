//! `/metrics`, parsed as a Prometheus server does.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{busy, counting, get, refused, router, waiting};
use axum::{Router, http::StatusCode};
use model::{
    ApiCall, CheckedFigure, ComparisonResult, Crosschecks, Gpu, GpuKey, GpuUuid, RecordFigures, RemoteCause, Snapshot,
};

/// Values as in the text, by series: `name{labels}` without `hostname`, which every series has.
async fn scrape(snapshot: Snapshot) -> BTreeMap<String, String> {
    scrape_from(&router(snapshot)).await
}

pub(crate) async fn scrape_from(router: &Router) -> BTreeMap<String, String> {
    let response = get(router, "/metrics").await;
    assert_eq!((response.status, response.header("content-type")), (StatusCode::OK, "text/plain; version=0.0.4"));
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    assert!(response.text.contains(r#"{hostname="gpu-17""#));
    for line in nodes::exposition::without_hostname(&response.text).lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            assert!(families.insert(family.split(' ').next().unwrap().to_owned()), "twice: {family}");
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let family =
                ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
            assert!(families.contains(family), "no type before {series}");
            assert!(value.parse::<f64>().unwrap() >= 0.0, "{line}");
            assert!(samples.insert(series.to_owned(), value.to_owned()).is_none(), "twice: {line}");
        }
    }
    samples
}

const GPU1: &str = r#"gpu="0",UUID="GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f""#;
const CPU: &str = r#"gpu="",UUID="cpu""#;
const UNKNOWN: &str = r#"gpu="",UUID="unknown""#;

#[tokio::test]
async fn counters_are_the_sums_of_all_processes_since_the_start() {
    let samples = scrape(busy()).await;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{GPU1},access="write"}}"#)], "900");
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{GPU1},access="atomic_weak"}}"#)], "7");
    assert_eq!(samples[&format!(r#"uvm_gpu_fault_instances_total{{{GPU1},access="read"}}"#)], "15");
    assert_eq!(samples[&format!(r#"uvm_migrated_bytes_total{{{GPU1},direction="dtoh",cause="eviction"}}"#)], "24576");
    assert_eq!(samples[r#"uvm_cpu_faults_total{access="write"}"#], "4");
}

#[tokio::test]
async fn every_series_of_a_gpu_exists_from_its_first_sight() {
    let samples = scrape(busy()).await;
    for gpu in [GPU1, UNKNOWN] {
        let series = |name: &str| samples.keys().filter(|key| key.starts_with(&format!("{name}{{{gpu}"))).count();
        assert_eq!(series("uvm_gpu_faults_total"), 5);
        assert_eq!(series("uvm_gpu_fault_instances_total"), 5);
        assert_eq!(series("uvm_migrated_bytes_total"), 21);
        assert_eq!(series("uvm_remote_mappings_total"), 6);
        assert_eq!(series("uvm_fault_batch_entries_bucket"), 12);
        assert_eq!(series("uvm_replays_total"), 1);
    }
}

#[tokio::test]
async fn series_of_a_gpu_without_owners_are_as_many_as_the_documentation_says() {
    let samples = scrape(busy()).await;
    let of_gpu = |series: &&String| series.contains(UNKNOWN) && !series.contains("owner_kind");
    let (buckets, others): (Vec<_>, Vec<_>) =
        samples.keys().filter(of_gpu).partition(|series| series.contains("_bucket{"));
    let counted = format!("{} for each GPU, {} of them buckets", buckets.len() + others.len(), buckets.len());
    assert!(include_str!("../../../docs/operate.md").contains(&counted), "docs/operate.md does not say: {counted}");
}

#[tokio::test]
async fn the_label_gpu_is_nvmls_index_or_empty() {
    let mut snapshot = busy();
    let card = snapshot.gpus.values_mut().next().unwrap();
    // The driver's processor id is another one.
    *card = Gpu { id: Some(1), index: Some(7), pci_address: Some("0000:17:00.0".to_owned()), ..card.clone() };
    let uuid = r#"UUID="GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f""#;
    let samples = scrape(snapshot.clone()).await;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{gpu="7",{uuid},access="write"}}"#)], "900");
    let info = r#"pci_bus_id="0000:17:00.0",modelName="NVIDIA H200",driver_version="550.163.01""#;
    assert_eq!(samples[&format!(r#"uvm_gpu_info{{gpu="7",{uuid},{info}}}"#)], "1");
    assert_eq!(samples.keys().filter(|series| series.starts_with("uvm_gpu_info{")).count(), 1, "of known GPUs only");

    snapshot.gpus.values_mut().next().unwrap().index = None;
    let samples = scrape(snapshot).await;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{gpu="",{uuid},access="write"}}"#)], "900");
}

#[tokio::test]
async fn a_batch_histogram_has_cumulative_buckets_and_the_exact_sum() {
    let mut snapshot = busy();
    let known = *snapshot.gpus.keys().next().unwrap();
    let batches = &mut snapshot.gpu_totals.get_mut(&known).unwrap().batches;
    for (entries, service_ns) in [(1, 40_000), (1, 90_000), (200, 3_000_001), (5_000, 60_000_000_000)] {
        batches.entries.record(entries, 1, entries);
        batches.service_ns.record(service_ns, 1, service_ns);
    }
    let samples = scrape(snapshot).await;
    let of = |series: &str| samples[&series.replace("GPU", GPU1)].parse::<u64>().unwrap();
    let seconds = |le: &str| of(&format!("uvm_fault_batch_duration_seconds_bucket{{GPU,le=\"{le}\"}}"));
    let bounds = ["0.00001", "0.000025", "0.00005", "0.0001", "0.0025", "0.005", "0.5", "2.5", "10", "+Inf"];
    assert_eq!(bounds.map(seconds), [0, 0, 1, 2, 2, 3, 3, 3, 3, 4]);
    let entries = |le: &str| of(&format!("uvm_fault_batch_entries_bucket{{GPU,le=\"{le}\"}}"));
    assert_eq!(["1", "2", "128", "256", "1024", "+Inf"].map(entries), [2, 2, 2, 3, 3, 4]);
    assert_eq!((of("uvm_fault_batch_duration_seconds_count{GPU}"), of("uvm_fault_batch_entries_sum{GPU}")), (4, 5202));
    assert_eq!(samples[&format!("uvm_fault_batch_duration_seconds_sum{{{GPU1}}}")], "60.003130001");
}

#[tokio::test]
async fn each_figure_has_a_series() {
    let mut snapshot = busy();
    let known = *snapshot.gpus.keys().next().unwrap();
    let gpu = snapshot.gpu_totals.get_mut(&known).unwrap();
    (gpu.replays, gpu.evictions, gpu.populated_bytes, gpu.thrashing_pages) = (11, 12, 13, 14);
    (gpu.throttles, gpu.throttled_ns, gpu.hmm_moves) = (15, 1_500_000_000, 16);
    gpu.fault_handler_duration_ns.record(500_000, 2, 1_000_000);
    gpu.remote_mappings[RemoteCause::Thrashing] = 17;
    gpu.remote_mapped_bytes[RemoteCause::Eviction] = 18;
    gpu.api_calls[ApiCall::Prefetch] = 19;
    let host = &mut snapshot.host_totals;
    (host.throttles, host.throttled_ns, host.freed_blocks) = (2, 250_000_000, 27);
    host.api_calls[ApiCall::Prefetch] = 1;
    host.api_bytes[ApiCall::SetAccessedBy] = 21;
    host.tool_calls[ApiCall::Prefetch] = 22;
    host.tool_bytes[ApiCall::Prefetch] = 23;
    snapshot.source.block_records =
        RecordFigures { written: 24, sampled_out: 25, dropped: 26, ..RecordFigures::default() };
    let comparisons = BTreeMap::from([((CheckedFigure::BytesDtoh, ComparisonResult::Disagreed), 28)]);
    snapshot.source.crosschecks = Some(Crosschecks { checks: 1, comparisons, last_process: None });
    let samples = scrape(snapshot).await;
    for (series, value) in [
        ("uvm_fault_handler_duration_seconds_sum{GPU}", "0.001"),
        ("uvm_replays_total{GPU}", "11"),
        ("uvm_evictions_total{GPU}", "12"),
        ("uvm_populated_bytes_total{GPU}", "13"),
        ("uvm_thrashing_pages_total{GPU}", "14"),
        ("uvm_throttles_total{GPU}", "15"),
        ("uvm_hmm_moves_total{GPU}", "16"),
        ("uvm_throttles_total{CPU}", "2"),
        ("uvm_throttled_seconds_total{GPU}", "1.5"),
        ("uvm_throttled_seconds_total{CPU}", "0.25"),
        (r#"uvm_remote_mappings_total{GPU,cause="thrashing"}"#, "17"),
        (r#"uvm_remote_mapped_bytes_total{GPU,cause="eviction"}"#, "18"),
        (r#"uvm_api_calls_total{call="prefetch"}"#, "20"),
        (r#"uvm_api_bytes_total{call="set_accessed_by"}"#, "21"),
        (r#"uvm_tool_calls_total{call="prefetch"}"#, "22"),
        (r#"uvm_tool_bytes_total{call="prefetch"}"#, "23"),
        ("uvm_freed_blocks_total", "27"),
        ("uvmd_block_records_total", "24"),
        (r#"uvmd_block_records_dropped_total{reason="sampled_out"}"#, "25"),
        (r#"uvmd_block_records_dropped_total{reason="dropped"}"#, "26"),
        (r#"uvmd_crosscheck_comparisons_total{figure="bytes_dtoh",result="disagreed"}"#, "28"),
        (r#"uvmd_crosscheck_comparisons_total{figure="cpu_faults",result="agreed"}"#, "0"),
        // The two running processes, not the exited one.
        ("uvm_managed_bytes", "134217728"),
    ] {
        let series = series.replace("{GPU", &format!("{{{GPU1}")).replace("{CPU", &format!("{{{CPU}"));
        assert_eq!(samples.get(&series).map(String::as_str), Some(value), "{series}");
    }
}

#[tokio::test]
async fn counts_of_unknown_gpus_are_one_series() {
    let mut snapshot = busy();
    let two = snapshot.gpu_totals[&GpuKey::Unknown(2)].clone();
    snapshot.gpu_totals.insert(GpuKey::Unknown(3), two);
    let samples = scrape(snapshot).await;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{UNKNOWN},access="read"}}"#)], "20");
    assert!(!samples.keys().any(|series| series.contains(r#"gpu="2""#) || series.contains(r#"gpu="3""#)));
}

#[tokio::test]
async fn pending_counts_are_in_no_series_until_their_gpu_is_known() {
    let mut snapshot = busy();
    let pending = snapshot.gpu_totals.remove(&GpuKey::Unknown(2)).unwrap();
    snapshot.gpu_totals.insert(GpuKey::Pending(2), pending);
    let samples = scrape(snapshot).await;
    assert!(!samples.keys().any(|series| series.contains(UNKNOWN)), "pending counts are not final");
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{GPU1},access="read"}}"#)], "10");
}

#[tokio::test]
async fn a_gpu_without_processor_id_keeps_its_series_by_uuid() {
    let mut snapshot = busy();
    let first = *snapshot.gpus.keys().next().unwrap();
    snapshot.gpus.get_mut(&first).unwrap().id = None;
    snapshot
        .gpus
        .insert(GpuKey::Known(GpuUuid([0xab; 16])), Gpu { id: Some(1), index: Some(0), name: None, ..Gpu::default() });
    let samples = scrape(snapshot).await;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{GPU1},access="write"}}"#)], "900", "the series is the same");
    let other = r#"gpu="0",UUID="GPU-abababab-abab-abab-abab-abababababab""#;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{other},access="write"}}"#)], "0");
}

#[tokio::test]
async fn the_service_has_metrics_of_itself() {
    let samples = scrape(busy()).await;
    assert_eq!(samples[r#"uvmd_state{state="counting"}"#], "1");
    assert_eq!(samples[r#"uvmd_build_info{version="1.2.3",commit="0123456789ab"}"#], "1");
    assert_eq!(samples[r#"uvmd_backend_info{backend="ebpf",driver="550.163.01",layout="550-555"}"#], "1");
    assert_eq!(samples[r#"uvmd_events_dropped_total{reason="map_full"}"#], "5");
    assert_eq!(samples[r#"uvmd_events_dropped_total{reason="unknown_va_space"}"#], "0");
    assert_eq!(samples["uvmd_unjudged_windows_total"], "0");
    assert_eq!(samples[r#"uvmd_probe_hits_total{probe="uvm_perf_event_notify"}"#], "1234");
    assert_eq!(samples[r#"uvmd_probe_run_seconds_total{probe="uvm_perf_event_notify"}"#], "1.5");
    assert!(!samples.contains_key(r#"uvmd_probe_run_seconds_total{probe="uvm_va_space_destroy"}"#));
}

#[tokio::test]
async fn a_service_that_does_not_count_has_metrics() {
    for snapshot in [waiting(), refused()] {
        let samples = scrape(snapshot).await;
        assert_eq!(samples[r#"uvmd_state{state="counting"}"#], "0");
        let states = samples.iter().filter(|(series, value)| series.starts_with("uvmd_state{") && *value == "1");
        assert_eq!(states.count(), 1);
        assert_eq!(samples[r#"uvmd_backend_info{backend="ebpf",driver="",layout=""}"#], "1");
        assert_eq!(samples[r#"uvm_cpu_faults_total{access="read"}"#], "0");
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

#[tokio::test]
async fn requests_are_counted_by_route_and_code_and_unknown_paths_as_one() {
    let router = router(busy());
    for path in [
        "/api/v1/processes/20",
        "/api/v1/processes/30",
        "/api/v1/processes/4711",
        "/a",
        "/b",
        "/livez",
        "/page/main.js",
    ] {
        get(&router, path).await;
    }
    let samples = scrape_from(&router).await;
    for (route, code, count) in [
        ("/api/v1/processes/{pid}", 200, "2"),
        ("/api/v1/processes/{pid}", 404, "1"),
        ("unmatched", 404, "2"),
        ("/livez", 200, "1"),
        ("/page/main.js", 200, "1"),
    ] {
        let series = format!(r#"uvmd_http_requests_total{{route="{route}",code="{code}"}}"#);
        assert_eq!(samples.get(&series).map(String::as_str), Some(count), "{series}");
    }
    assert_eq!(samples.keys().filter(|series| series.starts_with("uvmd_http_requests_total")).count(), 5);
}

#[tokio::test]
async fn snapshots_and_earlier_scrapes_are_timed_and_the_last_reading_has_a_timestamp() {
    let router = router(busy());
    scrape_from(&router).await;
    let samples = scrape_from(&router).await;
    assert_eq!(samples["uvmd_snapshot_duration_seconds_count"], "2");
    assert_eq!(samples["uvmd_scrape_duration_seconds_count"], "1");
    let taken = busy().taken.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert_eq!(samples["uvmd_last_reading_timestamp_seconds"], taken.to_string());
    assert!(!scrape(waiting()).await.contains_key("uvmd_last_reading_timestamp_seconds"), "nothing was read");
}

#[tokio::test]
async fn metrics_without_a_driver_function_are_absent() {
    let mut snapshot = busy();
    let mut probe = snapshot.source.probes[0].clone();
    probe.name = "uvm_tools_broadcast_replay".to_owned();
    probe.missing = Some("replays are not counted: this driver has no such function".to_owned());
    let has_replays =
        |samples: &BTreeMap<String, String>| samples.keys().any(|series| series.starts_with("uvm_replays_total"));
    assert!(has_replays(&scrape(snapshot.clone()).await));
    snapshot.source.probes.push(probe);
    let samples = scrape(snapshot).await;
    assert!(!has_replays(&samples));
    assert!(samples.keys().any(|series| series.starts_with("uvm_evictions_total")));
}

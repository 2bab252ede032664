//! What a source does not count: null in the API, absent in the metrics, never 0.

use model::{
    Access, Blocks, Counters, HeatCell, HeatMap, HeatRange, Pattern, Range, RangeCounts, Ranges, Residency, Snapshot,
    ToolsLevel, VerdictKind,
};
use serde_json::Value;

use web::{Source, Sources};

use crate::{
    metrics::scrape_from,
    support::{always, block, busy, get, get_as_reader, router, router_over},
};

/// A snapshot of the driver's tools at a level. They know no access types of GPU faults.
fn of_tools(level: ToolsLevel) -> Snapshot {
    let mut snapshot = busy();
    snapshot.source.backend = "tools";
    snapshot.source.not_counted = level.not_counted();
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
    at_level(ToolsLevel::Moves, path).await
}

async fn at_level(level: ToolsLevel, path: &str) -> Value {
    get(&router(of_tools(level)), path).await.json()
}

#[tokio::test]
async fn status_names_the_source_and_what_it_does_not_count() {
    let status = json("/api/v1/status").await;
    assert_eq!((&status["backend"], &status["source"]["backend"]), (&"tools".into(), &"tools".into()));
    let not_counted = status["source"]["not_counted"].as_array().unwrap();
    assert_eq!(not_counted.len(), ToolsLevel::Moves.not_counted().len());
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
        "resident",
    ] {
        assert!(process.get(count).is_some_and(Value::is_null), "{count}: {}", process[count]);
    }
}

#[tokio::test]
async fn counts_of_blocks_ranges_and_cells_are_null_where_the_source_has_none() {
    let mut snapshot = of_tools(ToolsLevel::Moves);
    let heavy = snapshot.processes.iter_mut().find(|process| process.id.pid == 20).unwrap();
    heavy.blocks = Blocks { busiest: vec![block(0x20_0000, None)], known: 1, ..Blocks::default() };
    let range = Range {
        begin: 0x20_0000,
        end: 0x40_0000,
        mapped: true,
        counts: RangeCounts { bytes_htod: 3, ..RangeCounts::default() },
        residency: Residency::default(),
        pattern: Pattern::UNKNOWN,
    };
    heavy.ranges = Ranges { busiest: vec![range], known: 1, ..Ranges::default() };
    let heat = Source::new(|_| {
        let cells = vec![HeatCell { fetched_bytes: 1, idle_ns: Some(1), ..HeatCell::default() }];
        let range = HeatRange { begin: 0x20_0000, end: 0x40_0000, cell_bytes: 0x20_0000, cells };
        std::future::ready(Some(Some(HeatMap { ranges: vec![range], ranges_omitted: 0 })))
    });
    let router = router_over(Sources { heat, ..always(snapshot).into() });
    let answer = async |path: &str| get_as_reader(&router, path).await.json();
    let process = answer("/api/v1/processes/20").await;
    let ranges = answer("/api/v1/processes/20/ranges").await;
    let heat_map = answer("/api/v1/processes/20/heatmap").await;
    let [block, range, cell] = [&process["blocks"][0], &ranges["ranges"][0], &heat_map["ranges"][0]["cells"][0]];
    for (object, names) in [
        (block, &["fault_entries", "cpu_faults", "evictions", "populated_bytes", "resident"][..]),
        (range, &["fault_entries", "cpu_faults", "evictions", "populated_bytes", "resident"]),
        (cell, &["fault_entries", "cpu_faults", "resident"]),
    ] {
        for name in names {
            assert!(object.get(name).is_some_and(Value::is_null), "{name}: {object}");
        }
    }
    assert_eq!((&range["bytes_htod"], &cell["fetched_bytes"]), (&3.into(), &1.into()));
}

#[tokio::test]
async fn lists_that_the_source_does_not_count_are_null_with_the_reason() {
    let tools = router(of_tools(ToolsLevel::Moves));
    let is_reason = |reason: &Value| {
        reason
            .as_str()
            .is_some_and(|text| text.starts_with("not counted by the driver's tools") && text.contains("needs"))
    };
    let evictions = get(&tools, "/api/v1/evictions").await.json();
    assert!(evictions["pairs"].is_null() && is_reason(&evictions["unavailable"]), "{evictions}");
    let sites = get_as_reader(&tools, "/api/v1/processes/20/sites").await.json();
    assert!(is_reason(&sites["unavailable"]), "{sites}");
    for name in ["sites", "sites_known", "unattributed_cpu_faults", "unattributed_bytes_dtoh"] {
        assert!(sites.get(name).is_some_and(Value::is_null), "{name}: {sites}");
    }
    let of_probes = get(&router(busy()), "/api/v1/evictions").await.json();
    assert_eq!((&of_probes["pairs"], &of_probes["unavailable"]), (&Value::Array(Vec::new()), &Value::Null));
}

#[tokio::test]
async fn series_of_what_is_not_counted_are_absent_and_sums_have_one_series() {
    let samples = scrape_from(&router(of_tools(ToolsLevel::Moves))).await;
    let of = |family: &str| -> Vec<_> {
        let is_of = |series: &&String| series.split(['{', ' ']).next() == Some(family);
        samples.keys().filter(is_of).map(|series| (series.clone(), samples[series].clone())).collect()
    };
    let gpu = r#"gpu="0",UUID="GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f""#;
    assert_eq!(samples[&format!(r#"uvm_gpu_faults_total{{{gpu},access="unknown"}}"#)], "917");
    // CPU faults have their access types.
    assert_eq!(of("uvm_cpu_faults_total").len(), 2);
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
async fn each_level_of_the_tools_counts_more() {
    let process = |level| at_level(level, "/api/v1/processes/20");
    for (level, counted, not_counted) in [
        (ToolsLevel::Counters, "fault_entries", "fault_instances"),
        (ToolsLevel::Kinds, "thrashing_pages", "remote_mappings"),
        (ToolsLevel::Moves, "cpu_faults_by_access", "batches"),
        (ToolsLevel::Faults, "induced_eviction_bytes", "induced_evictions"),
    ] {
        let process = process(level).await;
        assert!(!process[counted].is_null() && process[not_counted].is_null(), "{level:?}: {process}");
    }
    let samples = scrape_from(&router(of_tools(ToolsLevel::Counters))).await;
    assert_eq!(samples[r#"uvm_cpu_faults_total{access="unknown"}"#], "7");
    assert!(!samples.keys().any(|series| series.starts_with("uvm_gpu_fault_instances_total")));
}

#[tokio::test]
async fn faults_without_a_record_are_of_unknown_access() {
    let mut snapshot = of_tools(ToolsLevel::Faults);
    let with_reads = |counters: &mut Counters| {
        counters.fault_entries[Access::Read] = 10;
        (counters.cpu_read_faults, counters.cpu_write_faults, counters.cpu_unknown_faults) = (1, 2, 4);
    };
    snapshot.gpu_totals.values_mut().for_each(with_reads);
    with_reads(&mut snapshot.host_totals);
    let process = snapshot.processes.iter_mut().find(|process| process.id.pid == 20).unwrap();
    process.gpus.values_mut().chain([&mut process.host]).for_each(with_reads);
    let router = router(snapshot);
    let process = get(&router, "/api/v1/processes/20").await.json();
    let by_access = &process["fault_entries_by_access"];
    let sum: u64 = by_access.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert!(by_access["read"].as_u64() > Some(0) && by_access["unknown"].as_u64() > Some(0), "{by_access}");
    assert_eq!(process["fault_entries"], sum);
    let samples = scrape_from(&router).await;
    let of = |access: &str| samples[&format!(r#"uvm_cpu_faults_total{{access="{access}"}}"#)].as_str();
    assert_eq!(["read", "write", "unknown"].map(of), ["1", "2", "4"]);
    let gpu = r#"gpu="0",UUID="GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f""#;
    let of = |access: &str| samples[&format!(r#"uvm_gpu_faults_total{{{gpu},access="{access}"}}"#)].as_str();
    assert_eq!(["read", "write", "unknown"].map(of), ["10", "0", "917"]);
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

//! `/api/v1/processes/{pid}/ranges`, `/sites` and `/heatmap`.

use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use model::{
    Blocks, CodeModule, CodePlace, HeatCell, HeatMap, HeatRange, HeatRequest, Pattern, PatternKind, ProcessId, Range,
    RangeCounts, Ranges, Residency, Reuse, Site, SiteCounts, Sites,
};
use web::{Source, Sources};

use crate::support::{always, assert_problem, busy, get_as_reader, router, router_over};

#[tokio::test]
async fn sites_have_counts_and_places() {
    let site = |pc, place| Site { pc, counts: SiteCounts { faults: pc, bytes_dtoh: 2 }, place };
    let module = |symbol| {
        let path = "/opt/train".into();
        Some(CodePlace::Module(CodeModule { path, offset: 0x234, elf_address: Some(0x1234), symbol }))
    };
    let busiest = vec![
        site(4, module(Ok(("step".to_owned(), 20)))),
        site(3, module(Err("the file has no symbol table".to_owned()))),
        site(2, Some(CodePlace::Unmapped)),
        site(1, None),
    ];
    let mut snapshot = busy();
    let heavy = snapshot.processes.iter_mut().find(|process| process.name == "heavy").unwrap();
    heavy.sites = Sites { busiest, known: 9, unattributed: SiteCounts { faults: 5, bytes_dtoh: 6 } };
    let response = get_as_reader(&router(snapshot), "/api/v1/processes/20/sites").await;
    let sites: api::Sites = serde_json::from_str(&response.text).unwrap();
    assert_eq!(
        (sites.sites_known, sites.unattributed_cpu_faults, sites.unattributed_bytes_dtoh),
        (Some(9), Some(5), Some(6))
    );
    assert!(sites.caveats.iter().any(|limit| limit.contains("system call")), "{:?}", sites.caveats);
    let [function, stripped, unmapped, pending] = sites.sites.as_deref().unwrap() else { panic!("{sites:?}") };
    assert_eq!(
        *function,
        api::Site {
            address: "0x4".to_owned(),
            cpu_faults: 4,
            bytes_dtoh: 2,
            description: "step+0x14 in /opt/train".to_owned(),
            place: Some("module".to_owned()),
            module: Some("/opt/train".to_owned()),
            module_offset: Some("0x234".to_owned()),
            elf_address: Some("0x1234".to_owned()),
            function: Some("step".to_owned()),
            function_offset: Some(20),
            function_unavailable: None,
        }
    );
    assert_eq!(stripped.function_unavailable.as_deref(), Some("the file has no symbol table"));
    assert_eq!((unmapped.place.as_deref(), &unmapped.module), (Some("unmapped"), &None));
    assert_eq!((&pending.place, &pending.function_unavailable), (&None, &None));
}

#[tokio::test]
async fn ranges_have_counts_and_caveats() {
    let counts = RangeCounts {
        fault_entries: 1,
        cpu_faults: 2,
        bytes_htod: 3,
        bytes_dtoh: 4,
        bytes_dtod: 5,
        populated_bytes: 6,
        evicted_bytes: 7,
        evictions: 8,
        reuse: Reuse { fetched_bytes: 9, refetched_bytes: 10, cpu_reclaimed_bytes: 11, bounces: 12 },
    };
    let residency = Residency { bytes: 13, min_bytes: 14, max_bytes: 15 };
    let mut snapshot = busy();
    let heavy = snapshot.processes.iter_mut().find(|process| process.name == "heavy").unwrap();
    heavy.blocks = Blocks { forgotten: 4, sampled_out_records: 5, dropped_records: 6, ..Blocks::default() };
    heavy.ranges = Ranges {
        busiest: vec![Range {
            begin: 0x7f00_0000_0000,
            end: 0x7f00_0600_0000,
            mapped: true,
            counts,
            residency,
            pattern: Pattern { kind: PatternKind::Strided { stride_bytes: -8192 }, confidence: 0.75, steps: 16 },
        }],
        known: 3,
        mappings: 7,
        forgotten: 8,
    };
    let response = get_as_reader(&router(snapshot), "/api/v1/processes/20/ranges").await;
    let ranges: api::Ranges = serde_json::from_str(&response.text).unwrap();
    assert_eq!((ranges.ranges_known, ranges.mappings, ranges.ranges_forgotten), (3, 7, 8));
    assert_eq!((ranges.blocks_forgotten, ranges.block_records_sampled_out, ranges.block_records_dropped), (4, 5, 6));
    assert!(ranges.caveats.iter().any(|limit| limit.contains("raise no fault")), "{:?}", ranges.caveats);
    assert_eq!(
        ranges.ranges,
        [api::Range {
            begin: "0x7f0000000000".to_owned(),
            end: "0x7f0006000000".to_owned(),
            bytes: 0x600_0000,
            mapped: true,
            resident: Some(residency),
            pattern: api::Pattern {
                kind: "strided".to_owned(),
                stride_bytes: Some(-8192),
                confidence: 0.75,
                steps: 16
            },
            counts: api::RangeCounts {
                fault_entries: Some(1),
                cpu_faults: Some(2),
                bytes_htod: 3,
                bytes_dtoh: 4,
                bytes_dtod: 5,
                populated_bytes: Some(6),
                evicted_bytes: 7,
                evictions: Some(8),
                reuse: counts.reuse,
            },
        }]
    );
    // Counts are fields of the range, not of an object in it.
    let json: serde_json::Value = serde_json::from_str(&response.text).unwrap();
    assert_eq!((&json["ranges"][0]["evictions"], &json["ranges"][0]["reuse"]["bounces"]), (&8.into(), &12.into()));
}

#[tokio::test]
async fn a_heat_map_has_the_requested_addresses_and_resolution() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let heat = Source::new(move |request: HeatRequest| {
        recorded.lock().unwrap().push(request);
        let cell = HeatCell { fetched_bytes: 1, idle_ns: Some(1_500_000_000), ..HeatCell::default() };
        let range = HeatRange {
            begin: 0x20_0000,
            end: 0x60_0000,
            cell_bytes: 0x20_0000,
            cells: vec![cell, HeatCell::default()],
        };
        std::future::ready(Some(Some(HeatMap { ranges: vec![range], ranges_omitted: 2 })))
    });
    let router = router_over(Sources { heat, ..always(busy()).into() });
    let response = get_as_reader(&router, "/api/v1/processes/20/heatmap").await;
    let map: api::HeatMap = serde_json::from_str(&response.text).unwrap();
    assert_eq!((map.ranges[0].begin.as_str(), map.ranges[0].end.as_str()), ("0x200000", "0x600000"));
    assert_eq!((map.ranges[0].cell_bytes, map.ranges_omitted), (0x20_0000, 2));
    let [first, second] = map.ranges[0].cells[..] else { panic!("{map:?}") };
    assert_eq!((first.fetched_bytes, first.idle_seconds, second.idle_seconds), (1, Some(1.5), None));

    let response =
        get_as_reader(&router, "/api/v1/processes/20/heatmap?begin=0x200000&end=0x7f0000000000&cells=4096").await;
    assert_eq!(response.status, StatusCode::OK, "{}", response.text);
    let process = ProcessId { pid: 20, start_ticks: 120 };
    assert_eq!(
        *requests.lock().unwrap(),
        [
            HeatRequest { process, begin: 0, end: u64::MAX, cells_max: 64 },
            HeatRequest { process, begin: 0x20_0000, end: 0x7f00_0000_0000, cells_max: 4096 },
        ]
    );
}

#[tokio::test]
async fn an_invalid_address_or_number_of_cells_is_a_problem() {
    let router = router(busy());
    for query in [
        "begin=200000",
        "begin=0x",
        "end=0x%2B1",
        "end=0xzz",
        "begin=0x10000000000000000",
        "cells=0",
        "cells=4097",
        "cells=x",
    ] {
        let response = get_as_reader(&router, &format!("/api/v1/processes/20/heatmap?{query}")).await;
        assert_problem(&response, StatusCode::BAD_REQUEST, &query.split('=').nth(1).unwrap().replace("%2B", "+"));
    }
    for path in ["999/ranges", "999/sites", "999/heatmap", "20/ranges?start_ticks=1", "heavy/ranges"] {
        let response = get_as_reader(&router, &format!("/api/v1/processes/{path}")).await;
        assert_eq!(response.status, StatusCode::NOT_FOUND, "{path}");
    }
}

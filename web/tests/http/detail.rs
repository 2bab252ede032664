//! `/api/v1/processes/{pid}`.

use api::ProcessDetail;
use axum::http::StatusCode;
use model::{Blocks, GpuKey, GpuUuid, Process, ProcessId, Snapshot};

use crate::support::{Response, at, block, busy, get_as_reader, process, router};

async fn request(snapshot: Snapshot, path: &str) -> Response {
    get_as_reader(&router(snapshot), &format!("/api/v1/processes/{path}")).await
}

fn detail(response: &Response) -> ProcessDetail {
    assert_eq!(response.status, StatusCode::OK, "{}", response.text);
    serde_json::from_str(&response.text).unwrap()
}

fn with_blocks() -> Snapshot {
    let mut snapshot = busy();
    let heavy = snapshot.processes.iter_mut().find(|process| process.name == "heavy").unwrap();
    let known = GpuKey::Known(GpuUuid([0xab; 16]));
    heavy.blocks = Blocks {
        busiest: vec![
            block(0x7f2a_4020_0000, Some(known)),
            block(0x7f2a_4000_0000, Some(GpuKey::Pending(2))),
            block(0x2000_0000, None),
        ],
        known: 40,
        forgotten: 4,
        sampled_out_records: 5,
        dropped_records: 6,
    };
    let batches = &mut heavy.gpus.values_mut().next().unwrap().batches;
    batches.entries.record(10, 30, 300);
    batches.service_ns.record(1_000_000, 30, 30_000_000);
    snapshot
}

#[tokio::test]
async fn a_process_has_its_busiest_blocks_and_the_losses_of_records() {
    let detail = detail(&request(with_blocks(), "20").await);
    assert_eq!((detail.process.name.as_str(), detail.process.counts.fault_entries), ("heavy", 310));
    let addresses: Vec<_> = detail.blocks.iter().map(|block| block.address.as_str()).collect();
    assert_eq!(addresses, ["0x7f2a40200000", "0x7f2a40000000", "0x20000000"]);
    let gpus: Vec<_> = detail.blocks.iter().map(|block| block.gpu_uuid.as_deref()).collect();
    assert_eq!(gpus, [Some("GPU-abababab-abab-abab-abab-abababababab"), None, None]);
    assert_eq!(detail.blocks_forgotten, 4);
    assert_eq!((detail.blocks_known, detail.block_records_sampled_out, detail.block_records_dropped), (40, 5, 6));
}

#[tokio::test]
async fn batches_are_distributions_with_exact_sums() {
    let counts = detail(&request(with_blocks(), "20").await).process.counts;
    let (entries, duration_ns) = (counts.batch_entries.unwrap(), counts.batch_duration_ns.unwrap());
    assert_eq!((counts.batches, entries.count, entries.sum), (Some(30), 30, 300));
    assert_eq!((entries.p50, duration_ns.sum), (10, 30_000_000));
    assert!((1_000_000..1_125_000).contains(&duration_ns.p99), "{duration_ns:?}");
}

#[tokio::test]
async fn distributions_without_batches_are_empty() {
    let counts = detail(&request(busy(), "10").await).process.counts;
    assert_eq!((counts.batches, counts.batch_duration_ns), (Some(0), Some(api::Distribution::default())));
}

#[tokio::test]
async fn the_number_of_blocks_is_a_parameter() {
    for (query, blocks) in [("?blocks=2", 2), ("?blocks=0", 0), ("?blocks=64", 3)] {
        let detail = detail(&request(with_blocks(), &format!("20{query}")).await);
        assert_eq!((detail.blocks.len(), detail.blocks_known), (blocks, 40), "{query}");
    }
}

#[tokio::test]
async fn a_pid_selects_the_running_process_or_that_with_the_start_time() {
    let mut snapshot = busy();
    let with = |start_ticks, exited_at, name| Process {
        id: ProcessId { pid: 5, start_ticks },
        ..process(5, name, exited_at, std::collections::BTreeMap::new())
    };
    snapshot.processes =
        vec![with(10, Some(at(10)), "first"), with(30, None, "running"), with(20, Some(at(20)), "second")];
    assert_eq!(detail(&request(snapshot.clone(), "5").await).process.name, "running");
    assert_eq!(detail(&request(snapshot.clone(), "5?start_ticks=10").await).process.name, "first");
    snapshot.processes.retain(|process| process.exited_at.is_some());
    assert_eq!(detail(&request(snapshot, "5").await).process.name, "second");
}

#[tokio::test]
async fn an_unknown_process_is_a_problem() {
    for (path, detail) in [
        ("999", "no process 999 uses managed memory"),
        ("20?start_ticks=1", "no process 20 with start_ticks 1 uses managed memory"),
        ("heavy", "there is no /api/v1/processes/heavy here"),
        ("-1", "there is no"),
        ("99999999999", "there is no"),
    ] {
        let response = request(busy(), path).await;
        assert_eq!(
            (response.status, response.header("content-type")),
            (StatusCode::NOT_FOUND, "application/problem+json")
        );
        assert!(response.json()["detail"].as_str().unwrap().contains(detail), "{}", response.text);
    }
    for query in ["?blocks=-1", "?blocks=65", "?blocks=all", "?start_ticks=x", "?limit=1"] {
        assert_eq!(request(busy(), &format!("20{query}")).await.status, StatusCode::BAD_REQUEST, "{query}");
    }
}

//! `/api/v1/processes/{pid}/history` and `/api/v1/gpus/{uuid}/history`.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, http::StatusCode};
use model::{GpuKey, GpuUuid, History, HistoryOf, HistoryRequest, ProcessId, Sample};
use web::{Source, Sources};

use crate::support::{always, assert_problem, at, busy, get, router, router_over};

type Requests = Arc<Mutex<Vec<HistoryRequest>>>;

fn recording() -> (Router, Requests) {
    let requests = Requests::default();
    let recorded = Arc::clone(&requests);
    let source = Source::new(move |request| {
        recorded.lock().unwrap().push(request);
        let sample =
            Sample { bytes_htod: 1, evicted_bytes: 2, refetched_bytes: 3, resident_bytes: 4, ..Sample::default() };
        let history =
            History { begin: at(0), interval: Duration::from_millis(2500), samples: vec![None, Some(sample)] };
        std::future::ready(Some(Some(history)))
    });
    (router_over(Sources { history: source, ..always(busy()).into() }), requests)
}

const GPU: &str = "GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f";

#[tokio::test]
async fn samples_have_equal_lengths_and_are_null_without_a_reading() {
    let (router, _) = recording();
    for path in ["/api/v1/processes/20/history".to_owned(), format!("/api/v1/gpus/{GPU}/history")] {
        let history: api::History = serde_json::from_str(&get(&router, &path).await.text).unwrap();
        assert_eq!((history.started_at.as_str(), history.interval_seconds), ("2023-11-14T22:13:20.000Z", 2.5));
        let [None, Some(sample)] = history.samples[..] else { panic!("{history:?}") };
        assert_eq!(
            (sample.bytes_htod, sample.evicted_bytes, sample.refetched_bytes, sample.resident_bytes),
            (1, Some(2), Some(3), Some(4))
        );
    }
}

#[tokio::test]
async fn a_request_has_the_process_or_gpu_and_the_span() {
    let (router, requests) = recording();
    for path in [
        "processes/20/history",
        "processes/20/history?seconds=86400&samples=8640&start_ticks=120",
        &format!("gpus/{}/history?seconds=1&samples=1", GPU.to_lowercase()),
    ] {
        assert_eq!(get(&router, &format!("/api/v1/{path}")).await.status, StatusCode::OK, "{path}");
    }
    let process = HistoryOf::Process(ProcessId { pid: 20, start_ticks: 120 });
    let gpu = HistoryOf::Gpu(GpuKey::Known(GpuUuid([0x9a, 0x31, 0x77, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])));
    let request = |of, seconds, samples_max| HistoryRequest { of, back: Duration::from_secs(seconds), samples_max };
    assert_eq!(
        *requests.lock().unwrap(),
        [request(process.clone(), 300, 300), request(process, 86_400, 8640), request(gpu, 1, 1)]
    );
}

#[tokio::test]
async fn an_unknown_process_or_gpu_is_a_problem() {
    let (router_with, _) = recording();
    for (path, detail) in [
        ("processes/999/history", "no process 999"),
        ("processes/20/history?start_ticks=1", "start_ticks 1"),
        ("gpus/GPU-1/history", "no GPU GPU-1"),
        ("gpus/unknown/history", "no GPU unknown"),
    ] {
        assert_problem(&get(&router_with, &format!("/api/v1/{path}")).await, StatusCode::NOT_FOUND, detail);
    }
    let response = get(&router(busy()), "/api/v1/processes/20/history").await;
    assert_problem(&response, StatusCode::NOT_FOUND, "there is no history");
    for query in ["seconds=0", "seconds=86401", "samples=0", "samples=8641", "samples=-1", "begin=0x0"] {
        let response = get(&router_with, &format!("/api/v1/processes/20/history?{query}")).await;
        assert_eq!(response.status, StatusCode::BAD_REQUEST, "{query}");
    }
}

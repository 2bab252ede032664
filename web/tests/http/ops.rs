//! `/api/v1/processes/{pid}/ops` and `/ops/trace`.

use std::sync::{Arc, Mutex};

use api::{Op, OpAction, OpPointer, OpTarget, Ops};
use axum::{Router, http::StatusCode};
use model::ProcessId;
use web::{CallsRefusal, CallsRequest, Source, Sources};

use crate::support::{always, assert_problem, busy, get, get_as_reader, metrics, router, router_over};

/// A trace of one block.
pub(crate) const TRACE: &str = r#"{"blocks":[{"bytes":1}],"signatures":[],"launches":[],"ops":[]}"#;

/// A recording with one call.
pub(crate) fn recording() -> Ops {
    let address = "0x7f2a40000000".to_owned();
    let action = OpAction::Launch {
        target: OpTarget::Stream("0x1".to_owned()),
        function: "saxpy".to_owned(),
        grid: [4096, 1, 1],
        block: [256, 1, 1],
        shared_bytes: 0,
        pointers: Some(vec![OpPointer { offset_bytes: 0, address }]),
    };
    let op = Op { sequence: 7, time_ns: 9, tid: 20, is_asynchronous: true, is_cut: false, action };
    Ops { state: "recording".to_owned(), calls: 8, calls_retained: 1, ops: vec![op], ..Ops::default() }
}

fn recorded(requests: &Arc<Mutex<Vec<CallsRequest>>>, trace: Result<&'static str, &'static str>) -> Router {
    let (of_ops, of_traces) = (Arc::clone(requests), Arc::clone(requests));
    let ops = Source::new(move |request| {
        of_ops.lock().unwrap().push(request);
        std::future::ready(Some(Ok(recording())))
    });
    let traces = Source::new(move |request| {
        of_traces.lock().unwrap().push(request);
        let trace = trace.map(|text| text.as_bytes().to_vec()).map_err(str::to_owned);
        std::future::ready(Some(Ok(trace)))
    });
    router_over(Sources { ops, traces, ..always(busy()).into() })
}

#[tokio::test]
async fn calls_are_listed_up_to_the_requested_number() {
    let requests = Arc::default();
    let router = recorded(&requests, Ok(TRACE));
    let response = get_as_reader(&router, "/api/v1/processes/20/ops").await;
    assert_eq!(serde_json::from_str::<Ops>(&response.text).unwrap(), recording());
    let json = response.json();
    assert_eq!(
        (&json["ops"][0]["action"]["op"], &json["ops"][0]["action"]["target"]["stream"]),
        (&"launch".into(), &"0x1".into())
    );
    get_as_reader(&router, "/api/v1/processes/20/ops?last=1000&start_ticks=120").await;
    let response = get_as_reader(&router, "/api/v1/processes/20/ops/trace?last=5").await;
    assert_eq!((response.text.as_str(), response.header("content-type")), (TRACE, "application/json"));
    get_as_reader(&router, "/api/v1/processes/20/ops/trace").await;
    let process = ProcessId { pid: 20, start_ticks: 120 };
    let expected = [100, 1000, 5, 1_000_000].map(|count| CallsRequest { process, count });
    assert_eq!(*requests.lock().unwrap(), expected);
}

#[tokio::test]
async fn calls_require_read_permission() {
    let router = recorded(&Arc::default(), Ok(TRACE));
    for path in ["/api/v1/processes/20/ops", "/api/v1/processes/20/ops/trace"] {
        assert_problem(&get(&router, path).await, StatusCode::FORBIDDEN, "auth.token_file");
    }
}

#[tokio::test]
async fn process_without_a_recording_is_a_problem_that_names_the_helper() {
    for path in ["/api/v1/processes/20/ops", "/api/v1/processes/20/ops/trace"] {
        let response = get_as_reader(&router(busy()), path).await;
        assert_problem(&response, StatusCode::NOT_FOUND, "no calls of process 20 are recorded");
    }
}

#[tokio::test]
async fn request_beyond_those_that_are_answered_at_a_time_is_overload_with_its_own_detail() {
    let busy_with = |reason: &'static str| CallsRefusal::Busy(reason.to_owned());
    let ops = Source::new(move |_| std::future::ready(Some(Err(busy_with("uvmd makes 8 lists of calls at a time")))));
    let traces = Source::new(move |_| std::future::ready(Some(Err(busy_with("uvmd makes 1 trace at a time")))));
    let router = router_over(Sources { ops, traces, ..always(busy()).into() });
    for (path, detail) in [("", "uvmd makes 8 lists of calls at a time"), ("/trace", "uvmd makes 1 trace at a time")] {
        let response = get_as_reader(&router, &format!("/api/v1/processes/20/ops{path}")).await;
        assert_problem(&response, StatusCode::SERVICE_UNAVAILABLE, &format!("{detail}: retry in a second"));
        assert_eq!((&response.json()["type"], response.header("retry-after")), (&"/problems/overloaded".into(), "1"));
    }
    let rejected = "uvmd_http_requests_rejected_total{reason=\"recorded_calls\"} 2";
    assert!(metrics(&router).await.lines().any(|line| line == rejected));
}

#[tokio::test]
async fn trace_that_would_be_too_long_is_a_problem_with_the_reason() {
    let router = recorded(&Arc::default(), Err("more than 131072 ops"));
    let response = get_as_reader(&router, "/api/v1/processes/20/ops/trace").await;
    assert_problem(&response, StatusCode::BAD_REQUEST, "more than 131072 ops");
    for query in ["last=0", "last=1000001", "last=x", "first=1"] {
        let response = get_as_reader(&router, &format!("/api/v1/processes/20/ops/trace?{query}")).await;
        assert_eq!(response.status, StatusCode::BAD_REQUEST, "{query}");
    }
    let response = get_as_reader(&router, "/api/v1/processes/20/ops?last=1001").await;
    assert_eq!(response.status, StatusCode::BAD_REQUEST);
}

//! Responses are shared among equal requests, and built in limited number, off the event loop.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode};
use futures_util::future::join_all;
use model::{History, Snapshot};
use tokio::{
    sync::Semaphore,
    task::JoinHandle,
    time::{sleep, timeout},
};
use web::{Snapshots, Source, Sources};

use crate::memory_server::local;
use crate::support::{Response, assert_problem, at, busy, get, get_as, get_as_reader, metrics, router_over};

const HANG_LIMIT: Duration = Duration::from_mins(1);

/// A new snapshot for each reading, and their number.
fn counted() -> (Snapshots, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let snapshots = Snapshots::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        async {
            // Delay of a busy collector.
            sleep(Duration::from_millis(20)).await;
            Some(Arc::new(busy()))
        }
    });
    (snapshots, taken)
}

/// Value of a metric.
async fn metric(router: &Router, series: &str) -> u64 {
    let text = metrics(router).await;
    let line = text.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("no {series} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

const BUILT: &str = "uvmd_http_responses_built_total{kind=\"api\"}";

#[tokio::test]
async fn equal_concurrent_requests_share_one_reading_and_one_response() {
    for path in [
        "/api/v1/processes",
        "/api/v1/processes/summary",
        "/api/v1/owners",
        "/api/v1/verdicts",
        "/api/v1/evictions",
        "/api/v1/gpus",
        "/api/v1/status",
        "/api/v1/processes/20",
        "/api/v1/processes/20/verdict",
        "/api/v1/processes/20/override",
    ] {
        let (snapshots, taken) = counted();
        let router = router_over(snapshots);
        let responses: Vec<Response> = join_all((0..64).map(|_| get(&router, path))).await;
        assert!(
            responses.iter().all(|response| response.status == StatusCode::OK && response.text == responses[0].text)
        );
        assert_eq!(taken.load(Ordering::Relaxed), 1, "{path}");
        assert_eq!(metric(&router, BUILT).await, 1, "{path}");
    }
}

#[tokio::test]
async fn responses_without_a_reading_are_shared_too() {
    for path in ["/api/v1/decisions", "/api/v1/overrides", "/api/v1/policy"] {
        let (snapshots, taken) = counted();
        let router = router_over(snapshots);
        join_all((0..64).map(|_| get(&router, path))).await;
        assert_eq!(taken.load(Ordering::Relaxed), 0, "{path}");
        assert_eq!(metric(&router, BUILT).await, 1, "{path}");
    }
}

#[tokio::test]
async fn a_later_request_gets_a_later_reading() {
    let (snapshots, taken) = counted();
    let router = router_over(snapshots);
    for requests in 1..=3 {
        get(&router, "/api/v1/processes").await;
        assert_eq!(taken.load(Ordering::Relaxed), requests);
    }
}

#[tokio::test]
async fn an_omitted_parameter_equals_its_default() {
    let (snapshots, _) = counted();
    let router = router_over(snapshots);
    let paths = ["", "?limit=100", "?order=activity", "?order=activity&limit=100", "?limit=100&order=activity"];
    join_all(paths.map(|query| format!("/api/v1/processes{query}")).iter().map(|path| get(&router, path))).await;
    assert_eq!(metric(&router, BUILT).await, 1);
}

#[tokio::test]
async fn without_read_permission_the_number_of_blocks_does_not_matter() {
    let (snapshots, _) = counted();
    let router = router_over(snapshots);
    let paths = ["", "?blocks=1", "?blocks=64"].map(|query| format!("/api/v1/processes/20{query}"));
    join_all(paths.iter().map(|path| get(&router, path))).await;
    assert_eq!(metric(&router, BUILT).await, 1);
}

#[tokio::test]
async fn those_who_may_read_more_and_those_who_may_not_share_no_answer() {
    let (snapshots, _) = counted();
    let router = router_over(snapshots);
    for path in ["/api/v1/processes/20", "/api/v1/status"] {
        let (reader, other) = tokio::join!(get_as_reader(&router, path), get(&router, path));
        assert_ne!(reader.text, other.text, "{path}");
    }
}

/// Service whose collector delays histories until permits are added.
struct Stalled {
    router: Router,
    permits: Arc<Semaphore>,
    fetched: Arc<AtomicUsize>,
    requests: Vec<JoinHandle<Response>>,
}

impl Stalled {
    fn new() -> Self {
        let (permits, fetched) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (wait, count) = (Arc::clone(&permits), Arc::clone(&fetched));
        let history = Source::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            let wait = Arc::clone(&wait);
            async move {
                wait.acquire().await.unwrap().forget();
                let history = History { begin: at(0), interval: Duration::from_secs(1), samples: Vec::new() };
                Some(Some(history))
            }
        });
        let (snapshots, _) = counted();
        let router = router_over(Sources { history, ..snapshots.into() });
        Self { router, permits, fetched, requests: Vec::new() }
    }

    /// Sends `count` different requests, of 8 users in turn.
    async fn request(&mut self, count: usize) {
        let begin = self.requests.len();
        for at in begin..begin + count {
            let router = self.router.clone();
            let path = format!("/api/v1/processes/20/history?seconds={}", at + 1);
            let user = local(1000 + u32::try_from(at % 8).unwrap());
            self.requests.push(tokio::spawn(async move { get_as(&router, user, &path).await }));
        }
        // Until each waits.
        sleep(Duration::from_secs(1)).await;
    }

    async fn responses(self) -> Vec<Response> {
        let responses = join_all(self.requests);
        timeout(HANG_LIMIT, responses).await.unwrap().into_iter().map(Result::unwrap).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn builds_and_waiting_requests_are_limited_and_others_are_rejected() {
    let mut stalled = Stalled::new();
    stalled.request(2 + 64).await;
    assert_eq!(stalled.fetched.load(Ordering::Relaxed), 2);
    let rejected = get(&stalled.router, "/api/v1/processes").await;
    assert_problem(&rejected, StatusCode::SERVICE_UNAVAILABLE, "too many responses are pending");
    assert_eq!(rejected.header("retry-after"), "1");
    // A request equal to a waiting one joins it.
    let joined = tokio::spawn({
        let router = stalled.router.clone();
        async move { get(&router, "/api/v1/processes/20/history?seconds=66").await }
    });
    sleep(Duration::from_secs(1)).await;
    assert!(!joined.is_finished());

    // An invalid request is rejected at once.
    let invalid = get(&stalled.router, "/api/v1/processes?continue=AAAAAAAAAAAAAAAA").await;
    assert_problem(&invalid, StatusCode::BAD_REQUEST, "`continue` is not of this list");

    // Health checks and metrics are not delayed.
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(&stalled.router, path).await.status, StatusCode::OK, "{path}");
    }
    let series = "uvmd_http_requests_rejected_total{reason=\"build_queue\"}";
    assert_eq!(metric(&stalled.router, series).await, 1);

    stalled.permits.add_permits(1000);
    assert_eq!(timeout(HANG_LIMIT, joined).await.unwrap().unwrap().status, StatusCode::OK);
    assert!(stalled.responses().await.iter().all(|response| response.status == StatusCode::OK));
}

#[tokio::test(start_paused = true)]
async fn a_peer_has_a_share_of_the_queue_and_root_is_not_limited_by_others() {
    let stalled = Stalled::new();
    let request = |uid, at: usize| {
        let router = stalled.router.clone();
        let path = format!("/api/v1/processes/20/history?seconds={}", at + 1);
        tokio::spawn(async move { get_as(&router, local(uid), &path).await })
    };
    let mut greedy: Vec<_> = (0..20).map(|at| request(1000, at)).collect();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(greedy.iter().filter(|request| request.is_finished()).count(), 2, "2 are being built, 16 wait");
    greedy.extend((20..68).map(|at| request(1001 + u32::try_from(at).unwrap() % 4, at)));
    sleep(Duration::from_secs(1)).await;
    let (other, root) = (request(2000, 100), request(0, 101));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(other.await.unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!root.is_finished(), "it waits for its turn");
    stalled.permits.add_permits(1000);
    assert_eq!(timeout(HANG_LIMIT, root).await.unwrap().unwrap().status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_build_without_waiting_requests_is_cancelled() {
    let mut stalled = Stalled::new();
    stalled.request(2 + 64).await;
    for request in stalled.requests.drain(2..) {
        request.abort();
    }
    sleep(Duration::from_secs(1)).await;
    stalled.request(60).await;
    stalled.permits.add_permits(1000);
    let fetched = Arc::clone(&stalled.fetched);
    assert!(stalled.responses().await.iter().all(|response| response.status == StatusCode::OK));
    assert_eq!(fetched.load(Ordering::Relaxed), 2 + 60);
}

#[tokio::test]
async fn a_snapshot_is_dropped_after_the_response() {
    let last = Arc::new(std::sync::Mutex::new(std::sync::Weak::<Snapshot>::new()));
    let latest = Arc::clone(&last);
    let router = router_over(Snapshots::new(move || {
        let snapshot = Arc::new(busy());
        *latest.lock().unwrap() = Arc::downgrade(&snapshot);
        std::future::ready(Some(snapshot))
    }));
    for path in ["/api/v1/processes", "/api/v1/status", "/metrics", "/readyz", "/api/v1/processes/404"] {
        get(&router, path).await;
        // The build may end a moment later.
        let dropped = async {
            while last.lock().unwrap().upgrade().is_some() {
                tokio::task::yield_now().await;
            }
        };
        timeout(HANG_LIMIT, dropped).await.unwrap_or_else(|_| panic!("{path} holds it"));
    }
}

#[tokio::test]
async fn a_panic_in_a_build_is_a_problem_and_later_builds_succeed() {
    let heat = Source::new(|_| async { panic!("a bug") });
    let (snapshots, _) = counted();
    let router = router_over(Sources { heat, ..snapshots.into() });
    for _ in 0..5 {
        let response = get_as_reader(&router, "/api/v1/processes/20/heatmap").await;
        assert_problem(&response, StatusCode::INTERNAL_SERVER_ERROR, "its log has the cause");
    }
    assert_eq!(get(&router, "/api/v1/processes").await.status, StatusCode::OK);
}

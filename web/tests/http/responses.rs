//! Answers are made once for all who ask for the same, so many at a time, off the event loop.

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
use crate::support::{Answer, assert_problem, at, busy, get, get_as, get_as_reader, metrics, router_over};

const HUNG: Duration = Duration::from_mins(1);

/// A new snapshot for each reading, and how many there were.
fn counted() -> (Snapshots, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let snapshots = Snapshots::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        async {
            // As a collector that is busy for a while.
            sleep(Duration::from_millis(20)).await;
            Some(Arc::new(busy()))
        }
    });
    (snapshots, taken)
}

/// A value of a metric.
async fn metric(router: &Router, series: &str) -> u64 {
    let text = metrics(router).await;
    let line = text.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("no {series} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

const BUILT: &str = "uvmd_http_responses_built_total{kind=\"api\"}";

#[tokio::test]
async fn requests_for_the_same_at_once_are_answered_by_one_reading_and_one_answer() {
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
        let answers: Vec<Answer> = join_all((0..64).map(|_| get(&router, path))).await;
        assert!(answers.iter().all(|answer| answer.status == StatusCode::OK && answer.text == answers[0].text));
        assert_eq!(taken.load(Ordering::Relaxed), 1, "{path}");
        assert_eq!(metric(&router, BUILT).await, 1, "{path}");
    }
}

#[tokio::test]
async fn what_is_made_of_no_reading_is_made_once_for_all_who_ask_at_once_too() {
    for path in ["/api/v1/decisions", "/api/v1/overrides", "/api/v1/policy"] {
        let (snapshots, taken) = counted();
        let router = router_over(snapshots);
        join_all((0..64).map(|_| get(&router, path))).await;
        assert_eq!(taken.load(Ordering::Relaxed), 0, "{path}");
        assert_eq!(metric(&router, BUILT).await, 1, "{path}");
    }
}

#[tokio::test]
async fn who_asks_later_gets_what_was_read_since() {
    let (snapshots, taken) = counted();
    let router = router_over(snapshots);
    for asked in 1..=3 {
        get(&router, "/api/v1/processes").await;
        assert_eq!(taken.load(Ordering::Relaxed), asked);
    }
}

#[tokio::test]
async fn a_parameter_that_is_left_out_and_one_that_says_the_same_are_one_question() {
    let (snapshots, _) = counted();
    let router = router_over(snapshots);
    let paths = ["", "?limit=100", "?order=activity", "?order=activity&limit=100", "?limit=100&order=activity"];
    join_all(paths.map(|query| format!("/api/v1/processes{query}")).iter().map(|path| get(&router, path))).await;
    assert_eq!(metric(&router, BUILT).await, 1);
}

#[tokio::test]
async fn who_may_see_no_blocks_is_answered_the_same_however_many_are_asked_for() {
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

/// One whose collector does not tell what was counted lately until it may.
struct Stuck {
    router: Router,
    may: Arc<Semaphore>,
    asked: Arc<AtomicUsize>,
    requests: Vec<JoinHandle<Answer>>,
}

impl Stuck {
    fn new() -> Self {
        let (may, asked) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (wait, count) = (Arc::clone(&may), Arc::clone(&asked));
        let lately = Source::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            let wait = Arc::clone(&wait);
            async move {
                wait.acquire().await.unwrap().forget();
                let history = History { begin: at(0), interval: Duration::from_secs(1), samples: Vec::new() };
                Some(Some(history))
            }
        });
        let (snapshots, _) = counted();
        let router = router_over(Sources { history: lately, ..snapshots.into() });
        Self { router, may, asked, requests: Vec::new() }
    }

    /// So many requests, each for something else, of 8 users in turn.
    async fn ask(&mut self, count: usize) {
        let begin = self.requests.len();
        for at in begin..begin + count {
            let router = self.router.clone();
            let path = format!("/api/v1/processes/20/history?seconds={}", at + 1);
            let user = local(1000 + u32::try_from(at % 8).unwrap());
            self.requests.push(tokio::spawn(async move { get_as(&router, user, &path).await }));
        }
        // Until each is where it waits.
        sleep(Duration::from_secs(1)).await;
    }

    async fn answers(self) -> Vec<Answer> {
        let answers = join_all(self.requests);
        timeout(HUNG, answers).await.unwrap().into_iter().map(Result::unwrap).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn so_many_are_made_at_a_time_so_many_wait_and_the_rest_is_asked_to_come_back() {
    let mut stuck = Stuck::new();
    stuck.ask(2 + 64).await;
    assert_eq!(stuck.asked.load(Ordering::Relaxed), 2);
    let turned_away = get(&stuck.router, "/api/v1/processes").await;
    assert_problem(&turned_away, StatusCode::SERVICE_UNAVAILABLE, "too many responses are pending");
    assert_eq!(turned_away.header("retry-after"), "1");
    // Who asks for what others wait for waits with them.
    let joined = tokio::spawn({
        let router = stuck.router.clone();
        async move { get(&router, "/api/v1/processes/20/history?seconds=66").await }
    });
    sleep(Duration::from_secs(1)).await;
    assert!(!joined.is_finished());

    // What makes no sense is told so without waiting.
    let nonsense = get(&stuck.router, "/api/v1/processes?continue=AAAAAAAAAAAAAAAA").await;
    assert_problem(&nonsense, StatusCode::BAD_REQUEST, "`continue` is not of this list");

    // None of that holds up those who only ask whether it is well, nor the metrics.
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(&stuck.router, path).await.status, StatusCode::OK, "{path}");
    }
    let rejected = "uvmd_http_requests_rejected_total{reason=\"build_queue\"}";
    assert_eq!(metric(&stuck.router, rejected).await, 1);

    stuck.may.add_permits(1000);
    assert_eq!(timeout(HUNG, joined).await.unwrap().unwrap().status, StatusCode::OK);
    assert!(stuck.answers().await.iter().all(|answer| answer.status == StatusCode::OK));
}

#[tokio::test(start_paused = true)]
async fn one_peer_has_a_share_of_those_that_wait_and_root_is_let_in_whatever_others_do() {
    let stuck = Stuck::new();
    let ask = |uid, at: usize| {
        let router = stuck.router.clone();
        let path = format!("/api/v1/processes/20/history?seconds={}", at + 1);
        tokio::spawn(async move { get_as(&router, local(uid), &path).await })
    };
    let mut greedy: Vec<_> = (0..20).map(|at| ask(1000, at)).collect();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(greedy.iter().filter(|request| request.is_finished()).count(), 2, "2 are made, 16 wait");
    greedy.extend((20..68).map(|at| ask(1001 + u32::try_from(at).unwrap() % 4, at)));
    sleep(Duration::from_secs(1)).await;
    let (other, root) = (ask(2000, 100), ask(0, 101));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(other.await.unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!root.is_finished(), "it waits for its turn");
    stuck.may.add_permits(1000);
    assert_eq!(timeout(HUNG, root).await.unwrap().unwrap().status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_any_more_is_not_made() {
    let mut stuck = Stuck::new();
    stuck.ask(2 + 64).await;
    for request in stuck.requests.drain(2..) {
        request.abort();
    }
    sleep(Duration::from_secs(1)).await;
    stuck.ask(60).await;
    stuck.may.add_permits(1000);
    let asked = Arc::clone(&stuck.asked);
    assert!(stuck.answers().await.iter().all(|answer| answer.status == StatusCode::OK));
    assert_eq!(asked.load(Ordering::Relaxed), 2 + 60);
}

#[tokio::test]
async fn a_snapshot_is_let_go_once_it_is_answered_from() {
    let last = Arc::new(std::sync::Mutex::new(std::sync::Weak::<Snapshot>::new()));
    let keep = Arc::clone(&last);
    let router = router_over(Snapshots::new(move || {
        let snapshot = Arc::new(busy());
        *keep.lock().unwrap() = Arc::downgrade(&snapshot);
        std::future::ready(Some(snapshot))
    }));
    for path in ["/api/v1/processes", "/api/v1/status", "/metrics", "/readyz", "/api/v1/processes/404"] {
        get(&router, path).await;
        // What made it may end a moment later.
        let gone = async {
            while last.lock().unwrap().upgrade().is_some() {
                tokio::task::yield_now().await;
            }
        };
        timeout(HUNG, gone).await.unwrap_or_else(|_| panic!("{path} holds it"));
    }
}

#[tokio::test]
async fn a_mistake_in_making_an_answer_is_a_problem_and_the_next_is_made() {
    let heat = Source::new(|_| async { panic!("as a mistake would") });
    let (snapshots, _) = counted();
    let router = router_over(Sources { heat, ..snapshots.into() });
    for _ in 0..5 {
        let answer = get_as_reader(&router, "/api/v1/processes/20/heatmap").await;
        assert_problem(&answer, StatusCode::INTERNAL_SERVER_ERROR, "its log has the cause");
    }
    assert_eq!(get(&router, "/api/v1/processes").await.status, StatusCode::OK);
}

//! Decisions, and the stream of events.

use std::{sync::Arc, time::Duration};

use api::decision::Event;
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use model::{
    CallResult, Decision, Stage,
    decision::Event::{Applied, Created, Switched, Updated, Withheld},
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::ServiceExt;
use web::{DecisionSource, Events, Grant, Peer, Sources};

use crate::{
    fakes::{decision, outcome},
    support::{LOOPBACK, always, assert_problem, at, busy, get, get_as_reader, metrics, router_over},
};

fn daemon(events: &Events) -> Router {
    let decisions: Arc<[Decision]> = [
        decision(3, Stage::Trial),
        decision(2, Stage::RolledBack("no better".to_owned())),
        decision(1, Stage::Confirmed),
    ]
    .into();
    let source = DecisionSource::new(move || Arc::clone(&decisions));
    router_over(Sources { decisions: source, events: events.clone(), ..always(busy()).into() })
}

async fn ids(path: &str) -> Vec<u64> {
    let response = get(&daemon(&Events::default()), path).await;
    assert_eq!(response.status, StatusCode::OK, "{}", response.text);
    response.json()["decisions"].as_array().unwrap().iter().map(|each| each["id"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn decisions_are_listed_newest_first_and_selected() {
    assert_eq!(ids("/api/v1/decisions").await, [3, 2, 1]);
    assert_eq!(ids("/api/v1/decisions?limit=2").await, [3, 2]);
    assert_eq!(ids("/api/v1/decisions?stage=rolled_back").await, [2]);
    assert_eq!(ids("/api/v1/decisions?pid=20&stage=confirmed").await, [1]);
    assert!(ids("/api/v1/decisions?pid=10").await.is_empty());
    for stage in Stage::NAMES {
        ids(&format!("/api/v1/decisions?stage={stage}")).await;
    }
    let router = daemon(&Events::default());
    for query in ["stage=done", "limit=0", "limit=1001", "process=20"] {
        assert_eq!(
            get(&router, &format!("/api/v1/decisions?{query}")).await.status,
            StatusCode::BAD_REQUEST,
            "{query}"
        );
    }
}

#[tokio::test]
async fn one_decision_has_its_reason_its_bounds_and_both_windows() {
    let router = daemon(&Events::default());
    let response = get_as_reader(&router, "/api/v1/decisions/2").await.json();
    assert_eq!((&response["stage"], &response["stage_reason"]), (&json!("rolled_back"), &json!("no better")));
    assert_eq!(response["expected"]["link_bytes_saved"], json!({ "at_least": 0.5, "at_most": 0.65 }));
    assert_eq!((&response["before"]["link_bytes"]["htod"], &response["after"]["replays"]), (&json!(5), &json!(3)));
    assert_eq!(response["ranges"], json!([{ "begin": "0x7f2a40000000", "end": "0x7f2a42000000" }]));
    assert_eq!(response["last_error"], json!({ "result": "failed", "detail": "invalid argument" }));
    for unknown in ["9", "x"] {
        let response = get(&router, &format!("/api/v1/decisions/{unknown}")).await;
        assert_problem(&response, StatusCode::NOT_FOUND, "no decision");
    }
}

#[tokio::test]
async fn addresses_require_read_permission() {
    let router = daemon(&Events::default());
    for path in ["/api/v1/decisions", "/api/v1/decisions/1"] {
        assert!(!get(&router, path).await.text.contains("0x7f2a"), "{path}");
        assert!(get_as_reader(&router, path).await.text.contains("0x7f2a"), "{path}");
    }
}

/// Events that a reader of the stream gets.
async fn read(router: &Router, last: Option<&str>, grant: Option<Grant>, end: &Events) -> String {
    let request =
        Request::get("/api/v1/events").header("Host", LOOPBACK).extension(Peer::Local { uid: 7, pid: None, grant });
    let request = last.iter().fold(request, |request, id| request.header("Last-Event-ID", *id));
    let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    end.tell(Event::new(&Created(decision(1, Stage::Trial)), at(1)));
    end.tell(Event::new(&Applied(outcome(1)), at(2)));
    end.tell(Event::new(&Updated(decision(1, Stage::RolledBack("worse".to_owned()))), at(3)));
    end.tell(Event::new(&Switched { active: false, actor: "me".to_owned() }, at(4)));
    end.end();
    let body = timeout(Duration::from_secs(10), axum::body::to_bytes(response.into_body(), usize::MAX)).await;
    String::from_utf8(body.unwrap().unwrap().to_vec()).unwrap()
}

fn data(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[tokio::test]
async fn events_are_streamed_with_ids_to_resume_from() {
    let events = Events::default();
    events.tell(Event::new(&Created(decision(9, Stage::Trial)), at(0)));
    let router = daemon(&events);
    let text = read(&router, None, Some(Grant::Read), &events).await;
    let events = data(&text);
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["decision_created", "decision_applied", "decision_updated", "policy_switched"]);
    assert!(text.contains("event: decision_applied\n"), "{text}");
    let calls = events[1]["outcome"]["calls"].as_array().unwrap();
    assert_eq!((&calls[0]["action"], &calls[0]["result"]), (&json!("migrate_to_gpu"), &json!("done")));
    assert_eq!(calls[0]["range"]["begin"], "0x7f2a40000000");
    assert_eq!((&events[2]["pid"], &events[2]["decision"]["stage_reason"]), (&json!(20), &json!("worse")));
    assert_eq!(events[3]["switched"], json!({ "active": false, "actor": "me" }));
    let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    // No new events come, but missed ones do.
    let request = Request::get("/api/v1/events").header("Host", LOOPBACK).header("Last-Event-ID", ids[1]);
    let response = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let rest = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let rest = data(std::str::from_utf8(&rest).unwrap());
    assert_eq!(
        rest.iter().map(|event| event["type"].as_str().unwrap()).collect::<Vec<_>>(),
        ["decision_updated", "policy_switched"]
    );
}

#[tokio::test]
async fn addresses_in_the_stream_require_read_permission() {
    let events = Events::default();
    let text = read(&daemon(&events), None, None, &events).await;
    assert_eq!(data(&text).len(), 4);
    assert!(!text.contains("0x7f2a"), "{text}");
}

#[tokio::test]
async fn withheld_steps_are_counted_and_not_streamed() {
    let events = Events::default();
    let router = daemon(&events);
    let mut withheld = outcome(1);
    for call in &mut withheld.calls {
        call.result = CallResult::Denied("the budget is used up".to_owned());
    }
    events.tell(Event::new(&Created(decision(1, Stage::Trial)), at(0)));
    events.count(&Event::new(&Withheld(withheld), at(0)));
    // Those that `read` publishes.
    assert_eq!(data(&read(&router, None, None, &events).await).len(), 4);
    let line = r#"uvmd_policy_actions_total{policy="cycle",action="migrate_to_gpu",result="denied"} 1"#;
    let text = metrics(&router).await;
    assert!(text.contains(&format!("\n{line}\n")), "{text}");
}

#[tokio::test]
async fn metrics_have_the_sums_of_what_policies_did() {
    let events = Events::default();
    let router = daemon(&events);
    read(&router, None, None, &events).await;
    let text = metrics(&router).await;
    for line in [
        r#"uvmd_policy_actions_total{policy="cycle",action="migrate_to_gpu",result="done"} 1"#,
        r#"uvmd_policy_actions_total{policy="cycle",action="migrate_to_host",result="not_mapped"} 1"#,
        r#"uvmd_policy_actions_total{policy="cycle",action="accessed_by",result="done"} 1"#,
        r#"uvmd_policy_migrated_bytes_total{policy="cycle",direction="htod"} 2097152"#,
        r#"uvmd_policy_rollbacks_total{policy="cycle"} 1"#,
        r#"uvmd_policy_decisions{stage="trial"} 1"#,
        r#"uvmd_policy_decisions{stage="shadow"} 0"#,
        "uvmd_stream_events_dropped_total 0",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line} is not in {text}");
    }
    assert!(!text.contains(r#"direction="dtoh"} 2097152"#), "{text}");
    // Of a policy without decisions, so that `increase` covers its first one.
    assert!(text.contains("\nuvmd_policy_rollbacks_total{policy=\"stream\"} 0\n"), "{text}");
}

//! What was decided, and what happens.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use model::{
    Decision, Stage,
    api::decision::Event,
    decision::Event::{Applied, Created, Switched, Updated},
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
    let decided = DecisionSource::new(move || Arc::clone(&decisions));
    router_over(Sources { decisions: decided, events: events.clone(), ..always(busy()).into() })
}

async fn ids(path: &str) -> Vec<u64> {
    let answer = get(&daemon(&Events::default()), path).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    answer.json()["decisions"].as_array().unwrap().iter().map(|each| each["id"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn decisions_are_told_newest_first_and_can_be_chosen_among() {
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
    let answer = get_as_reader(&router, "/api/v1/decisions/2").await.json();
    assert_eq!((&answer["stage"], &answer["stage_reason"]), (&json!("rolled_back"), &json!("no better")));
    assert_eq!(answer["expected"]["link_bytes_saved"], json!({ "at_least": 0.5, "at_most": 0.65 }));
    assert_eq!((&answer["before"]["link_bytes"]["htod"], &answer["after"]["replays"]), (&json!(5), &json!(3)));
    assert_eq!(answer["ranges"], json!([{ "begin": "0x7f2a40000000", "end": "0x7f2a42000000" }]));
    assert_eq!(answer["last_error"], json!({ "result": "failed", "detail": "it said no" }));
    for unknown in ["9", "x"] {
        let answer = get(&router, &format!("/api/v1/decisions/{unknown}")).await;
        assert_problem(&answer, StatusCode::NOT_FOUND, "no decision");
    }
}

#[tokio::test]
async fn addresses_are_for_readers() {
    let router = daemon(&Events::default());
    for path in ["/api/v1/decisions", "/api/v1/decisions/1"] {
        assert!(!get(&router, path).await.text.contains("0x7f2a"), "{path}");
        assert!(get_as_reader(&router, path).await.text.contains("0x7f2a"), "{path}");
    }
}

/// What a reader of the stream gets within a moment.
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
async fn what_happens_is_streamed_with_names_to_come_back_by() {
    let events = Events::default();
    events.tell(Event::new(&Created(decision(9, Stage::Trial)), at(0)));
    let router = daemon(&events);
    let text = read(&router, None, Some(Grant::Read), &events).await;
    let told = data(&text);
    let types: Vec<&str> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["decision_created", "decision_applied", "decision_updated", "policy_switched"]);
    assert!(text.contains("event: decision_applied\n"), "{text}");
    let calls = told[1]["outcome"]["calls"].as_array().unwrap();
    assert_eq!((&calls[0]["action"], &calls[0]["result"]), (&json!("migrate_to_gpu"), &json!("done")));
    assert_eq!(calls[0]["range"]["begin"], "0x7f2a40000000");
    assert_eq!((&told[2]["pid"], &told[2]["decision"]["stage_reason"]), (&json!(20), &json!("worse")));
    assert_eq!(told[3]["switched"], json!({ "active": false, "actor": "me" }));
    let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    // Nothing comes any more, but what was missed does.
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
async fn addresses_are_for_readers_of_the_stream_too() {
    let events = Events::default();
    let text = read(&daemon(&events), None, None, &events).await;
    assert_eq!(data(&text).len(), 4);
    assert!(!text.contains("0x7f2a"), "{text}");
}

#[tokio::test]
async fn what_policies_did_is_summed_up_in_the_metrics() {
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
}

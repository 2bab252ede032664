//! Overrides and the switch, and who may change them.

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    http::{Method, Request, StatusCode},
};
use serde_json::{Value, json};
use web::{Access, Controls, Grant, Node, Peer, Sources, Token};

use crate::{
    fakes::Memory,
    support::{Answer, LOOPBACK, always, assert_problem, busy, get, get_as_reader, metrics, node, router_of, send},
};

const WRITER: Peer = Peer::Local { uid: 7, pid: None, grant: Some(Grant::Write) };
const TOKENS: [(Grant, &str); 2] = [(Grant::Read, "0123456789abcdef"), (Grant::Write, "fedcba9876543210")];

fn daemon(access: Access) -> Router {
    keeping(Memory::new(), access)
}

fn keeping(memory: Memory, access: Access) -> Router {
    router_of(Node { access, ..node() }, Sources { controls: Controls::new(memory), ..always(busy()).into() })
}

fn with_tokens() -> Router {
    daemon(Access::by_tokens(TOKENS.map(|(grant, text)| (grant, Token::parse(text.as_bytes()).unwrap()))))
}

fn router() -> Router {
    daemon(Access::default())
}

/// A change, with these headers beside those that it must have.
async fn change(
    router: &Router,
    method: Method,
    path: &str,
    peer: Peer,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("Host", LOOPBACK).extension(peer);
    if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "Content-Type") {
        request = request.header("Content-Type", "application/json");
    }
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    send(router, request.body(Body::from(body.to_owned())).unwrap()).await
}

async fn put(router: &Router, id: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    change(router, Method::PUT, &format!("/api/v1/overrides/{id}"), WRITER, headers, &body.to_string()).await
}

async fn post(router: &Router, body: &Value) -> Answer {
    change(router, Method::POST, "/api/v1/overrides", WRITER, &[], &body.to_string()).await
}

async fn ids(router: &Router) -> Vec<String> {
    let answer = get(router, "/api/v1/overrides").await.json();
    let overrides = answer["overrides"].as_array().unwrap().iter();
    overrides.map(|each| each["override"]["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_override_is_added_read_replaced_and_taken_away() {
    let router = router();
    let answer = put(&router, "mine", &[], &json!({ "match": { "pid": 7 }, "mode": "act" })).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    assert_eq!(answer.header("location"), "/api/v1/overrides/mine");
    let read = get(&router, "/api/v1/overrides/mine").await;
    assert_eq!((read.json(), read.header("etag")), (answer.json(), answer.header("etag")));
    assert_eq!(read.json()["override"]["policy"], "auto-live");
    let answer = put(&router, "mine", &[], &json!({ "mode": "observe", "budget": { "bytes": "2 GiB" } })).await;
    assert_eq!((answer.status, &answer.json()["override"]["budget"]["bytes"]), (StatusCode::OK, &json!(2u64 << 30)));
    let gone = change(&router, Method::DELETE, "/api/v1/overrides/mine", WRITER, &[], "").await;
    assert_eq!((gone.status, gone.text.as_str()), (StatusCode::NO_CONTENT, ""));
    assert_problem(&get(&router, "/api/v1/overrides/mine").await, StatusCode::NOT_FOUND, "no override mine");
    let gone = change(&router, Method::DELETE, "/api/v1/overrides/mine", WRITER, &[], "").await;
    assert_problem(&gone, StatusCode::NOT_FOUND, "no override of this name");
}

#[tokio::test]
async fn the_same_once_more_changes_nothing() {
    let router = router();
    let body = json!({ "id": "mine", "mode": "act" });
    assert_eq!(post(&router, &body).await.status, StatusCode::CREATED);
    assert_eq!(post(&router, &body).await.status, StatusCode::OK);
    assert_problem(
        &post(&router, &json!({ "id": "mine", "mode": "shadow" })).await,
        StatusCode::CONFLICT,
        "has this id",
    );
    let nameless = json!({ "mode": "act", "match": { "uid": 3 } });
    let first = post(&router, &nameless).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let again = post(&router, &nameless).await;
    assert_eq!((again.status, again.json()), (StatusCode::OK, first.json()));
    // Which process it is for is known only once it is there.
    let body = json!({ "mode": "act", "match": { "pid": 20 } });
    assert_eq!(post(&router, &body).await.status, StatusCode::CREATED);
    let again = post(&router, &body).await;
    assert_eq!((again.status, &again.json()["override"]["match"]["start_ticks"]), (StatusCode::OK, &json!(120)));
    assert_eq!(ids(&router).await.len(), 5);
}

#[tokio::test]
async fn nothing_is_changed_that_somebody_else_changed_meanwhile() {
    let router = router();
    let read = get_as_reader(&router, "/api/v1/overrides/llm").await;
    let tag = read.header("etag").to_owned();
    let body = json!({ "mode": "act" });
    for (headers, status) in [
        ([("If-None-Match", "*")], StatusCode::PRECONDITION_FAILED),
        ([("If-None-Match", tag.as_str())], StatusCode::PRECONDITION_FAILED),
        ([("If-Match", "\"other\"")], StatusCode::PRECONDITION_FAILED),
        ([("If-Match", &format!("\"other\", {tag}"))], StatusCode::OK),
        // It is another one now.
        ([("If-Match", &tag)], StatusCode::PRECONDITION_FAILED),
        ([("If-Match", "*")], StatusCode::OK),
    ] {
        assert_eq!(put(&router, "llm", &headers, &body).await.status, status, "{headers:?}");
    }
    assert_eq!(put(&router, "new", &[("If-Match", "*")], &body).await.status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(put(&router, "new", &[("If-None-Match", "*")], &body).await.status, StatusCode::CREATED);
    let path = "/api/v1/overrides/new";
    let kept = change(&router, Method::DELETE, path, WRITER, &[("If-Match", "\"other\"")], "").await;
    assert_problem(&kept, StatusCode::PRECONDITION_FAILED, "If-Match");
}

#[tokio::test]
async fn who_has_it_already_is_not_sent_it_again() {
    let router = router();
    let tag = get(&router, "/api/v1/overrides/llm").await.header("etag").to_owned();
    for (tag, status) in [(tag.as_str(), StatusCode::NOT_MODIFIED), ("\"other\"", StatusCode::OK)] {
        let request = Request::get("/api/v1/overrides/llm").header("Host", LOOPBACK).header("If-None-Match", tag);
        assert_eq!(send(&router, request.body(Body::empty()).unwrap()).await.status, status);
    }
}

#[tokio::test]
async fn a_mistake_is_named_by_its_field() {
    let router = router();
    for (body, pointer, about) in [
        (json!({ "mode": "on" }), "#/mode", "expected \"observe\""),
        (json!({}), "#", "missing field `mode`"),
        (json!({ "mode": "act", "match": { "pot": 1 } }), "#/match/pot", "unknown field"),
        (json!({ "mode": "act", "match": { "pid": "x" } }), "#/match/pid", "invalid type"),
        (json!({ "mode": "act", "match": { "pid": 404 } }), "#/match/pid", "there is no process 404"),
        (
            json!({ "mode": "act", "match": { "range": { "begin": "0x2", "end": "0x1" } } }),
            "#/match/range/end",
            "behind",
        ),
        (json!({ "mode": "act", "budget": { "bytes": "much" } }), "#/budget/bytes", "expected a number of bytes"),
        (json!({ "mode": "act", "id": "other" }), "#/id", "as in the path"),
        (json!({ "mode": "act", "expires_at": "2h" }), "#/expires_at", "no time in UTC"),
        (json!({ "mode": "act", "parameters": { "rest": "remot" } }), "#/parameters/rest", "not \"remot\""),
        (json!({ "mode": "act", "policy": "tenants", "parameters": { "x": "" } }), "#/parameters/x", "no parameters"),
        (json!({ "mode": "act", "parameters": { "a/b": "" } }), "#/parameters", "not \"a/b\""),
    ] {
        let answer = put(&router, "mine", &[], &body).await;
        assert_problem(&answer, StatusCode::UNPROCESSABLE_ENTITY, about);
        assert_eq!(answer.json()["errors"][0]["pointer"], pointer, "{body}");
    }
    assert_eq!(put(&router, "no%20name", &[], &json!({ "mode": "act" })).await.json()["errors"][0]["pointer"], "#/id");
    assert_eq!(ids(&router).await, ["llm", "of-file"]);
}

#[tokio::test]
async fn a_body_must_be_json_that_is_said_to_be_and_not_too_long() {
    let router = router();
    let put = async |headers: &[(&str, &str)], body: &str| {
        change(&router, Method::PUT, "/api/v1/overrides/mine", WRITER, headers, body).await
    };
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json-patch+json", ""] {
        let answer = put(&[("Content-Type", kind)], "{\"mode\":\"act\"}").await;
        assert_problem(&answer, StatusCode::UNSUPPORTED_MEDIA_TYPE, "application/json");
    }
    let answer = put(&[("Content-Type", "Application/JSON; charset=utf-8")], "{\"mode\":\"act\"}").await;
    assert_eq!(answer.status, StatusCode::CREATED);
    for body in ["{", "", "{\"mode\":\"act\"} x", "\u{0}"] {
        let answer = put(&[("Content-Type", "application/json")], body).await;
        assert_problem(&answer, StatusCode::BAD_REQUEST, "no JSON");
    }
    let long = format!("{{\"mode\":\"{}\"}}", "x".repeat(64 << 10));
    assert_problem(&put(&[], &long).await, StatusCode::PAYLOAD_TOO_LARGE, "65536");
}

#[tokio::test]
async fn what_is_in_the_file_is_changed_there() {
    let router = router();
    let answer = put(&router, "of-file", &[], &json!({ "mode": "act" })).await;
    assert_problem(&answer, StatusCode::CONFLICT, "/etc/uvmd/overrides.toml");
    let answer = change(&router, Method::DELETE, "/api/v1/overrides/of-file", WRITER, &[], "").await;
    assert_problem(&answer, StatusCode::CONFLICT, "/etc/uvmd/overrides.toml");
}

#[tokio::test]
async fn acting_is_switched_off_and_on_and_it_is_told_by_whom() {
    let router = router();
    assert_eq!(get(&router, "/api/v1/policy").await.json()["active"], true);
    let off = change(&router, Method::POST, "/api/v1/policy/off", WRITER, &[], "").await;
    assert_eq!((off.status, &off.json()["disabled_by"][0]["actor"]), (StatusCode::OK, &json!("uid 7 on the socket")));
    assert_eq!(get(&router, "/api/v1/policy").await.json()["active"], false);
    let metrics = metrics(&router).await;
    assert!(metrics.contains("\nuvmd_policy_active 0\n") && metrics.contains("\nuvmd_policy_persist_pending 0\n"));
    let on = change(&router, Method::POST, "/api/v1/policy/on", WRITER, &[], "").await;
    assert_eq!((on.status, &on.json()["active"]), (StatusCode::OK, &json!(true)));
    let answer = change(&router, Method::POST, "/api/v1/policy/off", WRITER, &[], "{}").await;
    assert_problem(&answer, StatusCode::BAD_REQUEST, "no body");
}

#[tokio::test(start_paused = true)]
async fn while_a_disk_is_stuck_acting_is_switched_off_all_the_same_and_everything_is_told() {
    let memory = Memory::new();
    let router = keeping(memory.clone(), Access::default());
    let disk = memory.disk.lock().await;
    let mode = json!({ "mode": "act" });
    let asked = |id: &'static str| {
        let (router, mode) = (router.clone(), mode.clone());
        tokio::spawn(async move { put(&router, id, &[], &mode).await })
    };
    let (first, second) = (asked("first"), asked("second"));
    let off = {
        let router = router.clone();
        tokio::spawn(async move { change(&router, Method::POST, "/api/v1/policy/off", WRITER, &[], "").await })
    };
    while get(&router, "/api/v1/policy").await.json()["active"] != false {
        tokio::task::yield_now().await;
    }
    let metrics = metrics(&router).await;
    assert!(metrics.contains("\nuvmd_policy_active 0\n") && metrics.contains("\nuvmd_policy_persist_pending 1\n"));
    assert_eq!(ids(&router).await, ["llm", "of-file"]);
    // More than anybody waits for a disk.
    tokio::time::advance(Duration::from_secs(3)).await;
    let off = off.await.unwrap();
    assert_eq!((off.status, &off.json()["active"]), (StatusCode::OK, &json!(false)));
    assert_problem(&first.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE, "the change is made once that is done");
    assert_problem(&second.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE, "this one is not made");
    drop(disk);
    while ids(&router).await != ["llm", "of-file", "first"] {
        tokio::task::yield_now().await;
    }
}

/// Every change there is.
const CHANGES: [(Method, &str, &str); 5] = [
    (Method::POST, "/api/v1/overrides", "{\"id\":\"x\",\"mode\":\"act\"}"),
    (Method::PUT, "/api/v1/overrides/x", "{\"mode\":\"act\"}"),
    (Method::DELETE, "/api/v1/overrides/llm", ""),
    (Method::POST, "/api/v1/policy/off", ""),
    (Method::POST, "/api/v1/policy/on", ""),
];

#[tokio::test]
async fn changes_require_write_permission() {
    let [read, write] = TOKENS.map(|(_, token)| format!("Bearer {token}"));
    let reader = Peer::Local { uid: 7, pid: None, grant: Some(Grant::Read) };
    let other = Peer::Local { uid: 7, pid: None, grant: None };
    for (method, path, body) in CHANGES {
        let router = with_tokens();
        for peer in [Peer::Unknown, other, reader] {
            let answer = change(&router, method.clone(), path, peer, &[], body).await;
            assert_problem(&answer, StatusCode::UNAUTHORIZED, "auth.write_token_file");
            assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"uvmd\"");
            let answer = change(&self::router(), method.clone(), path, peer, &[], body).await;
            assert_problem(&answer, StatusCode::FORBIDDEN, "socket.write_group");
        }
        let answer = change(&router, method.clone(), path, Peer::Unknown, &[("Authorization", &read)], body).await;
        assert_problem(&answer, StatusCode::FORBIDDEN, "grants read permission only");
        assert!(answer.header("www-authenticate").contains("insufficient_scope"));
        let answer = change(&router, method, path, Peer::Unknown, &[("Authorization", &write)], body).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text);
    }
    let answer = get_as_reader(&with_tokens(), "/api/v1/status").await.json();
    assert_eq!((&answer["can_read"], &answer["can_write"]), (&json!(true), &json!(false)));
}

#[tokio::test]
async fn no_page_of_another_site_changes_anything() {
    let foreign: [&[(&str, &str)]; 6] = [
        &[("Origin", "https://evil.example")],
        &[("Origin", "null")],
        &[("Origin", "http://127.0.0.1:8080")],
        &[("Origin", "http://127.0.0.1:9477"), ("Origin", "https://evil.example")],
        &[("Sec-Fetch-Site", "cross-site")],
        &[("Origin", "http://127.0.0.1:9477"), ("Sec-Fetch-Site", "same-site")],
    ];
    for (method, path, body) in CHANGES {
        let router = router();
        for headers in foreign {
            let answer = change(&router, method.clone(), path, WRITER, headers, body).await;
            assert_problem(&answer, StatusCode::FORBIDDEN, "another site");
        }
        let own = [("Origin", "http://127.0.0.1:9477"), ("Sec-Fetch-Site", "same-origin")];
        assert!(change(&router, method, path, WRITER, &own, body).await.status.is_success(), "{path}");
    }
}

#[tokio::test]
async fn which_override_applies_and_why_is_one_answer_and_its_range_is_for_readers() {
    let router = router();
    let path = "/api/v1/processes/20/override";
    let answer = get(&router, path).await.json();
    assert_eq!((&answer["override_id"], &answer["range"]), (&json!("llm"), &Value::Null));
    assert_eq!(answer["candidates"][0]["selected"], true);
    assert_eq!(get_as_reader(&router, path).await.json()["range"]["end"], "0x200000");
    assert_eq!(get(&router, "/api/v1/processes/999/override").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn where_in_memory_an_override_means_is_for_readers() {
    let router = router();
    for (path, at) in [("/api/v1/overrides", "/overrides/0/override"), ("/api/v1/overrides/llm", "/override")] {
        let range = |answer: &Answer| answer.json().pointer(&format!("{at}/match/range")).cloned().unwrap();
        let (anyone, reader) = (get(&router, path).await, get_as_reader(&router, path).await);
        assert_eq!((range(&anyone), &range(&reader)["end"]), (Value::Null, &json!("0x200000")), "{path}");
    }
    // Nor does its tag tell: it is of what was shown.
    let path = "/api/v1/overrides/llm";
    assert_ne!(get(&router, path).await.header("etag"), get_as_reader(&router, path).await.header("etag"));
}

#[tokio::test]
async fn a_file_that_is_not_in_order_is_told_of() {
    let router = router();
    assert_eq!(get(&router, "/api/v1/status").await.json()["reasons"][0], json!("line 3"));
    assert!(metrics(&router).await.contains("\nuvmd_overrides_last_reload_successful 0\n"));
}

#[tokio::test]
async fn what_is_wrong_with_the_journal_of_advice_is_told_by_the_status_and_as_metrics() {
    let router = router();
    let reasons = &get(&router, "/api/v1/status").await.json()["reasons"];
    assert_eq!(reasons[1], json!("the journal has 2 lines that nobody understands"));
    let metrics = metrics(&router).await;
    for line in ["writable 1", "unrecognised_bytes 120", "dropped_lines_total 3"] {
        assert!(metrics.contains(&format!("\nuvmd_advice_journal_{line}\n")), "{line}");
    }
    let without = get(&router_of(node(), always(busy())), "/metrics").await.text;
    assert!(!without.contains("uvmd_advice_journal"), "what is not there has no figures");
}

#[tokio::test]
async fn an_array_is_no_object_of_its_values() {
    let router = router();
    for body in [json!([]), json!({ "mode": "act", "match": [20] }), json!({ "mode": "act", "budget": [1, 2] })] {
        assert_problem(&post(&router, &body).await, StatusCode::UNPROCESSABLE_ENTITY, "expected an object");
    }
}

//! Overrides and the switch, and write permission.

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    http::{Method, Request, StatusCode},
};
use serde_json::{Value, json};
use web::{Access, Controls, Grant, Node, Peer, Sources, Token};

use crate::{
    fakes::Store,
    support::{LOOPBACK, Response, always, assert_problem, busy, get, get_as_reader, metrics, node, router_of, send},
};

const WRITER: Peer = Peer::Local { uid: 7, pid: None, grant: Some(Grant::Write) };
const TOKENS: [(Grant, &str); 2] = [(Grant::Read, "0123456789abcdef"), (Grant::Write, "fedcba9876543210")];

fn daemon(access: Access) -> Router {
    with_store(Store::new(), access)
}

fn with_store(store: Store, access: Access) -> Router {
    router_of(Node { access, ..node() }, Sources { controls: Controls::new(store), ..always(busy()).into() })
}

fn with_tokens() -> Router {
    daemon(Access::by_tokens(TOKENS.map(|(grant, text)| (grant, Token::parse(text.as_bytes()).unwrap()))))
}

fn router() -> Router {
    daemon(Access::default())
}

/// Sends a change, with these headers besides the required ones.
async fn change(
    router: &Router,
    method: Method,
    path: &str,
    peer: Peer,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let mut request = Request::builder().method(method).uri(path).header("Host", LOOPBACK).extension(peer);
    if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "Content-Type") {
        request = request.header("Content-Type", "application/json");
    }
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    send(router, request.body(Body::from(body.to_owned())).unwrap()).await
}

async fn put(router: &Router, id: &str, headers: &[(&str, &str)], body: &Value) -> Response {
    change(router, Method::PUT, &format!("/api/v1/overrides/{id}"), WRITER, headers, &body.to_string()).await
}

async fn post(router: &Router, body: &Value) -> Response {
    change(router, Method::POST, "/api/v1/overrides", WRITER, &[], &body.to_string()).await
}

async fn ids(router: &Router) -> Vec<String> {
    let response = get(router, "/api/v1/overrides").await.json();
    let overrides = response["overrides"].as_array().unwrap().iter();
    overrides.map(|each| each["override"]["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_change_reports_the_processes_that_match_now() {
    let router = router();
    let body = |selector: Value| json!({ "mode": "shadow", "match": selector });
    let all = put(&router, "all", &[], &body(json!({}))).await.json();
    let one = put(&router, "one", &[], &body(json!({ "pid": 20 }))).await.json();
    let added = post(&router, &body(json!({ "pid": 20 }))).await.json();
    assert!(all["matching_processes"].as_u64().unwrap() > 1, "{all}");
    assert_eq!((&one["matching_processes"], &added["matching_processes"]), (&json!(1), &json!(1)));
    let later = get(&router, "/api/v1/overrides/one").await.json();
    assert_eq!(later["matching_processes"], Value::Null);
}

#[tokio::test]
async fn an_override_is_added_read_replaced_and_deleted() {
    let router = router();
    let response = put(&router, "mine", &[], &json!({ "match": { "pid": 7 }, "mode": "act" })).await;
    assert_eq!(response.status, StatusCode::CREATED, "{}", response.text);
    assert_eq!(response.header("location"), "/api/v1/overrides/mine");
    let read = get(&router, "/api/v1/overrides/mine").await;
    let mut put_json = response.json();
    put_json["matching_processes"] = Value::Null;
    assert_eq!((read.json(), read.header("etag")), (put_json, response.header("etag")));
    assert_eq!(read.json()["override"]["policy"], "auto-live");
    let response = put(&router, "mine", &[], &json!({ "mode": "observe", "budget": { "bytes": "2 GiB" } })).await;
    assert_eq!(
        (response.status, &response.json()["override"]["budget"]["bytes"]),
        (StatusCode::OK, &json!(2u64 << 30))
    );
    let deleted = change(&router, Method::DELETE, "/api/v1/overrides/mine", WRITER, &[], "").await;
    assert_eq!((deleted.status, deleted.text.as_str()), (StatusCode::NO_CONTENT, ""));
    assert_problem(&get(&router, "/api/v1/overrides/mine").await, StatusCode::NOT_FOUND, "no override mine");
    let deleted = change(&router, Method::DELETE, "/api/v1/overrides/mine", WRITER, &[], "").await;
    assert_problem(&deleted, StatusCode::NOT_FOUND, "no override of this name");
}

#[tokio::test]
async fn a_repeated_request_changes_nothing() {
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
    // The override gets the start time of its process when it is added.
    let body = json!({ "mode": "act", "match": { "pid": 20 } });
    assert_eq!(post(&router, &body).await.status, StatusCode::CREATED);
    let again = post(&router, &body).await;
    assert_eq!((again.status, &again.json()["override"]["match"]["start_ticks"]), (StatusCode::OK, &json!(120)));
    assert_eq!(ids(&router).await.len(), 5);
}

#[tokio::test]
async fn a_change_fails_if_the_override_was_changed_meanwhile() {
    let router = router();
    let read = get_as_reader(&router, "/api/v1/overrides/llm").await;
    let tag = read.header("etag").to_owned();
    let body = json!({ "mode": "act" });
    for (headers, status) in [
        ([("If-None-Match", "*")], StatusCode::PRECONDITION_FAILED),
        ([("If-None-Match", tag.as_str())], StatusCode::PRECONDITION_FAILED),
        ([("If-Match", "\"other\"")], StatusCode::PRECONDITION_FAILED),
        ([("If-Match", &format!("\"other\", {tag}"))], StatusCode::OK),
        // The entity tag has changed.
        ([("If-Match", &tag)], StatusCode::PRECONDITION_FAILED),
        ([("If-Match", "*")], StatusCode::OK),
    ] {
        assert_eq!(put(&router, "llm", &headers, &body).await.status, status, "{headers:?}");
    }
    assert_eq!(put(&router, "new", &[("If-Match", "*")], &body).await.status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(put(&router, "new", &[("If-None-Match", "*")], &body).await.status, StatusCode::CREATED);
    let path = "/api/v1/overrides/new";
    let response = change(&router, Method::DELETE, path, WRITER, &[("If-Match", "\"other\"")], "").await;
    assert_problem(&response, StatusCode::PRECONDITION_FAILED, "If-Match");
}

#[tokio::test]
async fn a_matching_entity_tag_is_not_modified() {
    let router = router();
    let tag = get(&router, "/api/v1/overrides/llm").await.header("etag").to_owned();
    for (tag, status) in [(tag.as_str(), StatusCode::NOT_MODIFIED), ("\"other\"", StatusCode::OK)] {
        let request = Request::get("/api/v1/overrides/llm").header("Host", LOOPBACK).header("If-None-Match", tag);
        assert_eq!(send(&router, request.body(Body::empty()).unwrap()).await.status, status);
    }
}

#[tokio::test]
async fn an_invalid_field_is_named() {
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
        let response = put(&router, "mine", &[], &body).await;
        assert_problem(&response, StatusCode::UNPROCESSABLE_ENTITY, about);
        assert_eq!(response.json()["errors"][0]["pointer"], pointer, "{body}");
    }
    assert_eq!(put(&router, "no%20name", &[], &json!({ "mode": "act" })).await.json()["errors"][0]["pointer"], "#/id");
    assert_eq!(ids(&router).await, ["llm", "of-file"]);
}

#[tokio::test]
async fn a_body_must_be_declared_as_json_and_not_too_long() {
    let router = router();
    let put = async |headers: &[(&str, &str)], body: &str| {
        change(&router, Method::PUT, "/api/v1/overrides/mine", WRITER, headers, body).await
    };
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json-patch+json", ""] {
        let response = put(&[("Content-Type", kind)], "{\"mode\":\"act\"}").await;
        assert_problem(&response, StatusCode::UNSUPPORTED_MEDIA_TYPE, "application/json");
    }
    let response = put(&[("Content-Type", "Application/JSON; charset=utf-8")], "{\"mode\":\"act\"}").await;
    assert_eq!(response.status, StatusCode::CREATED);
    for body in ["{", "", "{\"mode\":\"act\"} x", "\u{0}"] {
        let response = put(&[("Content-Type", "application/json")], body).await;
        assert_problem(&response, StatusCode::BAD_REQUEST, "not JSON");
    }
    let long = format!("{{\"mode\":\"{}\"}}", "x".repeat(64 << 10));
    assert_problem(&put(&[], &long).await, StatusCode::PAYLOAD_TOO_LARGE, "65536");
}

#[tokio::test]
async fn an_override_of_the_file_is_not_changed() {
    let router = router();
    let response = put(&router, "of-file", &[], &json!({ "mode": "act" })).await;
    assert_problem(&response, StatusCode::CONFLICT, "/etc/uvmd/overrides.toml");
    let response = change(&router, Method::DELETE, "/api/v1/overrides/of-file", WRITER, &[], "").await;
    assert_problem(&response, StatusCode::CONFLICT, "/etc/uvmd/overrides.toml");
}

#[tokio::test]
async fn acting_is_switched_off_and_on_and_the_actor_is_reported() {
    let router = router();
    assert_eq!(get(&router, "/api/v1/policy").await.json()["active"], true);
    let off = change(&router, Method::POST, "/api/v1/policy/off", WRITER, &[], "").await;
    assert_eq!((off.status, &off.json()["disabled_by"][0]["actor"]), (StatusCode::OK, &json!("uid 7 on the socket")));
    assert_eq!(get(&router, "/api/v1/policy").await.json()["active"], false);
    let metrics = metrics(&router).await;
    assert!(metrics.contains("\nuvmd_policy_active 0\n") && metrics.contains("\nuvmd_policy_persist_pending 0\n"));
    let on = change(&router, Method::POST, "/api/v1/policy/on", WRITER, &[], "").await;
    assert_eq!((on.status, &on.json()["active"]), (StatusCode::OK, &json!(true)));
    let response = change(&router, Method::POST, "/api/v1/policy/off", WRITER, &[], "{}").await;
    assert_problem(&response, StatusCode::BAD_REQUEST, "must be empty");
}

#[tokio::test(start_paused = true)]
async fn while_the_disk_stalls_acting_is_switched_off_and_the_state_is_reported() {
    let store = Store::new();
    let router = with_store(store.clone(), Access::default());
    let disk = store.disk.lock().await;
    let mode = json!({ "mode": "act" });
    let request = |id: &'static str| {
        let (router, mode) = (router.clone(), mode.clone());
        tokio::spawn(async move { put(&router, id, &[], &mode).await })
    };
    let (first, second) = (request("first"), request("second"));
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
    // Beyond the time limit for the disk.
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

/// All changes of the API.
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
            let response = change(&router, method.clone(), path, peer, &[], body).await;
            assert_problem(&response, StatusCode::UNAUTHORIZED, "auth.write_token_file");
            assert_eq!(response.header("www-authenticate"), "Bearer realm=\"uvmd\"");
            let response = change(&self::router(), method.clone(), path, peer, &[], body).await;
            assert_problem(&response, StatusCode::FORBIDDEN, "socket.write_group");
        }
        let response = change(&router, method.clone(), path, Peer::Unknown, &[("Authorization", &read)], body).await;
        assert_problem(&response, StatusCode::FORBIDDEN, "grants read permission only");
        assert!(response.header("www-authenticate").contains("insufficient_scope"));
        let response = change(&router, method, path, Peer::Unknown, &[("Authorization", &write)], body).await;
        assert!(response.status.is_success(), "{path}: {}", response.text);
    }
    let response = get_as_reader(&with_tokens(), "/api/v1/status").await.json();
    assert_eq!((&response["can_read"], &response["can_write"]), (&json!(true), &json!(false)));
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
            let response = change(&router, method.clone(), path, WRITER, headers, body).await;
            assert_problem(&response, StatusCode::FORBIDDEN, "another site");
        }
        let own = [("Origin", "http://127.0.0.1:9477"), ("Sec-Fetch-Site", "same-origin")];
        assert!(change(&router, method, path, WRITER, &own, body).await.status.is_success(), "{path}");
    }
}

#[tokio::test]
async fn the_policy_in_effect_has_its_reason_and_its_range_requires_read_permission() {
    let router = router();
    let path = "/api/v1/processes/20/override";
    let response = get(&router, path).await.json();
    assert_eq!((&response["override_id"], &response["range"]), (&json!("llm"), &Value::Null));
    assert_eq!(response["candidates"][0]["selected"], true);
    assert_eq!(get_as_reader(&router, path).await.json()["range"]["end"], "0x200000");
    assert_eq!(get(&router, "/api/v1/processes/999/override").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_range_of_an_override_requires_read_permission() {
    let router = router();
    for (path, at) in [("/api/v1/overrides", "/overrides/0/override"), ("/api/v1/overrides/llm", "/override")] {
        let range = |response: &Response| response.json().pointer(&format!("{at}/match/range")).cloned().unwrap();
        let (anyone, reader) = (get(&router, path).await, get_as_reader(&router, path).await);
        assert_eq!((range(&anyone), &range(&reader)["end"]), (Value::Null, &json!("0x200000")), "{path}");
    }
    // The entity tag does not reveal the range: it is that of the response.
    let path = "/api/v1/overrides/llm";
    assert_ne!(get(&router, path).await.header("etag"), get_as_reader(&router, path).await.header("etag"));
}

#[tokio::test]
async fn an_invalid_file_of_overrides_is_reported() {
    let router = router();
    assert_eq!(get(&router, "/api/v1/status").await.json()["reasons"][0], json!("line 3"));
    assert!(metrics(&router).await.contains("\nuvmd_overrides_last_reload_successful 0\n"));
}

#[tokio::test]
async fn problems_of_the_advice_journal_are_in_status_and_metrics() {
    let router = router();
    let reasons = &get(&router, "/api/v1/status").await.json()["reasons"];
    assert_eq!(reasons[1], json!("the journal has 2 lines of a later version"));
    let metrics = metrics(&router).await;
    for line in ["writable 1", "unrecognised_bytes 120", "dropped_lines_total 3"] {
        assert!(metrics.contains(&format!("\nuvmd_advice_journal_{line}\n")), "{line}");
    }
    let without = get(&router_of(node(), always(busy())), "/metrics").await.text;
    assert!(!without.contains("uvmd_advice_journal"), "there is no journal");
}

#[tokio::test]
async fn an_array_is_not_accepted_as_an_object() {
    let router = router();
    for body in [json!([]), json!({ "mode": "act", "match": [20] }), json!({ "mode": "act", "budget": [1, 2] })] {
        assert_problem(&post(&router, &body).await, StatusCode::UNPROCESSABLE_ENTITY, "expected an object");
    }
}

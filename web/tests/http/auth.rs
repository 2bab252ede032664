//! Read permission, and how clients get it.

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use model::{
    Blocks, GpuKey, GpuUuid, Pattern, PatternKind, ProcessId, Verdict, VerdictKind, Verdicts,
    verdict::{Inputs, Involved},
};
use serde_json::Value;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use web::{Access, Credential, Denial, DenialSink, Grant, Node, Peer, Requester, Sources, Token, VerdictSource};

use crate::support::{Response, always, assert_problem, at, block, busy, get, metrics, node, router_of, send};

const TOKEN: &str = "0123456789abcdef";
const READER: Peer = Peer::Local { uid: 7, pid: None, grant: Some(Grant::Read) };
const OTHER: Peer = Peer::Local { uid: 7, pid: None, grant: None };
const SECRETS: [&str; 3] = ["python --key=secret", "0x7f2a40000000", "0x7f2a42000000"];

/// Router whose processes have command lines and addresses.
fn daemon(access: Access) -> Router {
    let mut snapshot = busy();
    let heavy = snapshot.processes.iter_mut().find(|process| process.name == "heavy").unwrap();
    heavy.command_line = Some(SECRETS[0].to_owned());
    heavy.blocks = Blocks { busiest: vec![block(0x7f2a_4000_0000, None)], known: 1, ..Blocks::default() };
    let verdict = Verdict {
        process: ProcessId { pid: 20, start_ticks: 120 },
        gpu: GpuKey::Known(GpuUuid([1; 16])),
        peer: None,
        kind: VerdictKind::CapacityThrash,
        started_at: at(10),
        confirmed_at: at(11),
        ended_at: None,
        ranges: vec![Involved {
            begin: 0x7f2a_4000_0000,
            end: 0x7f2a_4200_0000,
            pattern: Pattern { kind: PatternKind::Cyclic, ..Pattern::UNKNOWN },
            traffic_ratio: 1.0,
            refetch_ratio: 1.0,
        }],
        window: Duration::from_secs(1),
        inputs: Inputs::default(),
        total: Inputs::default(),
        checks: Vec::new(),
    };
    let verdicts = Arc::new(Verdicts { active: vec![verdict], ..Verdicts::default() });
    let source = VerdictSource::new(move || Arc::clone(&verdicts));
    router_of(Node { access, ..node() }, Sources { verdicts: source, ..always(snapshot).into() })
}

fn with_token() -> Router {
    daemon(Access::by_tokens([(Grant::Read, Token::parse(TOKEN.as_bytes()).unwrap())]))
}

async fn request(router: &Router, path: &str, peer: Peer, authorization: Option<&str>) -> Response {
    let request = Request::get(path).header("Host", "localhost").extension(peer);
    let request = authorization.iter().fold(request, |request, value| request.header("Authorization", *value));
    send(router, request.body(Body::empty()).unwrap()).await
}

const BEARER: &str = "Bearer 0123456789abcdef";
const OPEN: [&str; 12] = [
    "/",
    "/metrics",
    "/livez",
    "/readyz",
    "/api/v1/status",
    "/api/v1/processes",
    "/api/v1/processes/20",
    "/api/v1/processes/20/verdict",
    "/api/v1/verdicts",
    "/api/v1/evictions",
    "/api/v1/owners",
    "/api/v1/gpus",
];
const CLOSED: [&str; 3] = ["/api/v1/processes/20/ranges", "/api/v1/processes/20/sites", "/api/v1/processes/20/heatmap"];

#[tokio::test]
async fn without_read_permission_responses_lack_secrets() {
    for (router, peer) in
        [(daemon(Access::default()), Peer::Unknown), (daemon(Access::default()), OTHER), (with_token(), Peer::Unknown)]
    {
        for path in OPEN {
            let response = request(&router, path, peer, None).await;
            assert_eq!(response.status, StatusCode::OK, "{path}");
            assert!(SECRETS.iter().all(|secret| !response.text.contains(secret)), "{path}");
        }
        let detail = request(&router, "/api/v1/processes/20", peer, None).await.json();
        assert_eq!(
            (&detail["redacted"], &detail["command_line"], &detail["blocks"]),
            (&true.into(), &Value::Null, &Value::Array(Vec::new()))
        );
        assert_eq!((&detail["blocks_known"], &detail["fault_entries"]), (&1.into(), &310.into()));
        let verdict = &request(&router, "/api/v1/verdicts", peer, None).await.json()["active"][0];
        assert_eq!((&verdict["kind"], &verdict["ranges"]), (&"capacity_thrash".into(), &Value::Null));
        let of_one = request(&router, "/api/v1/processes/20/verdict", peer, None).await;
        assert!(of_one.json()["active"][0]["remedies"].is_object() && !of_one.text.contains("0x"), "{}", of_one.text);
        assert_eq!(request(&router, "/api/v1/status", peer, None).await.json()["can_read"], false);
    }
}

#[tokio::test]
async fn a_token_or_a_group_on_the_socket_grants_read_permission() {
    for (peer, authorization) in
        [(Peer::Unknown, Some(BEARER)), (OTHER, Some("bearer  0123456789abcdef")), (READER, None)]
    {
        let router = with_token();
        for path in OPEN.iter().chain(&CLOSED) {
            assert_eq!(request(&router, path, peer, authorization).await.status, StatusCode::OK, "{path}");
        }
        let detail = request(&router, "/api/v1/processes/20", peer, authorization).await.json();
        assert_eq!((&detail["redacted"], &detail["command_line"]), (&false.into(), &SECRETS[0].into()));
        assert_eq!(detail["blocks"][0]["address"], SECRETS[1]);
        let verdict = &request(&router, "/api/v1/verdicts", peer, authorization).await.json()["active"][0];
        assert_eq!(verdict["ranges"][0]["end"], SECRETS[2]);
        let of_one = &request(&router, "/api/v1/processes/20/verdict", peer, authorization).await.json()["active"][0];
        // The verdicts of one process have remedies, which name ranges.
        assert!(of_one["remedies"].to_string().contains("0x7f2a40000000"), "{of_one}");
        let mut without_remedies = of_one.clone();
        without_remedies["remedies"] = Value::Null;
        assert_eq!(&without_remedies, verdict);
        assert_eq!(request(&router, "/api/v1/status", peer, authorization).await.json()["can_read"], true);
    }
}

#[tokio::test]
async fn a_denied_request_is_challenged_if_a_token_is_configured() {
    for path in CLOSED {
        for peer in [Peer::Unknown, OTHER] {
            let response = request(&with_token(), path, peer, None).await;
            assert_problem(&response, StatusCode::UNAUTHORIZED, "Authorization: Bearer");
            assert_problem(&response, StatusCode::UNAUTHORIZED, "a member of socket.group");
            assert_eq!(response.header("www-authenticate"), "Bearer realm=\"uvmd\"");
            let response = request(&daemon(Access::default()), path, peer, None).await;
            assert_problem(&response, StatusCode::FORBIDDEN, "a member of socket.group");
            assert_problem(&response, StatusCode::FORBIDDEN, "auth.token_file");
            assert_eq!(response.header("www-authenticate"), "");
        }
    }
}

#[tokio::test]
async fn without_read_permission_unknown_processes_are_not_revealed() {
    let response = get(&with_token(), "/api/v1/processes/999/ranges").await;
    assert_eq!(response.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_wrong_token_is_rejected_on_every_path_and_counted() {
    let router = with_token();
    let wrong =
        ["Bearer", "Bearer ", "Bearer 0123456789abcdeX", "BEARER 0123456789abcdef0", "Bearer 0123456789abcdef, x"];
    for value in wrong {
        for path in OPEN.iter().chain(&CLOSED).chain(&["/nowhere"]) {
            for peer in [Peer::Unknown, READER] {
                let response = request(&router, path, peer, Some(value)).await;
                assert_problem(&response, StatusCode::UNAUTHORIZED, "is not uvmd's");
                assert_eq!(response.header("www-authenticate"), "Bearer realm=\"uvmd\", error=\"invalid_token\"");
            }
        }
    }
    let rejected = wrong.len() * (OPEN.len() + CLOSED.len() + 1) * 2;
    let metrics = metrics(&router).await;
    assert!(metrics.contains(&format!("\nuvmd_auth_failures_total {rejected}\n")), "{metrics}");
}

#[tokio::test]
async fn a_token_without_a_configured_one_is_wrong() {
    let response = request(&daemon(Access::default()), "/api/v1/status", Peer::Unknown, Some(BEARER)).await;
    assert_problem(&response, StatusCode::UNAUTHORIZED, "auth.token_file");
    let access = Access::by_tokens([(Grant::Read, Token::parse(TOKEN.as_bytes()).unwrap())]);
    let router = daemon(access.clone());
    access.change(Grant::Read, None);
    let response = request(&router, "/api/v1/status", Peer::Unknown, Some(BEARER)).await;
    assert_problem(&response, StatusCode::UNAUTHORIZED, "no token is valid now");
    assert_eq!(request(&router, CLOSED[0], Peer::Unknown, None).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(request(&router, CLOSED[0], READER, None).await.status, StatusCode::OK);
}

#[tokio::test]
async fn other_schemes_are_ignored() {
    let response = request(&with_token(), "/api/v1/status", Peer::Unknown, Some("Basic dXNlcjpwYXNz")).await;
    assert_eq!((response.status, &response.json()["can_read"]), (StatusCode::OK, &false.into()));
    assert_eq!(
        request(&with_token(), "/livez", Peer::Unknown, Some("Bearer0123456789abcdef")).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn a_token_in_the_query_is_ignored() {
    for query in ["token", "access_token"] {
        let response = get(&with_token(), &format!("{}?{query}={TOKEN}", CLOSED[0])).await;
        assert_eq!(response.status, StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test]
async fn every_denial_is_reported_with_its_requester_and_nothing_else() {
    let reported: Arc<Mutex<Vec<Denial>>> = Arc::default();
    let listener = Arc::clone(&reported);
    let denials = DenialSink::new(move |denial| listener.lock().unwrap().push(denial));
    let access = Access::by_tokens([(Grant::Read, Token::parse(TOKEN.as_bytes()).unwrap())]);
    let router = router_of(Node { access, denials, ..node() }, always(busy()));
    let remote = Peer::Remote("192.0.2.7:4242".parse().unwrap());
    request(&router, "/api/v1/status", remote, None).await;
    request(&router, CLOSED[0], remote, Some(BEARER)).await;
    request(&router, "/nowhere", remote, None).await;
    assert!(reported.lock().unwrap().is_empty());

    let long = format!("{}?secret=1", "/x".repeat(500));
    request(&router, &long, remote, Some("Bearer wrong")).await;
    request(&router, CLOSED[0], OTHER, None).await;
    let change = |headers: &[(&str, &str)]| {
        let request = Request::put("/api/v1/overrides/x").header("Host", "localhost").extension(remote);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.header("Content-Type", "application/json").body(Body::from("{\"mode\":\"act\"}")).unwrap()
    };
    send(&router, change(&[("Authorization", BEARER)])).await;
    send(&router, change(&[("Origin", "https://evil.example")])).await;
    let of = |peer, credential, method: &str, path: &str, status| Denial {
        requester: Requester { peer, credential },
        method: method.to_owned(),
        path: path.to_owned(),
        status,
    };
    let expected = [
        of(remote, Credential::WrongToken, "GET", &"/x".repeat(128), 401),
        of(OTHER, Credential::Socket, "GET", CLOSED[0], 401),
        of(remote, Credential::ReadToken, "PUT", "/api/v1/overrides/x", 403),
        of(remote, Credential::None, "PUT", "/api/v1/overrides/x", 403),
    ];
    assert_eq!(*reported.lock().unwrap(), expected);
}

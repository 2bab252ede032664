//! Filters of lists.

use axum::{Router, http::StatusCode};
use serde_json::Value;

use crate::{
    populated,
    support::{assert_problem, get},
};

const GPU: &str = "GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f";

async fn list(router: &Router, path: &str, list: &str) -> Vec<Value> {
    let response = get(router, path).await;
    assert_eq!(response.status, StatusCode::OK, "{path}: {}", response.text);
    response.json()[list].as_array().unwrap().clone()
}

async fn pids(router: &Router, query: &str) -> Vec<u64> {
    let path = format!("/api/v1/processes?order=id&{query}");
    list(router, &path, "processes").await.iter().map(|process| process["pid"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn processes_are_selected_by_id_owner_gpu_and_verdict() {
    let router = populated::router();
    let all = pids(&router, "").await;
    assert!(all.len() > 2, "{all:?}");
    for query in [
        "pid=20",
        "pod=7c1f",
        "pod=llm-0",
        "namespace=ml&pod=llm-0",
        "job=7",
        "container=c0ffee",
        "unit=x.scope",
        "owner=pod:7c1f",
        "verdict=capacity_thrash",
        "pod=7c1f&job=7&verdict=capacity_thrash&state=running",
    ] {
        assert_eq!(pids(&router, query).await, [20], "{query}");
    }
    for query in [
        "pid=4",
        "pod=7c1",
        "namespace=other",
        "namespace=other&pod=llm-0",
        "pod=llm",
        "job=8",
        "owner=job:7",
        "verdict=ping_pong",
        "pid=20&uid=4000000000",
        "gpu=7",
    ] {
        assert_eq!(pids(&router, query).await, [0; 0], "{query}");
    }
    let on_gpu = pids(&router, &format!("gpu={GPU}")).await;
    assert_eq!(on_gpu, pids(&router, "gpu=0").await, "by UUID and by index");
    assert_eq!(on_gpu, pids(&router, &format!("gpu={}", &GPU[..12])).await, "by the first group of its UUID");
    let processes = list(&router, "/api/v1/processes?order=id", "processes").await;
    let uses = |process: &&Value| process["gpus"].as_array().unwrap().iter().any(|gpu| gpu["uuid"] == GPU);
    let using: Vec<u64> = processes.iter().filter(uses).map(|process| process["pid"].as_u64().unwrap()).collect();
    assert!(!using.is_empty() && on_gpu == using, "{on_gpu:?}");
    let others = all.into_iter().filter(|pid| *pid != 20);
    assert_eq!(pids(&router, "owner=other").await, others.collect::<Vec<_>>());
}

#[tokio::test]
async fn verdicts_are_selected_by_process_kind_and_state() {
    let router = populated::router();
    for (query, active, ended) in [
        ("", 1, 1),
        ("pid=20&job=7&gpu=0", 1, 1),
        ("state=active", 1, 0),
        ("state=ended&verdict=capacity_thrash", 0, 1),
        ("verdict=streaming", 0, 0),
        ("pod=other", 0, 0),
    ] {
        let path = format!("/api/v1/verdicts?{query}");
        let found = (list(&router, &path, "active").await.len(), list(&router, &path, "ended").await.len());
        assert_eq!(found, (active, ended), "{query}");
    }
}

#[tokio::test]
async fn evictions_are_selected_by_the_process_on_either_side() {
    let router = populated::router();
    for (query, pairs) in [
        ("", 2),
        ("pid=20", 1),
        ("pid=20&role=victim", 1),
        ("pid=20&role=evictor", 0),
        ("pid=10&role=evictor", 1),
        ("job=7", 1),
        ("owner=other", 1),
        ("verdict=capacity_thrash", 1),
        ("gpu=0", 2),
        ("gpu=1", 0),
    ] {
        let path = format!("/api/v1/evictions?{query}");
        assert_eq!(list(&router, &path, "pairs").await.len(), pairs, "{query}");
    }
}

#[tokio::test]
async fn owners_are_selected_by_kind_gpu_and_verdict() {
    let router = populated::router();
    for (query, owners) in [
        ("", 1),
        ("pod=7c1f", 1),
        ("namespace=ml&pod=llm-0", 1),
        ("namespace=other", 0),
        ("owner=pod:7c1f&gpu=0", 1),
        ("verdict=capacity_thrash", 1),
        ("job=7c1f", 0),
        ("owner=other", 0),
        ("gpu=3", 0),
        ("verdict=ping_pong", 0),
    ] {
        assert_eq!(list(&router, &format!("/api/v1/owners?{query}"), "owners").await.len(), owners, "{query}");
    }
}

#[tokio::test]
async fn decisions_are_selected_by_process_gpu_and_stage() {
    let router = populated::router();
    for (query, decisions) in [("", 2), ("pid=20", 2), ("pid=21", 0), ("stage=confirmed", 1)] {
        let path = format!("/api/v1/decisions?{query}");
        assert_eq!(list(&router, &path, "decisions").await.len(), decisions, "{query}");
    }
    assert!(list(&router, &format!("/api/v1/decisions?gpu={GPU}"), "decisions").await.is_empty());
    let gpu = crate::fakes::GPU;
    assert_eq!(list(&router, &format!("/api/v1/decisions?gpu={gpu}"), "decisions").await.len(), 2);
}

#[tokio::test]
async fn an_invalid_parameter_is_a_problem_that_names_it() {
    let router = populated::router();
    for (path, named) in [
        ("processes?colour=red", "\"colour\""),
        ("processes?pid=0", "pid: "),
        ("processes?pid=%2B20", "pid: "),
        ("processes?pid=4294967296", "pid: "),
        ("processes?uid=root", "uid: "),
        ("processes?uid=1&uid=2", "uid: "),
        ("processes?pod=", "pod: "),
        ("processes?owner=node:7", "owner: "),
        ("processes?owner=pod:", "owner: "),
        ("processes?gpu=first", "gpu: "),
        ("processes?gpu=GPU-9a31770", "gpu: "),
        ("processes?verdict=thrash", "verdict: "),
        ("processes?state=idle", "state: "),
        ("processes?order=size", "order: "),
        ("processes?limit=0", "limit: "),
        ("processes?limit=1001", "limit: "),
        ("processes/summary?verdict=", "verdict: "),
        ("verdicts?state=running", "state: "),
        ("evictions?role=both", "role: "),
        ("owners?pid=20", "\"pid\""),
        ("decisions?process=20", "\"process\""),
        ("decisions?gpu=0", "gpu: "),
        ("decisions?stage=over", "stage: "),
        ("overrides?pid=20", "\"pid\""),
    ] {
        let response = get(&router, &format!("/api/v1/{path}")).await;
        assert_problem(&response, StatusCode::BAD_REQUEST, named);
        assert_eq!(response.json()["type"], "/problems/invalid-parameter", "{path}");
    }
}

//! Settings that change at run time.

use std::num::NonZeroUsize;

use axum::{
    body::Body,
    http::{Request, StatusCode},
};
use serde_json::json;
use web::{Hosts, Node, Service};

use crate::support::{LOOPBACK, always, busy, counting, get, metrics, node, router_of, send};

#[tokio::test]
async fn status_and_metrics_have_the_result_of_the_last_reload() {
    let node = node();
    let reloads = node.reloads.clone();
    let router = router_of(node, always(counting()));
    let configuration = async || get(&router, "/api/v1/status").await.json()["configuration"].clone();
    let metrics = async || metrics(&router).await;
    let first = configuration().await;
    assert_eq!((&first["last_reload_successful"], &first["restart_required"]), (&json!(true), &json!([])));
    assert!(metrics().await.contains("\nuvmd_config_last_reload_successful 1\n"));

    reloads.failed("uvmd.toml:3: log.filter: no".to_owned());
    let failed = configuration().await;
    assert_eq!(
        (&failed["last_reload_successful"], &failed["error"]),
        (&json!(false), &json!("uvmd.toml:3: log.filter: no"))
    );
    assert_eq!(failed["last_reload_success_at"], first["last_reload_success_at"]);
    assert!(metrics().await.contains("\nuvmd_config_last_reload_successful 0\n"));

    assert_eq!(failed["etag"], first["etag"]);

    reloads.succeeded(&json!({ "listen": "[::1]:9477" }), vec!["listen".to_owned()]);
    let last = configuration().await;
    assert_ne!(last["etag"], first["etag"]);
    assert_eq!((&last["error"], &last["restart_required"]), (&json!(null), &json!(["listen"])));
    let metrics = metrics().await;
    let name = "\nuvmd_config_last_reload_success_timestamp_seconds ";
    let (_, value) = metrics.split_once(name).unwrap();
    let seconds: f64 = value.lines().next().unwrap().parse().unwrap();
    assert!(seconds > 1.7e9, "{seconds}");
    // In quotes: 16 digits, of which the metric has 12.
    let hash = u64::from_str_radix(&last["etag"].as_str().unwrap()[1..13], 16).unwrap();
    assert!(metrics.contains(&format!("\nuvmd_config_hash {hash}\n")), "{hash}");
}

#[tokio::test]
async fn hosts_and_series_of_processes_follow_the_last_change() {
    let hosts = |name: &str| Hosts::Only(vec![name.to_owned()]);
    let service = Service::new(Node { hosts: hosts("old.example"), ..node() }, always(busy()));
    let router = service.on_tcp(LOOPBACK.parse().unwrap()).into_router();
    let status = async |host: &str| {
        let request = Request::get("/livez").header("Host", host).body(Body::empty()).unwrap();
        send(&router, request).await.status
    };
    let has_series = async || metrics(&router).await.contains("pid=\"20\"");
    assert_eq!(
        (status("old.example").await, status("new.example").await),
        (StatusCode::OK, StatusCode::MISDIRECTED_REQUEST)
    );
    assert!(!has_series().await);
    service.change(hosts("new.example"), NonZeroUsize::new(5));
    assert_eq!(
        (status("old.example").await, status("new.example").await),
        (StatusCode::MISDIRECTED_REQUEST, StatusCode::OK)
    );
    assert!(has_series().await);
}

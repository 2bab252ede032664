//! Warnings about the service itself.

use serde_json::json;
use web::Warning;

use crate::support::{always, counting, get, metrics, node, router_of};

#[tokio::test]
async fn a_warning_is_in_status_and_metrics_for_as_long_as_it_is_active() {
    let node = node();
    let warnings = node.warnings.clone();
    let router = router_of(node, always(counting()));
    let metric = |value: u8| format!("\nuvmd_warning_active{{warning=\"tcp_unavailable\"}} {value}\n");
    assert_eq!(get(&router, "/api/v1/status").await.json()["warnings"], json!([]));
    assert!(metrics(&router).await.contains(&metric(0)));
    warnings.raise(Warning::TcpUnavailable, "the port is taken".to_owned());
    let expected = json!([{ "name": "tcp_unavailable", "message": "the port is taken" }]);
    assert_eq!(get(&router, "/api/v1/status").await.json()["warnings"], expected);
    assert!(metrics(&router).await.contains(&metric(1)));
    warnings.clear(Warning::TcpUnavailable);
    assert_eq!(get(&router, "/api/v1/status").await.json()["warnings"], json!([]));
}

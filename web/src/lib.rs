//! The HTTP API, the metrics and the built-in page. Everything is read-only.
//!
//! * `GET /` -- a page that shows the node live, and its parts under `/page/`
//! * `GET /api/v1/status` -- the source, its probes, the GPUs, events dropped, and sums over everything
//! * `GET /api/v1/processes` -- what each process did; `?state=running` or `?state=ended` narrows it
//! * `GET /api/v1/processes/{pid}` -- one process, with the busiest blocks of its memory; `?blocks=N` of them, `?start_ticks=T` of those
//!   that had this pid
//! * `GET /metrics` -- Prometheus text format
//! * `GET /livez` -- 200 while the service answers at all
//! * `GET /readyz` -- 200 while it counts, else 503 with the reasons
//!
//! Anything else is a problem (RFC 9457, `application/problem+json`): 404 for a path, 405 for a method, 400 for a query
//! parameter that an endpoint does not have and for a missing or malformed `Host`, 421 for a `Host` that is not this service, 503 when the
//! collector does not answer.

mod api;
mod connections;
mod convert;
mod gpus;
mod guard;
mod health;
pub mod metrics;
mod page;
mod problem;
pub mod server;
mod source;

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{Arc, Mutex, atomic::AtomicU64},
};

use axum::{Router, extract::FromRef, middleware, routing::get};
use metrics::Listed;
pub use source::Snapshots;

/// What a reader is told about the service itself, and how.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// uvmd's version.
    pub version: &'static str,
    /// The node's name, a label of most metrics.
    pub hostname: String,
    /// How many processes may have series of their own in the metrics; `None` is the default, and what a database with many nodes can take.
    pub processes_in_metrics: Option<NonZeroUsize>,
    /// Lines of the service's own log that could not be written.
    pub log_lines_dropped: Arc<AtomicU64>,
}

/// What the handlers share.
#[derive(Clone)]
struct App {
    node: Arc<Node>,
    snapshots: Snapshots,
    listed: Arc<Mutex<Listed>>,
}

impl FromRef<App> for Arc<Mutex<Listed>> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.listed)
    }
}

impl FromRef<App> for Arc<Node> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.node)
    }
}

impl FromRef<App> for Snapshots {
    fn from_ref(app: &App) -> Self {
        app.snapshots.clone()
    }
}

/// All endpoints. `listen` is the address they are served on: on loopback, only requests addressed to this machine by a loopback
/// name are answered, so that no web site can reach the service through a visitor's browser (DNS rebinding).
pub fn router(node: Node, listen: SocketAddr, snapshots: Snapshots) -> Router {
    Router::new()
        .merge(page::routes())
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/processes", get(api::processes))
        .route("/api/v1/processes/{pid}", get(api::process))
        .route("/metrics", get(metrics::scrape))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(middleware::from_fn_with_state(guard::HostRule::for_listener(listen), guard::check_host))
        .layer(middleware::map_response(guard::set_headers))
        .with_state(App { node: Arc::new(node), snapshots, listed: Arc::default() })
}

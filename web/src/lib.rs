//! The HTTP API, the metrics and the built-in page. Everything is read-only.
//!
//! * `GET /` -- a page that shows the node live, and its parts under `/page/`
//! * `GET /api/v1/status` -- the source, its probes, the GPUs, events dropped, and sums over everything
//! * `GET /api/v1/processes` -- what each process did; `?state=running` or `?state=ended` narrows it
//! * `GET /api/v1/processes/{pid}` -- one process, with the busiest blocks of its memory; `?blocks=N` of them. Here and below,
//!   `?start_ticks=T` chooses among those that had this pid
//! * `GET /api/v1/processes/{pid}/ranges` -- its ranges of managed memory, and how each is used
//! * `GET /api/v1/processes/{pid}/heatmap` -- its memory in cells; `?cells=N` of each range, `?begin=0x..&end=0x..` of one part
//! * `GET /api/v1/processes/{pid}/history` -- what was counted lately; `?seconds=S` back, in `?samples=N`
//! * `GET /api/v1/processes/{pid}/verdict` -- what is wrong with it, and what was
//! * `GET /api/v1/verdicts` -- the same of all processes
//! * `GET /api/v1/evictions` -- who pushed whose memory out
//! * `GET /api/v1/owners` -- sums by pod, job, container and unit, which outlive processes
//! * `GET /api/v1/gpus` -- the GPUs with their memory
//! * `GET /api/v1/gpus/{uuid}/history` -- as of a process
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
pub use source::{Ask, Heat, Judged, Lately, Snapshots, Sources};

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
    sources: Sources,
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
        app.sources.snapshots.clone()
    }
}

impl FromRef<App> for Heat {
    fn from_ref(app: &App) -> Self {
        app.sources.heat.clone()
    }
}

impl FromRef<App> for Lately {
    fn from_ref(app: &App) -> Self {
        app.sources.lately.clone()
    }
}

impl FromRef<App> for Judged {
    fn from_ref(app: &App) -> Self {
        app.sources.judged.clone()
    }
}

/// All endpoints. `listen` is the address they are served on: on loopback, only requests addressed to this machine by a loopback
/// name are answered, so that no web site can reach the service through a visitor's browser (DNS rebinding).
pub fn router(node: Node, listen: SocketAddr, sources: impl Into<Sources>) -> Router {
    Router::new()
        .merge(page::routes())
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/processes", get(api::processes))
        .route("/api/v1/processes/{pid}", get(api::process))
        .route("/api/v1/processes/{pid}/ranges", get(api::ranges))
        .route("/api/v1/processes/{pid}/heatmap", get(api::heat_map))
        .route("/api/v1/processes/{pid}/history", get(api::of_process))
        .route("/api/v1/processes/{pid}/verdict", get(api::verdicts_of_process))
        .route("/api/v1/verdicts", get(api::verdicts))
        .route("/api/v1/evictions", get(api::evictions))
        .route("/api/v1/owners", get(api::owners))
        .route("/api/v1/gpus", get(api::gpus))
        .route("/api/v1/gpus/{uuid}/history", get(api::of_gpu))
        .route("/metrics", get(metrics::scrape))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(middleware::from_fn_with_state(guard::HostRule::for_listener(listen), guard::check_host))
        .layer(middleware::map_response(guard::set_headers))
        .with_state(App { node: Arc::new(node), sources: sources.into(), listed: Arc::default() })
}

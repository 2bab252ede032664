//! The HTTP API, the metrics and the built-in page. All that can be changed is what is wanted for which processes, and whether anything is done.
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
//! * `GET|POST /api/v1/overrides`, `GET|PUT|DELETE /api/v1/overrides/{id}` -- what is wanted for which processes
//! * `GET /api/v1/processes/{pid}/override` -- what is wanted for it, and why
//! * `GET /api/v1/policy`, `POST /api/v1/policy/off` and `/on` -- whether anything is done
//! * `GET /api/v1/decisions`, `GET /api/v1/decisions/{id}` -- what was decided, and how it went; `?process=PID`, `?stage=STAGE`, `?limit=N`
//! * `GET /api/v1/events` -- what happens, as a stream
//! * `GET /openapi.json` -- all of this, as OpenAPI 3.1
//! * `GET /metrics` -- Prometheus text format
//! * `GET /livez` -- 200 while the service answers at all
//! * `GET /readyz` -- 200 while it counts, else 503 with the reasons
//!
//! Command lines, and where in memory something happens, are for those with read authority: root and a group on the Unix socket, and whoever knows
//! a token ([`Access`]). To change something takes write authority: likewise, with a group and a token for it. No page of another site gets that far.
//!
//! Anything else is a problem (RFC 9457, `application/problem+json`): 401 and 403 for want of authority, 404 for a path, 405 for a method, 400 for a query
//! parameter that an endpoint does not have and for a missing or malformed `Host`, 412 to 422 for changes that are not asked for as they must be, 421 for a `Host` that is not this service, 503 when the
//! collector does not answer.

mod api;
mod authority;
mod body;
mod connections;
mod control;
mod convert;
mod events;
mod gpus;
mod guard;
mod health;
pub mod metrics;
mod openapi;
mod page;
mod problem;
pub mod server;
mod socket;
mod source;

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{Arc, Mutex, atomic::AtomicU64},
};

pub use authority::{Access, Grant, Peer, Token};
use axum::{
    Router,
    extract::{DefaultBodyLimit, FromRef},
    middleware,
};
pub use control::{Condition, Control, Controls, Decided, Put, Refused};
pub use convert::verdict_event;
pub use events::Events;
pub use guard::Hosts;
use metrics::Listed;
pub use socket::{Socket, SocketError, Trusted};
pub use source::{Ask, Heat, Judged, Lately, Snapshots, Sources};
use utoipa_axum::{router::OpenApiRouter, routes};

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
    /// What gives authority to read everything, and to change things.
    pub access: Access,
    /// By which names clients may ask over TCP.
    pub hosts: Hosts,
}

/// Everything that is served, wherever clients come in.
#[derive(Clone, Debug)]
pub struct Service(App);

/// What the handlers share.
#[derive(Clone, Debug)]
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

impl FromRef<App> for Controls {
    fn from_ref(app: &App) -> Self {
        app.sources.controls.clone()
    }
}

impl FromRef<App> for metrics::Deeds {
    fn from_ref(app: &App) -> Self {
        Self::now(&app.sources)
    }
}

impl FromRef<App> for Decided {
    fn from_ref(app: &App) -> Self {
        app.sources.decided.clone()
    }
}

impl FromRef<App> for Events {
    fn from_ref(app: &App) -> Self {
        app.sources.events.clone()
    }
}

impl Service {
    /// Answers from these sources.
    pub fn new(node: Node, sources: impl Into<Sources>) -> Self {
        Self(App { node: Arc::new(node), sources: sources.into(), listed: Arc::default() })
    }

    /// All endpoints, for those who come to this address by one of its names, so that no web site can reach the service through a visitor's browser
    /// (DNS rebinding).
    pub fn on_tcp(&self, listen: SocketAddr) -> Router {
        self.router(guard::HostRule::for_listener(listen, &self.0.node.hosts))
    }

    /// All endpoints, for those who come to a Unix socket, which no browser does.
    pub fn on_socket(&self) -> Router {
        self.router(guard::HostRule::Any)
    }

    fn router(&self, hosts: guard::HostRule) -> Router {
        let Self(app) = self;
        openapi::documented(routes)
            .merge(page::routes())
            .fallback(problem::not_found)
            .method_not_allowed_fallback(problem::method_not_allowed)
            .layer(DefaultBodyLimit::max(body::MAX_BYTES))
            .layer(middleware::from_fn_with_state(Arc::clone(&app.node), authority::establish))
            .layer(middleware::from_fn(guard::check_origin))
            .layer(middleware::from_fn_with_state(hosts, guard::check_host))
            .layer(middleware::map_response(guard::set_headers))
            .with_state(app.clone())
    }
}

fn routes(router: OpenApiRouter<App>) -> OpenApiRouter<App> {
    router
        .routes(routes!(api::node::status))
        .routes(routes!(api::processes::processes))
        .routes(routes!(api::processes::process))
        .routes(routes!(api::memory::ranges))
        .routes(routes!(api::memory::heat_map))
        .routes(routes!(api::history::process_history))
        .routes(routes!(api::verdicts::process_verdicts))
        .routes(routes!(api::verdicts::verdicts))
        .routes(routes!(api::node::evictions))
        .routes(routes!(api::node::owners))
        .routes(routes!(api::node::gpus))
        .routes(routes!(api::history::gpu_history))
        .routes(routes!(api::overrides::process_override))
        .routes(routes!(api::overrides::overrides, api::overrides::add_override))
        .routes(routes!(api::overrides::one_override, api::overrides::put_override, api::overrides::remove_override))
        .routes(routes!(api::policy::policy))
        .routes(routes!(api::policy::policy_off))
        .routes(routes!(api::policy::policy_on))
        .routes(routes!(api::decisions::decisions))
        .routes(routes!(api::decisions::decision))
        .routes(routes!(api::decisions::events))
        .routes(routes!(metrics::scrape))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
}

/// All endpoints, where there is no other way in than this address.
pub fn router(node: Node, listen: SocketAddr, sources: impl Into<Sources>) -> Router {
    Service::new(node, sources).on_tcp(listen)
}

//! HTTP API, metrics and built-in page. Overrides and the kill switch are all that the API changes.
//!
//! * `GET /` -- page with live figures of the node; its parts are under `/page/`
//! * `GET /api/v1/status` -- state of the source and its probes, GPUs, dropped events, and totals
//! * `GET /api/v1/processes` -- processes with their counts; `?state=running` or `?state=exited`
//!   selects
//! * `GET /api/v1/processes/{pid}` -- a process, with the `?blocks=N` busiest blocks of its memory.
//!   Here and below, `?start_ticks=T` chooses among processes with the same pid
//! * `GET /api/v1/processes/{pid}/ranges` -- ranges of managed memory, and their access patterns
//! * `GET /api/v1/processes/{pid}/sites` -- instructions that raise CPU faults on its managed memory
//! * `GET /api/v1/processes/{pid}/ops` -- recorded calls; `/ops/trace`, as a trace for planners
//! * `GET /api/v1/processes/{pid}/heatmap` -- memory in cells; `?cells=N` of each range,
//!   `?begin=0x..&end=0x..` for a part
//! * `GET /api/v1/processes/{pid}/history` -- recent counts; the last `?seconds=S`, in `?samples=N`
//! * `GET /api/v1/processes/{pid}/verdict` -- verdicts on the process, active and ended
//! * `GET /api/v1/verdicts` -- verdicts on all processes
//! * `GET /api/v1/evictions` -- evictors and victims
//! * `GET /api/v1/owners` -- sums by pod, job, container and unit, which outlive processes
//! * `GET /api/v1/gpus` -- GPUs with their memory
//! * `GET /api/v1/gpus/{uuid}/history` -- recent counts of a GPU
//! * `GET|POST /api/v1/overrides`, `GET|PUT|DELETE /api/v1/overrides/{id}` -- overrides
//! * `GET /api/v1/processes/{pid}/override` -- policy in effect for a process, and its reason
//! * `GET /api/v1/policy`, `POST /api/v1/policy/off` and `/on` -- kill switch
//! * `GET /api/v1/decisions`, `GET /api/v1/decisions/{id}` -- decisions and their effects;
//!   `?process=PID`, `?stage=STAGE`, `?limit=N`
//! * `GET /api/v1/events` -- stream of events
//! * `GET /openapi.json` -- the API as OpenAPI 3.1; `GET /openapi` redirects to it
//! * `GET /api/v1` -- index of the paths
//! * `GET /metrics` -- Prometheus text format
//! * `GET /livez` -- 200 while the service responds
//! * `GET /readyz` -- 200 while uvmd counts, else 503 with the reasons
//!
//! A listener for metrics alone serves `GET /metrics` and nothing else, with TLS and passwords where
//! they are configured ([`Protection`]).
//!
//! Command lines and addresses in memory require read permission: as root or a member of a group on
//! the Unix socket, or by a token ([`Access`]). Changes require write permission, with a group and
//! a token for it. A page of another site has neither.
//!
//! Errors are problems (RFC 9457, `application/problem+json`):
//!
//! * 400: a query parameter that the endpoint does not have, or a missing or malformed `Host`
//! * 401 and 403: missing permission
//! * 404: an unknown path
//! * 405: a method that the path does not have
//! * 412 to 422: an invalid request for a change
//! * 421: a `Host` that is not this service
//! * 503: no response of the collector

mod auth;
mod body;
mod closed;
mod connection;
mod connection_table;
mod connections;
mod control;
mod convert;
mod denials;
mod entity_tags;
mod events;
mod gpus;
mod guard;
mod handlers;
mod health;
mod hosts;
mod markdown;
pub mod metrics;
mod openapi;
mod page;
mod paging;
mod parameters;
mod peers;
mod problem;
mod protection;
mod query;
mod reloads;
mod request_counts;
mod reserved_places;
mod responses;
mod routes;
pub mod server;
mod settings;
mod socket;
mod sources;
mod stopwatch;
mod streams;
mod transport;
mod warnings;

use std::{
    convert::Infallible,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize},
    },
};

pub use auth::{Access, Credential, Grant, InvalidToken, Peer, Requester, Token};
use axum::{
    Router,
    extract::{DefaultBodyLimit, FromRef, FromRequestParts},
    http::request::Parts,
    middleware,
    routing::get,
};
use connection_table::ConnectionTable;
pub use control::{AdviceJournal, ChangeError, Control, Controls, DecisionSource, Precondition, PutOutcome, etag};
pub use convert::verdict_events;
pub use denials::{Denial, DenialSink};
pub use events::Events;
pub use hosts::Hosts;
use metrics::Listed;
use paging::Cursors;
pub use problem::{Kind as ProblemKind, document as problem_document};
use protection::BasicAuth;
pub use protection::{Protection, Tls, TlsError, TlsFiles, TlsVersion, Users, UsersError};
pub use reloads::Reloads;
use request_counts::RequestCounts;
use responses::Responses;
use server::Site;
use settings::Settings;
pub use socket::{Socket, SocketError, Trusted};
pub use sources::{
    CallsRefusal, CallsRequest, Heat, HistorySource, OpsSource, Snapshots, Source, Sources, TraceSource, Unrecorded,
    VerdictSource,
};
use stopwatch::Stopwatch;
use streams::Streams;
use utoipa::OpenApi;
pub use warnings::{Warning, Warnings};

/// Properties of the node and of the service itself.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// uvmd's version.
    pub version: &'static str,
    /// The commit that uvmd was built from.
    pub commit: &'static str,
    /// Name of the node, a label of most metrics.
    pub hostname: String,
    /// Initial maximum of processes with series in the metrics; `None` is the default, fit for a
    /// database with many nodes.
    pub processes_in_metrics: Option<NonZeroUsize>,
    /// Lines of the service's own log that could not be written.
    pub log_lines_dropped: Arc<AtomicU64>,
    /// Lines of the audit log that could not be written.
    pub audit_lines_dropped: Arc<AtomicU64>,
    /// Receiver of denied requests.
    pub denials: DenialSink,
    /// Active warnings about the service itself.
    pub warnings: Warnings,
    /// Last read of the configuration.
    pub reloads: Reloads,
    /// Tokens that grant read and write permission.
    pub access: Access,
    /// Initial names of the service over TCP.
    pub hosts: Hosts,
}

/// HTTP service for any number of listeners.
#[derive(Clone, Debug)]
pub struct Service(App);

/// State shared by the handlers.
#[derive(Clone, Debug)]
struct App {
    node: Arc<Node>,
    sources: Sources,
    responses: Responses,
    streams: Streams,
    cursors: Arc<Cursors>,
    table: Arc<ConnectionTable>,
    listed: Arc<Mutex<Listed>>,
    settings: Settings,
    /// Length of the last exposition of metrics.
    exposition_bytes: Arc<AtomicUsize>,
    requests: RequestCounts,
    scrapes: Stopwatch,
    /// Requests whose passwords could not be verified in time.
    unverified: Arc<AtomicU64>,
}

/// Extractor of responses for the sender of a request.
impl FromRequestParts<App> for Responses {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Peer>().copied().unwrap_or_default();
        Ok(app.responses.clone().for_peer(peer.into()))
    }
}

impl FromRef<App> for Streams {
    fn from_ref(app: &App) -> Self {
        app.streams.clone()
    }
}

impl FromRef<App> for Arc<Cursors> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.cursors)
    }
}

impl FromRef<App> for metrics::Exposition {
    fn from_ref(app: &App) -> Self {
        Self::new(app.clone())
    }
}

impl FromRef<App> for Settings {
    fn from_ref(app: &App) -> Self {
        app.settings.clone()
    }
}

impl FromRef<App> for Arc<Node> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.node)
    }
}

impl FromRef<App> for Heat {
    fn from_ref(app: &App) -> Self {
        app.sources.heat.clone()
    }
}

impl FromRef<App> for HistorySource {
    fn from_ref(app: &App) -> Self {
        app.sources.history.clone()
    }
}

impl FromRef<App> for OpsSource {
    fn from_ref(app: &App) -> Self {
        app.sources.ops.clone()
    }
}

impl FromRef<App> for TraceSource {
    fn from_ref(app: &App) -> Self {
        app.sources.traces.clone()
    }
}

impl FromRef<App> for Controls {
    fn from_ref(app: &App) -> Self {
        app.sources.controls.clone()
    }
}

impl FromRef<App> for DecisionSource {
    fn from_ref(app: &App) -> Self {
        app.sources.decisions.clone()
    }
}

impl FromRef<App> for Events {
    fn from_ref(app: &App) -> Self {
        app.sources.events.clone()
    }
}

impl Service {
    /// Service with data from these sources.
    pub fn new(node: Node, sources: impl Into<Sources>) -> Self {
        let sources = sources.into();
        let table = Arc::default();
        let settings = Settings::new(node.hosts.clone(), node.processes_in_metrics);
        Self(App {
            node: Arc::new(node),
            responses: Responses::new(&sources, &table),
            sources,
            streams: Streams::new(&table),
            cursors: Arc::default(),
            table,
            listed: Arc::default(),
            settings,
            exposition_bytes: Arc::default(),
            requests: RequestCounts::default(),
            scrapes: Stopwatch::default(),
            unverified: Arc::default(),
        })
    }

    /// Replaces the names of the service over TCP, and the maximum of processes with series in the
    /// metrics.
    pub fn change(&self, hosts: Hosts, processes_in_metrics: Option<NonZeroUsize>) {
        self.0.settings.change(hosts, processes_in_metrics);
    }

    /// Endpoints for a listener on this address, for requests with one of its names, so that no web
    /// site reaches the service through a visitor's browser (DNS rebinding).
    #[must_use]
    pub fn on_tcp(&self, listen: SocketAddr) -> Site {
        self.site(self.router(guard::Guard::tcp(listen, self.0.settings.clone())))
    }

    /// Endpoints for a Unix socket, which no browser reaches.
    #[must_use]
    pub fn on_socket(&self) -> Site {
        self.site(self.router(guard::Guard::Socket))
    }

    /// Metrics alone, for a listener on this address. Its requests need no token, but what the
    /// protection requires.
    #[must_use]
    pub fn metrics_on(&self, listen: SocketAddr, protection: &Protection) -> Site {
        let Self(app) = self;
        let basic_auth = BasicAuth { protection: protection.clone(), rejected: Arc::clone(&app.unverified) };
        let router = Router::new()
            .route(metrics::PATH, get(metrics::scrape))
            .fallback(problem::not_found)
            .method_not_allowed_fallback(problem::only_read)
            .layer(middleware::from_fn_with_state(basic_auth, protection::check));
        let router = self.guarded(router, guard::Guard::tcp(listen, app.settings.clone()));
        Site { protection: Some(protection.clone()), ..self.site(router) }
    }

    fn site(&self, router: Router) -> Site {
        Site { router, table: Arc::clone(&self.0.table), protection: None }
    }

    fn router(&self, hosts: guard::Guard) -> Router {
        let Self(app) = self;
        let router = openapi::documented(routes::router(), routes::Document::openapi())
            .merge(page::routes())
            .fallback(problem::not_found)
            .method_not_allowed_fallback(problem::method_not_allowed)
            .layer(DefaultBodyLimit::max(body::MAX_BYTES))
            .layer(middleware::from_fn_with_state(Arc::clone(&app.node), auth::attach_permissions))
            .layer(middleware::from_fn(guard::check_origin));
        self.guarded(router, hosts)
    }

    /// Routes with what is common to all listeners: denials, names, limits and counts.
    fn guarded(&self, router: Router<App>, hosts: guard::Guard) -> Router {
        let Self(app) = self;
        router
            .layer(middleware::from_fn_with_state(Arc::clone(&app.node), denials::report))
            .layer(middleware::from_fn_with_state(hosts, guard::check_host))
            .layer(middleware::from_fn_with_state(Arc::clone(&app.table), reserved_places::only_health_checks))
            .layer(middleware::map_response(guard::set_headers))
            .layer(middleware::from_fn_with_state(app.requests.clone(), request_counts::count))
            .with_state(app.clone())
    }
}

/// Endpoints for this address as a router, for calls without a server.
pub fn router(node: Node, listen: SocketAddr, sources: impl Into<Sources>) -> Router {
    Service::new(node, sources).on_tcp(listen).into_router()
}

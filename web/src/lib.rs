//! The HTTP API, the metrics and the built-in page. All that can be changed is what is wanted for which processes, and whether anything is done.
//!
//! * `GET /` -- a page that shows the node live, and its parts under `/page/`
//! * `GET /api/v1/status` -- the source, its probes, the GPUs, events dropped, and sums over everything
//! * `GET /api/v1/processes` -- what each process did; `?state=running` or `?state=exited` narrows it
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
//! Command lines, and where in memory something happens, are for those with read permission: root and a group on the Unix socket, and whoever knows
//! a token ([`Access`]). To change something takes write permission: likewise, with a group and a token for it. No page of another site gets that far.
//!
//! Anything else is a problem (RFC 9457, `application/problem+json`): 401 and 403 for lack of permission, 404 for a path, 405 for a method, 400 for a query
//! parameter that an endpoint does not have and for a missing or malformed `Host`, 412 to 422 for changes that are not asked for as they must be, 421 for a `Host` that is not this service, 503 when the
//! collector does not answer.

mod api;
mod auth;
mod body;
mod capabilities;
mod closed;
mod connection;
mod connection_table;
mod connections;
mod control;
mod convert;
mod denials;
mod events;
mod gpus;
mod guard;
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
mod query;
mod reloads;
mod request_counts;
mod reserved_places;
mod responses;
pub mod server;
mod settings;
mod socket;
mod sources;
mod stopwatch;
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

pub use auth::{Access, Credential, Grant, Peer, Requester, Token};
use axum::{
    Router,
    extract::{DefaultBodyLimit, FromRef, FromRequestParts},
    http::request::Parts,
    middleware,
};
use connection_table::ConnectionTable;
pub use control::{AdviceJournal, ChangeError, Control, Controls, DecisionSource, Precondition, PutOutcome, etag};
pub use convert::verdict_event;
pub use denials::{Denial, DenialSink};
pub use events::Events;
pub use hosts::Hosts;
use metrics::Listed;
use paging::Cursors;
use peers::Shares;
pub use problem::{Kind as ProblemKind, document as problem_document};
pub use reloads::Reloads;
use request_counts::RequestCounts;
use responses::Responses;
use server::Site;
use settings::Settings;
pub use socket::{Socket, SocketError, Trusted};
pub use sources::{Heat, HistorySource, Snapshots, Source, Sources, VerdictSource};
use stopwatch::Stopwatch;
use utoipa_axum::{router::OpenApiRouter, routes};
pub use warnings::{Warning, Warnings};

/// What a reader is told about the service itself, and how.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// uvmd's version.
    pub version: &'static str,
    /// The commit that it was built from.
    pub commit: &'static str,
    /// The node's name, a label of most metrics.
    pub hostname: String,
    /// How many processes may have series of their own in the metrics, at first; `None` is the default, and what a database with many nodes can take.
    pub processes_in_metrics: Option<NonZeroUsize>,
    /// Lines of the service's own log that could not be written.
    pub log_lines_dropped: Arc<AtomicU64>,
    /// Lines of the audit log that could not be written.
    pub audit_lines_dropped: Arc<AtomicU64>,
    /// Who is told of requests that are refused.
    pub denials: DenialSink,
    /// What is wrong with the service itself.
    pub warnings: Warnings,
    /// When its configuration was read last.
    pub reloads: Reloads,
    /// Tokens that grant read and write permission.
    pub access: Access,
    /// By which names clients may ask over TCP, at first.
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
    responses: Responses,
    /// Who listens to events.
    streams: Shares,
    cursors: Arc<Cursors>,
    directory: Arc<ConnectionTable>,
    listed: Arc<Mutex<Listed>>,
    settings: Settings,
    /// How long the metrics were last.
    exposition_bytes: Arc<AtomicUsize>,
    requests: RequestCounts,
    scrapes: Stopwatch,
}

/// Streams of events at once, of all and of one peer. Each holds one of the places for connections.
const STREAMS_MAX: usize = 32;
const STREAMS_OF_PEER_MAX: usize = 8;

/// The answers of whoever sent the request.
impl FromRequestParts<App> for Responses {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Peer>().copied().unwrap_or_default();
        Ok(app.responses.clone().for_peer(peer.into()))
    }
}

impl FromRef<App> for Shares {
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
    /// Responses from these sources.
    pub fn new(node: Node, sources: impl Into<Sources>) -> Self {
        let sources = sources.into();
        let directory = Arc::default();
        let settings = Settings::new(node.hosts.clone(), node.processes_in_metrics);
        Self(App {
            node: Arc::new(node),
            responses: Responses::new(&sources, &directory),
            sources,
            streams: Shares::new(STREAMS_MAX, STREAMS_OF_PEER_MAX),
            cursors: Arc::default(),
            directory,
            listed: Arc::default(),
            settings,
            exposition_bytes: Arc::default(),
            requests: RequestCounts::default(),
            scrapes: Stopwatch::default(),
        })
    }

    /// From now on clients may ask by these names over TCP, and as many processes may have series of their own.
    pub fn change(&self, hosts: Hosts, processes_in_metrics: Option<NonZeroUsize>) {
        self.0.settings.change(hosts, processes_in_metrics);
    }

    /// All endpoints, for those who come to this address by one of its names, so that no web site can reach the service through a visitor's browser
    /// (DNS rebinding).
    #[must_use]
    pub fn on_tcp(&self, listen: SocketAddr) -> Site {
        self.site(guard::Guard::tcp(listen, self.0.settings.clone()))
    }

    /// All endpoints, for those who come to a Unix socket, which no browser does.
    #[must_use]
    pub fn on_socket(&self) -> Site {
        self.site(guard::Guard::Socket)
    }

    fn site(&self, guard: guard::Guard) -> Site {
        Site { router: self.router(guard), directory: Arc::clone(&self.0.directory) }
    }

    fn router(&self, hosts: guard::Guard) -> Router {
        let Self(app) = self;
        openapi::documented(routes)
            .merge(page::routes())
            .fallback(problem::not_found)
            .method_not_allowed_fallback(problem::method_not_allowed)
            .layer(DefaultBodyLimit::max(body::MAX_BYTES))
            .layer(middleware::from_fn_with_state(Arc::clone(&app.node), auth::establish))
            .layer(middleware::from_fn(guard::check_origin))
            .layer(middleware::from_fn_with_state(Arc::clone(&app.node), denials::report))
            .layer(middleware::from_fn_with_state(hosts, guard::check_host))
            .layer(middleware::from_fn_with_state(Arc::clone(&app.directory), reserved_places::only_health_checks))
            .layer(middleware::map_response(guard::set_headers))
            .layer(middleware::from_fn_with_state(app.requests.clone(), request_counts::count))
            .with_state(app.clone())
    }
}

fn routes(router: OpenApiRouter<App>) -> OpenApiRouter<App> {
    router
        .routes(routes!(api::node::status))
        .routes(routes!(api::processes::processes))
        .routes(routes!(api::processes::summary))
        .routes(routes!(api::processes::process))
        .routes(routes!(api::memory::ranges))
        .routes(routes!(api::memory::heat_map))
        .routes(routes!(api::history::process_history))
        .routes(routes!(api::verdicts::process_verdicts))
        .routes(routes!(api::verdicts::verdicts))
        .routes(routes!(api::evictions::evictions))
        .routes(routes!(api::owners::owners))
        .routes(routes!(api::owners::owner))
        .routes(routes!(api::history::owner_history))
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
        .routes(routes!(api::events::events))
        .routes(routes!(api::problems::problem_type))
        .routes(routes!(metrics::scrape))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
}

/// All endpoints as they are served on this address, to be asked without a server.
pub fn router(node: Node, listen: SocketAddr, sources: impl Into<Sources>) -> Router {
    Service::new(node, sources).on_tcp(listen).into_router()
}

//! Places reserved for health checks and metrics, at any number of other clients.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    connection_table::ConnectionTable,
    health, metrics,
    problem::{Kind, Problem},
};

/// Mark of a request on a connection with a reserved place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnReservedPlace;

/// Paths that are served on a reserved place: they need no place in the queue for responses.
/// `/metrics` has a queue and a memory budget for itself.
const HEALTH: [&str; 3] = [health::LIVEZ, health::READYZ, metrics::PATH];

/// Rejects any other path on a reserved place.
pub(crate) async fn only_health_checks(
    State(table): State<Arc<ConnectionTable>>,
    request: Request,
    next: Next,
) -> Response {
    let is_in_reserve = request.extensions().get::<OnReservedPlace>().is_some();
    if !is_in_reserve || HEALTH.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    table.reject();
    let detail = "too many clients are being served: retry in a second";
    Problem::new(Kind::Overloaded, detail.to_owned()).retry_soon().into_response()
}

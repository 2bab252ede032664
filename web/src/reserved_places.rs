//! Places in reserve for health checks and metrics, however many other clients there are.

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

/// Marks a request on a connection that has a place of the reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnReservedPlace;

/// Paths that need no turn among the other answers. `/metrics` has a turn and a memory budget of its own.
const HEALTH: [&str; 3] = [health::LIVEZ, health::READYZ, metrics::PATH];

/// Rejects any other path on a connection in the reserve.
pub(crate) async fn only_health_checks(
    State(directory): State<Arc<ConnectionTable>>,
    request: Request,
    next: Next,
) -> Response {
    let is_in_reserve = request.extensions().get::<OnReservedPlace>().is_some();
    if !is_in_reserve || HEALTH.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    directory.reject();
    let detail = "too many clients are being served: retry in a second";
    Problem::new(Kind::Overloaded, detail.to_owned()).come_back_soon().into_response()
}

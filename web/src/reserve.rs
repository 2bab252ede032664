//! The places of the reserve: for those who ask whether the service is well, however many others keep it busy.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{directory::Directory, health, metrics, problem::Problem};

/// Marks a request on a connection that has a place of the reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InReserve;

/// What takes no time, or memory of its own.
const SHORT: [&str; 3] = [health::LIVEZ, health::READYZ, metrics::PATH];

/// Turns other requests than short ones away in the reserve.
pub(crate) async fn only_short(State(directory): State<Arc<Directory>>, request: Request, next: Next) -> Response {
    let is_in_reserve = request.extensions().get::<InReserve>().is_some();
    if !is_in_reserve || SHORT.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    directory.reject();
    let detail = "too many other clients are being answered: ask again in a second";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail.to_owned()).come_back_soon().into_response()
}

//! For those who only ask whether it works: init systems, orchestrators, scripts.

use axum::{http::StatusCode, response::IntoResponse};
use model::SourceState;

use crate::{
    problem::{NoParameters, Parameters},
    source::Fresh,
};

/// Whether the service answers at all.
#[utoipa::path(get, path = "/livez", responses((status = OK, content_type = "text/plain", body = String)))]
pub(crate) async fn livez(_: Parameters<NoParameters>) -> &'static str {
    "ok\n"
}

/// Whether it counts; else one line for each reason why not.
#[utoipa::path(
    get,
    path = "/readyz",
    responses(
        (status = OK, content_type = "text/plain", body = String),
        (status = SERVICE_UNAVAILABLE, description = "It does not count", content_type = "text/plain", body = String)
    )
)]
pub(crate) async fn readyz(_: Parameters<NoParameters>, Fresh(snapshot): Fresh) -> impl IntoResponse {
    let (status, lines) = match &snapshot.source.state {
        SourceState::Counting { .. } => (StatusCode::OK, vec!["ok".to_owned()]),
        SourceState::Waiting { missing } => {
            (StatusCode::SERVICE_UNAVAILABLE, missing.iter().map(|reason| format!("waiting: {reason}")).collect())
        }
        SourceState::Refused { reason } => (StatusCode::SERVICE_UNAVAILABLE, vec![format!("refused: {reason}")]),
    };
    (status, lines.join("\n") + "\n")
}

//! Health checks, for init systems, orchestrators and scripts.

use axum::{http::StatusCode, response::IntoResponse};
use model::SourceState;

use crate::{
    problem::Problem,
    query::{NoParameters, Parameters},
    responses::Responses,
};

pub(crate) const LIVEZ: &str = "/livez";
pub(crate) const READYZ: &str = "/readyz";

/// Check that uvmd responds
///
/// Responds with 200 while the service responds at all.
#[utoipa::path(get, path = LIVEZ, responses((status = OK, content_type = "text/plain", body = String)))]
pub(crate) async fn livez(_: Parameters<NoParameters>) -> &'static str {
    "ok\n"
}

/// Check that uvmd counts
///
/// Responds with 200 while uvmd counts, with a line for each reason why it counts less than it should; else with 503, and a line for each reason.
#[utoipa::path(
    get,
    path = READYZ,
    responses(
        (status = OK, content_type = "text/plain", body = String),
        (status = SERVICE_UNAVAILABLE, description = "uvmd does not count", content_type = "text/plain", body = String)
    )
)]
pub(crate) async fn readyz(_: Parameters<NoParameters>, responses: Responses) -> Result<impl IntoResponse, Problem> {
    let reading = responses.reading().await?;
    let source = &reading.known.snapshot.source;
    let (status, lines) = match &source.state {
        SourceState::Counting { .. } => {
            let degraded = source.degraded.iter();
            let degraded = degraded.map(|each| format!("degraded: {}: {}", each.reason.name(), each.description));
            (StatusCode::OK, ["ok".to_owned()].into_iter().chain(degraded).collect())
        }
        SourceState::Waiting { missing } => {
            (StatusCode::SERVICE_UNAVAILABLE, missing.iter().map(|reason| format!("waiting: {reason}")).collect())
        }
        SourceState::Refused { reason } => (StatusCode::SERVICE_UNAVAILABLE, vec![format!("refused: {reason}")]),
    };
    Ok((status, lines.join("\n") + "\n"))
}

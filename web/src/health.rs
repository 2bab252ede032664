//! For those who only ask whether it works: init systems, orchestrators, scripts.

use axum::{http::StatusCode, response::IntoResponse};
use model::SourceState;

use crate::{
    problem::{NoParameters, Parameters},
    source::Fresh,
};

pub(crate) async fn livez(_: Parameters<NoParameters>) -> &'static str {
    "ok\n"
}

/// One line for each reason why it is not ready.
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

//! Pages of problem types.

use axum::{
    extract::Path,
    http::{Uri, header},
    response::IntoResponse,
};

use crate::{
    problem::{self, Kind, Problem},
    query::{NoParameters, Parameters},
};

/// Get the page of a problem type
///
/// Cause and remedy of a type of problem, in Markdown. The `type` of a problem is the path of its page.
#[utoipa::path(
    get,
    path = "/problems/{slug}",
    params(("slug" = String, Path, description = "Last part of the type", pattern = "^[a-z-]{1,64}$")),
    responses((status = OK, content_type = "text/markdown", body = String))
)]
pub(crate) async fn problem_type(
    Path(slug): Path<String>,
    _: Parameters<NoParameters>,
    uri: Uri,
) -> Result<impl IntoResponse, Problem> {
    match Kind::ALL.iter().find(|kind| kind.slug() == slug) {
        Some(kind) => Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], problem::page(*kind))),
        None => Err(problem::not_found(uri).await),
    }
}

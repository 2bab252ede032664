//! Errors as RFC 9457 problems.

mod kind;

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderValue, Method, Uri, header},
    response::{IntoResponse, Response},
};
pub(crate) use kind::page;
pub use kind::{Kind, document};
use serde::Serialize;
use utoipa::ToSchema;

/// Error in a response.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    kind: Kind,
    detail: String,
    /// Authentication challenge: `WWW-Authenticate`.
    challenge: Option<&'static str>,
    /// Time until a retry: `Retry-After`.
    retry_after: Option<Duration>,
    /// Invalid parts of the request's body.
    errors: Vec<FieldError>,
}

impl Problem {
    pub(crate) const fn new(kind: Kind, detail: String) -> Self {
        Self { kind, detail, challenge: None, retry_after: None, errors: Vec::new() }
    }

    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// Asks the client to retry in a second.
    pub(crate) fn retry_soon(self) -> Self {
        self.retry_after(Duration::from_secs(1))
    }

    pub(crate) fn challenging(self, challenge: &'static str) -> Self {
        Self { challenge: Some(challenge), ..self }
    }

    /// Problem of a well-formed body with an invalid field; `field` is its path with points between
    /// names: `match.range.end`.
    pub(crate) fn of_field(field: &str, detail: String) -> Self {
        let pointer = if field.is_empty() { "#".to_owned() } else { format!("#/{}", field.replace('.', "/")) };
        let text = if field.is_empty() { detail.clone() } else { format!("{field}: {detail}") };
        Self { errors: vec![FieldError { pointer, detail }], ..Self::new(Kind::InvalidField, text) }
    }
}

/// The body of a problem, as in RFC 9457.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Body {
    /// Path that identifies the kind of problem: `/problems/NAME`. It is stable, and served as a page.
    #[schema(example = "/problems/not-found")]
    r#type: &'static str,
    /// Summary of the kind, for people.
    title: &'static str,
    /// HTTP status of the response.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// Description of this occurrence, for people.
    detail: String,
    /// Invalid parts of the request's body; empty for other problems.
    errors: Vec<FieldError>,
}

/// Invalid part of a request's body.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// JSON Pointer to the part: `#/match/pod`.
    pointer: String,
    /// Description of the error, for people.
    detail: String,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { kind, detail, challenge, retry_after, errors } = self;
        let status = kind.status();
        let body = Body { r#type: kind.uri(), title: kind.title(), status: status.as_u16(), detail, errors };
        let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"))];
        let mut response = (status, content_type, Json(body)).into_response();
        if let Some(challenge) = challenge {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if let Some(wait) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, wait.as_secs().into());
        }
        response
    }
}

pub(crate) async fn not_found(uri: Uri) -> Problem {
    Problem::new(Kind::NotFound, format!("there is no {} here", uri.path()))
}

/// Problem of a method on a listener for metrics alone.
pub(crate) async fn only_read(method: Method, uri: Uri) -> Problem {
    Problem::new(Kind::MethodNotAllowed, format!("{} takes GET and HEAD, not {method}", uri.path()))
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}; /openapi.json lists the methods", uri.path());
    Problem::new(Kind::MethodNotAllowed, detail)
}

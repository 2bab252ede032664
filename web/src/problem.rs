//! Errors as RFC 9457 problems, and the query parameters whose misuse makes most of them.

use std::time::Duration;

use axum::{
    Json,
    extract::{FromRequestParts, Query},
    http::{HeaderValue, Method, StatusCode, Uri, header, request::Parts},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use utoipa::ToSchema;

/// An error as a client sees it. Its type is `about:blank`: the status says what kind it is.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    /// How to be answered otherwise: `WWW-Authenticate`.
    challenge: Option<&'static str>,
    /// When to ask again: `Retry-After`.
    retry_after: Option<Duration>,
    /// Which parts of the body are wrong.
    errors: Vec<FieldError>,
}

impl Problem {
    pub(crate) const fn new(status: StatusCode, detail: String) -> Self {
        Self { status, detail, challenge: None, retry_after: None, errors: Vec::new() }
    }

    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// Has a client that was turned away come back in a second.
    pub(crate) fn come_back_soon(self) -> Self {
        self.retry_after(Duration::from_secs(1))
    }

    pub(crate) fn challenging(self, challenge: &'static str) -> Self {
        Self { challenge: Some(challenge), ..self }
    }

    /// A body that is well-formed and means nothing; `field` is where, with points between: `match.range.end`.
    pub(crate) fn of_field(field: &str, detail: String) -> Self {
        let pointer = if field.is_empty() { "#".to_owned() } else { format!("#/{}", field.replace('.', "/")) };
        let what = if field.is_empty() { detail.clone() } else { format!("{field}: {detail}") };
        Self { errors: vec![FieldError { pointer, detail }], ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, what) }
    }
}

/// The body of a problem, as in RFC 9457.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Body {
    /// Always `about:blank`: the status says what kind of problem it is.
    r#type: &'static str,
    /// The status in words.
    title: &'static str,
    /// As of the answer.
    status: u16,
    /// What is wrong, for people.
    detail: String,
    /// Which parts of the request's body are wrong; none where that is not what is wrong.
    errors: Vec<FieldError>,
}

/// A part of a request's body that is wrong.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// Which, as a JSON Pointer: `#/match/pod`.
    pointer: String,
    /// What is wrong, for people.
    detail: String,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, detail, challenge, retry_after, errors } = self;
        let title = status.canonical_reason().unwrap_or_default();
        let body = Body { r#type: "about:blank", title, status: status.as_u16(), detail, errors };
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
    Problem::new(StatusCode::NOT_FOUND, format!("there is no {} here", uri.path()))
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}; /openapi.json says what it takes", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// The query parameters of a request; `T` must deny unknown fields.
pub(crate) struct Parameters<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(parameters)) => Ok(Self(parameters)),
            Err(rejection) => Err(Problem::new(StatusCode::BAD_REQUEST, rejection.body_text())),
        }
    }
}

/// The parameters of an endpoint that has none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParameters {}

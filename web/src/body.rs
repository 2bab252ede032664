//! Bodies of requests for a change.

use api::object::object;
use axum::{
    body::Bytes,
    extract::{FromRequest, Request, rejection::BytesRejection},
    http::{StatusCode, header},
};
use serde::de::DeserializeOwned;

use crate::problem::{Kind, Problem};

/// Maximum length of a body.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// JSON body. An error names the field.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        // A form of a foreign site can send text without a preflight request, but not JSON.
        let content_type =
            request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let detail =
                format!("the body must be JSON, with \"Content-Type: application/json\", not {content_type:?}");
            return Err(Problem::new(Kind::UnsupportedMediaType, detail));
        }
        parse(&bytes(request, state).await?).map(Self)
    }
}

/// Empty body of a request whose path has all parameters.
pub(crate) struct EmptyBody;

impl<S: Send + Sync> FromRequest<S> for EmptyBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if bytes(request, state).await?.is_empty() {
            return Ok(Self);
        }
        Err(Problem::new(Kind::InvalidBody, "the body must be empty".to_owned()))
    }
}

async fn bytes<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    Bytes::from_request(request, state).await.map_err(|rejection: BytesRejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::new(Kind::BodyTooLarge, format!("the body has more than {MAX_BYTES} bytes"))
        }
        _ => Problem::new(Kind::InvalidBody, rejection.body_text()),
    })
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let parsed = read_object(&mut reader).map_err(|error| {
        let field = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_data() {
            let field = if field == "." { "" } else { &field };
            Problem::of_field(field, inner.to_string())
        } else {
            Problem::new(Kind::InvalidBody, format!("the body is not JSON: {inner}"))
        }
    })?;
    reader.end().map_err(|error| Problem::new(Kind::InvalidBody, format!("the body is not JSON: {error}")))?;
    Ok(parsed)
}

/// Parses a body that is an object. An error names the field.
fn read_object<T: DeserializeOwned>(
    reader: &mut serde_json::Deserializer<serde_json::de::SliceRead<'_>>,
) -> Result<T, serde_path_to_error::Error<serde_json::Error>> {
    let mut track = serde_path_to_error::Track::new();
    object(serde_path_to_error::Deserializer::new(reader, &mut track))
        .map_err(|error| serde_path_to_error::Error::new(track.path(), error))
}

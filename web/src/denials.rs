//! Requests denied for lack of permission, for the audit log.

use std::{fmt, sync::Arc};

use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::Response,
};

use crate::{
    Node,
    auth::{Credential, Peer, Requester},
};

/// Maximum length of a recorded path; no path of this service is longer.
const PATH_MAX_BYTES: usize = 256;

/// Request that was denied with 401 or 403.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Sender of the request.
    pub requester: Requester,
    /// HTTP method.
    pub method: String,
    /// Path without the query, cut at [`PATH_MAX_BYTES`].
    pub path: String,
    /// Status of the response.
    pub status: u16,
}

/// Receiver of denials, which must not block. The default one ignores them.
#[derive(Clone)]
pub struct DenialSink(Arc<dyn Fn(Denial) + Send + Sync>);

impl DenialSink {
    /// Sink that calls `report`.
    pub fn new(report: impl Fn(Denial) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }
}

impl Default for DenialSink {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for DenialSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DenialSink")
    }
}

/// Reports a denied request.
pub(crate) async fn report(State(node): State<Arc<Node>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied().unwrap_or_default();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let credential = node.access.credential(peer, request.headers());
    let response = next.run(request).await;
    if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        let DenialSink(report) = &node.denials;
        // A password is verified on the way.
        let credential = response.extensions().get::<Credential>().copied().unwrap_or(credential);
        if credential == Credential::WrongPassword {
            node.access.add_failure();
        }
        let (requester, path) = (Requester { peer, credential }, uri.path());
        let path = path.get(..PATH_MAX_BYTES).unwrap_or(path).to_owned();
        report(Denial { requester, method: method.as_str().to_owned(), path, status: response.status().as_u16() });
    }
    response
}

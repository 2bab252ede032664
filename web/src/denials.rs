//! Requests that are refused for lack of permission, for whoever writes them down.

use std::{fmt, sync::Arc};

use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::Response,
};

use crate::{
    Node,
    auth::{Peer, Requester},
};

/// No path of this service is longer.
const PATH_MAX_BYTES: usize = 256;

/// A request that was refused with 401 or 403.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Who sent it.
    pub requester: Requester,
    /// What was to be done.
    pub method: String,
    /// On what, without the query, and cut off where it is long.
    pub path: String,
    /// As answered.
    pub status: u16,
}

/// Is told of every refusal, and must not wait for anything. Nobody is, unless somebody wants to know.
#[derive(Clone)]
pub struct DenialSink(Arc<dyn Fn(Denial) + Send + Sync>);

impl DenialSink {
    /// Told to `tell`.
    pub fn new(tell: impl Fn(Denial) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
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

/// Tells of a request that is refused.
pub(crate) async fn report(State(node): State<Arc<Node>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied().unwrap_or_default();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let credential = node.access.credential(peer, request.headers());
    let response = next.run(request).await;
    if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        let DenialSink(tell) = &node.denials;
        let (requester, path) = (Requester { peer, credential }, uri.path());
        let path = path.get(..PATH_MAX_BYTES).unwrap_or(path).to_owned();
        tell(Denial { requester, method: method.as_str().to_owned(), path, status: response.status().as_u16() });
    }
    response
}

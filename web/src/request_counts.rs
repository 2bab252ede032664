//! Requests served, by route and status code.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};

/// Label value for paths that are not served.
const UNMATCHED: &str = "unmatched";

/// Counts since the start, bounded by the routes and their status codes. Cheap to clone; all clones
/// share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestCounts(Arc<Mutex<BTreeMap<(String, u16), u64>>>);

impl RequestCounts {
    /// Requests by route and code.
    pub(crate) fn now(&self) -> BTreeMap<(String, u16), u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, route: String, code: u16) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry((route, code)).or_default() += 1;
    }
}

/// Counts a request once its response begins.
pub(crate) async fn count(State(counts): State<RequestCounts>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or(UNMATCHED, MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    counts.add(route, response.status().as_u16());
    response
}

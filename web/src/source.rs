//! Where snapshots come from: any asynchronous function that returns one.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use axum::{
    extract::{FromRef, FromRequestParts},
    http::{StatusCode, request::Parts},
};
use model::Snapshot;

use crate::problem::Problem;

/// How long a request waits for its snapshot. Reading every counter takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

type Future = Pin<Box<dyn std::future::Future<Output = Option<Arc<Snapshot>>> + Send>>;

/// Takes a snapshot for each request, with counts no older than the moment of asking. `None` means that the collector is gone.
#[derive(Clone)]
pub struct Snapshots(Arc<dyn Fn() -> Future + Send + Sync>);

impl Snapshots {
    /// Snapshots taken by `take`.
    pub fn new<F>(take: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: std::future::Future<Output = Option<Arc<Snapshot>>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(take())))
    }
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshots")
    }
}

/// Extracts the snapshot that a request is answered from.
pub(crate) struct Fresh(pub(crate) Arc<Snapshot>);

impl<S> FromRequestParts<S> for Fresh
where
    S: Send + Sync,
    Snapshots: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Snapshots(take) = Snapshots::from_ref(state);
        let unavailable = |detail: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        match tokio::time::timeout(PATIENCE, take()).await {
            Ok(Some(snapshot)) => Ok(Self(snapshot)),
            Ok(None) => Err(unavailable("the collector has stopped".to_owned())),
            Err(_) => Err(unavailable(format!("the collector did not answer within {} s", PATIENCE.as_secs()))),
        }
    }
}

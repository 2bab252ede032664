//! `/api/v1`: what is known, as JSON.
#![expect(unused_qualifications, reason = "the macros that describe the handlers write them")]

pub(crate) mod decisions;
pub(crate) mod history;
pub(crate) mod memory;
pub(crate) mod node;
pub(crate) mod overrides;
mod parameters;
pub(crate) mod policy;
pub(crate) mod processes;
pub(crate) mod verdicts;

use std::sync::Arc;

use axum::{
    extract::{FromRef, FromRequestParts, Path, rejection::PathRejection},
    http::{StatusCode, Uri, request::Parts},
};
use model::{Decision, Process, Snapshot, Verdicts};

use crate::{
    control::Decided,
    convert::View,
    problem::{self, Problem},
    source::{Fresh, Judged, Snapshots},
};

/// Extracts what most answers are made of.
pub(crate) struct Known {
    snapshot: Arc<Snapshot>,
    verdicts: Arc<Verdicts>,
    decisions: Arc<[Decision]>,
}

impl Known {
    fn view(&self) -> View<'_> {
        View::new(&self.snapshot, &self.verdicts, &self.decisions)
    }
}

impl<S> FromRequestParts<S> for Known
where
    S: Send + Sync,
    Snapshots: FromRef<S>,
    Judged: FromRef<S>,
    Decided: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Fresh(snapshot) = Fresh::from_request_parts(parts, state).await?;
        Ok(Self { snapshot, verdicts: Judged::from_ref(state).now(), decisions: Decided::from_ref(state).now() })
    }
}

/// Extracts the pid in a path. Where there is something else, there is no such path.
pub(crate) struct Pid(u32);

impl<S: Send + Sync> FromRequestParts<S> for Pid {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let pid: Result<Path<u32>, PathRejection> = Path::from_request_parts(parts, state).await;
        match pid {
            Ok(Path(pid)) => Ok(Self(pid)),
            Err(_) => Err(problem::not_found(Uri::clone(&parts.uri)).await),
        }
    }
}

/// Of the processes that had this pid the living one, else the one that ended last, unless the request says which.
fn choose(snapshot: &Snapshot, Pid(pid): Pid, start_ticks: Option<u64>) -> Result<&Process, Problem> {
    let named = snapshot.processes.iter().filter(|process| process.id.pid == pid);
    let wanted = named.filter(|process| start_ticks.is_none_or(|ticks| process.id.start_ticks == ticks));
    let latest = wanted.max_by_key(|process| (process.ended.is_none(), process.ended, process.id.start_ticks));
    latest.ok_or_else(|| {
        let which = start_ticks.map(|ticks| format!(" with start_ticks {ticks}")).unwrap_or_default();
        Problem::new(
            StatusCode::NOT_FOUND,
            format!(
                "no process {pid}{which} is known to use managed memory, nor to have used it lately; /api/v1/processes lists those that are"
            ),
        )
    })
}

//! `/api/v1`: the collector's data as JSON.
#![expect(unused_qualifications, reason = "the macros that describe the handlers write them")]

pub(crate) mod decisions;
pub(crate) mod events;
pub(crate) mod evictions;
pub(crate) mod history;
pub(crate) mod memory;
pub(crate) mod node;
pub(crate) mod ops;
pub(crate) mod overrides;
pub(crate) mod owners;
pub(crate) mod policy;
pub(crate) mod problems;
pub(crate) mod processes;
pub(crate) mod selector;
pub(crate) mod verdicts;

use axum::{
    extract::{FromRequestParts, Path, rejection::PathRejection},
    http::{Uri, request::Parts},
};
use model::{Process, Snapshot};

use crate::problem::{self, Kind, Problem};

/// Extractor of the pid in a path. Another value there is the problem of an unknown path.
#[derive(Clone, Copy, Debug)]
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

/// Chooses the process with this pid and `start_ticks`; without the latter, the running one, else
/// the one that exited last.
fn choose(snapshot: &Snapshot, Pid(pid): Pid, start_ticks: Option<u64>) -> Result<&Process, Problem> {
    let with_pid = snapshot.processes.iter().filter(|process| process.id.pid == pid);
    let matching = with_pid.filter(|process| start_ticks.is_none_or(|ticks| process.id.start_ticks == ticks));
    let latest =
        matching.max_by_key(|process| (process.exited_at.is_none(), process.exited_at, process.id.start_ticks));
    latest.ok_or_else(|| {
        let which = start_ticks.map(|ticks| format!(" with start_ticks {ticks}")).unwrap_or_default();
        Problem::new(
            Kind::NotFound,
            format!(
                "no process {pid}{which} uses managed memory, or used it recently; /api/v1/processes lists those that do"
            ),
        )
    })
}

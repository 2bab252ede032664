//! Commands that a helper still carries out although their caller has given up. Each process has one
//! place for a command, so no other command is possible until then.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use call_ring::command::Ticket;
use model::ProcessId;
use sys::Roots;

use super::ring::{Ring, RingError};
use crate::process::is_alive;

/// Stuck commands, for the workers of all GPUs.
static STUCK: Mutex<BTreeMap<ProcessId, Stuck>> = Mutex::new(BTreeMap::new());

/// Command in progress whose caller has given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stuck {
    /// The command; `None` if a former uvmd submitted it.
    ticket: Option<Ticket>,
    /// Time for which withdrawals have waited for its end.
    pub(super) waited: Duration,
}

/// State of the place of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandState {
    /// No command is in progress. `late_advice_calls`: those of a stuck command that has ended.
    Idle { late_advice_calls: u64 },
    /// A command is in progress. [`Stuck`] if a caller has given up on it.
    InProgress(Option<Stuck>),
}

/// Revokes a command that the helper has not taken, and returns whether another is in progress.
/// Called with the lock of the process.
pub(super) fn revoke_pending(process: ProcessId, ring: &Ring) -> Result<CommandState, RingError> {
    if ring.revoke_pending()? {
        return Ok(CommandState::InProgress(all().get(&process).copied()));
    }
    let ticket = all().remove(&process).and_then(|stuck| stuck.ticket);
    let response = ticket.map(|ticket| ring.response(ticket)).transpose()?.and_then(Result::ok);
    Ok(CommandState::Idle { late_advice_calls: response.map_or(0, |response| response.advice_calls) })
}

/// Time for which withdrawals have waited for the end of a command whose caller has given up.
pub(super) fn waited(process: ProcessId) -> Duration {
    all().get(&process).copied().unwrap_or_default().waited
}

/// Records that a caller has given up on a command, for which a withdrawal has waited this long.
pub(super) fn record(roots: &Roots, process: ProcessId, ticket: Option<Ticket>, waited: Duration) {
    // Without the lock: the check may wait for the process. A process that cannot be read counts as
    // alive.
    let known: Vec<ProcessId> = all().keys().copied().collect();
    let exited: Vec<ProcessId> = known.into_iter().filter(|other| !is_alive(roots, *other).unwrap_or(true)).collect();
    let mut all = all();
    all.retain(|other, _| !exited.contains(other));
    let stuck = all.entry(process).or_default();
    stuck.ticket = ticket.or(stuck.ticket);
    stuck.waited = stuck.waited.saturating_add(waited);
}

fn all() -> MutexGuard<'static, BTreeMap<ProcessId, Stuck>> {
    STUCK.lock().unwrap_or_else(PoisonError::into_inner)
}

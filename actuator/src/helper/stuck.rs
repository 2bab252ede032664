//! Commands that a helper still carries out when nobody waits for them any more. Each process has one
//! place for a command, so no other is possible meanwhile.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use call_ring::{Commands, command::Ticket};
use model::ProcessId;
use sys::Roots;

use crate::process::is_alive;

/// Those of all workers, whoever makes them.
static STUCK: Mutex<BTreeMap<ProcessId, Stuck>> = Mutex::new(BTreeMap::new());

/// A command that was left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stuck {
    /// The command; `None` if a former uvmd submitted it.
    ticket: Option<Ticket>,
    /// Time for which withdrawals have waited for its end.
    pub(super) waited: Duration,
}

/// Look at the place of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing is carried out. A command left behind has made this many advice calls since.
    Clear { late_advice_calls: u64 },
    /// A command is carried out; what is known of it if somebody has waited for it.
    Taken(Option<Stuck>),
}

/// Takes a pending command back, and looks for one that is carried out. For the worker whose turn it
/// is.
pub(super) fn look(process: ProcessId, commands: &Commands<'_>) -> Look {
    let is_taken = commands.revoke_pending();
    let mut all = all();
    if is_taken {
        return Look::Taken(all.get(&process).copied());
    }
    let response = all.remove(&process).and_then(|stuck| commands.response(stuck.ticket?).ok());
    Look::Clear { late_advice_calls: response.map_or(0, |response| response.advice_calls) }
}

/// Leaves a command behind, for which a withdrawal has waited this long.
pub(super) fn leave(roots: &Roots, process: ProcessId, ticket: Option<Ticket>, waited: Duration) {
    // Without the lock: the look may wait for the process. An unreadable one may live.
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

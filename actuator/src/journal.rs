//! Advice that may be in force, recorded before it is given. The driver retains advice after the
//! exit of the process that gave it, and has no query for it. After a uvmd was killed, its
//! successor reads here what to withdraw.
//!
//! The file has a line of JSON for each piece of advice about to be given, which is on the disk
//! before the driver's call, and one for each that was withdrawn. The latter need not be on the
//! disk: a second withdrawal is harmless. A process is identified by its id, its start time, and
//! the boot. Its advice ends with it, and its lines are removed at the next rewrite of the file.
//!
//! * `state`: everything in memory; `waiting`: pending writes; `writer`: the thread that writes
//!   them to a `storage`
//! * `intent`: advice about to be given, which waits for the disk, for a bounded time
//! * `open`, `read`, `line`: the file, of any version; `unrecognised`: lines that this version
//!   cannot apply

mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod health;
mod in_force;
mod intent;
mod line;
mod open;
mod pending;
mod read;
mod state;
mod storage;
mod unrecognised;
mod writer;

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

pub use error::JournalError;
pub use health::{JournalHealth, JournalMonitor};
use in_force::InForce;
pub(crate) use intent::Intent;
use model::{Action, Call, GpuUuid, Outcome, ProcessId, Step};
use pending::Completion;
use state::{Life, Refusal, State};
use sys::Roots;

/// Maximum wait for the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Wait of an intent. A disk without progress for this long is stuck, and others do not wait
    /// for it then.
    pub(crate) intent: Duration,
    /// Wait at the last drop of the journal, until all is written.
    pub(crate) closing: Duration,
    /// Pause after a failed write, after which it is repeated, even if nothing else is to be
    /// written: the disk may have recovered.
    pub(crate) retry: Duration,
}

impl Timeouts {
    const DEFAULT: Self =
        Self { intent: Duration::from_secs(2), closing: Duration::from_secs(1), retry: Duration::from_secs(5) };
}

/// Advice of a former run that may still be in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Process with the memory.
    pub process: ProcessId,
    /// GPU of the decision.
    pub gpu: GpuUuid,
    /// Steps that withdraw it.
    pub steps: Vec<Step>,
}

/// Journal of advice. Clones share one journal. The last drop waits a moment until all is written.
#[derive(Clone)]
pub struct Journal(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    /// Processes with advice in force that had exited when the journal was opened.
    ended: Vec<ProcessId>,
}

/// State shared by its users and the writer.
struct Shared {
    path: PathBuf,
    roots: Roots,
    timeouts: Timeouts,
    state: Mutex<State>,
    /// Signal: data were queued or written, or the last user dropped the journal.
    changed: Condvar,
    /// Path of the former file, if it had more than could be retained.
    quarantined: Option<PathBuf>,
}

impl Journal {
    /// Advice known to be in force, by process and GPU: after [`Journal::open`], that of the former
    /// run.
    #[must_use]
    pub fn leftovers(&self) -> Vec<Leftover> {
        let mut found: BTreeMap<(ProcessId, GpuUuid), Vec<Step>> = BTreeMap::new();
        for (process, gpu, begin, end, advice) in self.state().in_force.iter() {
            found.entry((process, gpu)).or_default().push(Step { begin, end, action: Action::Withdraw(advice) });
        }
        found.into_iter().map(|((process, gpu), steps)| Leftover { process, gpu, steps }).collect()
    }

    /// Processes with advice that had exited when it was opened.
    #[must_use]
    pub fn ended(&self) -> &[ProcessId] {
        &self.0.ended
    }

    /// Records the outcome of an order without new advice. Waits for no disk: a missing line at
    /// worst causes another withdrawal.
    pub(crate) fn record_outcome(&self, outcome: &Outcome) {
        self.record_results((outcome.process, outcome.gpu), &outcome.calls, None);
    }

    /// Rewrites the file with the advice in force and the unrecognised lines only. Waits like
    /// [`Journal::flush`].
    #[must_use]
    pub fn rewrite(&self, at_most: Duration) -> bool {
        self.state().pending.rewrite();
        self.0.shared.changed.notify_all();
        self.flush(at_most)
    }

    /// Waits until all is written, at most this long, and returns whether it is.
    pub fn flush(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let state = self.0.shared.wait_until(deadline, State::is_idle);
        state.is_idle() && state.last_error.is_none()
    }

    fn begin_intent(
        &self,
        (process, gpu): (ProcessId, GpuUuid),
        steps: &[Step],
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<(u64, InForce, Arc<Completion>), JournalError> {
        let path = || self.0.shared.path.clone();
        let begun = self.state().begin_intent((process, gpu), steps, self.0.shared.timeouts.intent, wake);
        self.0.shared.changed.notify_all();
        begun.map_err(|refusal| match refusal {
            Refusal::Stuck(waited) => JournalError::Stuck { path: path(), waited },
            Refusal::Full => JournalError::Full(path()),
            Refusal::Newer(version) => JournalError::Newer { path: path(), version },
        })
    }

    /// Cancels an intent of which nothing was executed.
    fn cancel(&self, number: u64, before: &InForce) {
        self.state().cancel(number, before);
        self.0.shared.changed.notify_all();
    }

    fn record_results(&self, of: (ProcessId, GpuUuid), calls: &[Call], intent: Option<(u64, InForce)>) {
        self.state().record_outcome(of, calls, intent);
        self.0.shared.changed.notify_all();
    }

    fn stuck(&self, waited: Duration) -> JournalError {
        JournalError::Stuck { path: self.0.shared.path.clone(), waited }
    }

    fn intent_timeout(&self) -> Duration {
        self.0.shared.timeouts.intent
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.shared.state()
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Journal").field(&self.0.shared.path).finish()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.state().life = Life::Closing;
        self.shared.changed.notify_all();
        drop(self.shared.wait_until(Instant::now() + self.shared.timeouts.closing, |state| state.life == Life::Closed));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, deadline: Instant, holds: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(self.state(), left, |state| !holds(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

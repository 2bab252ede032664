//! What advice may be in force, written down before it is given: the driver keeps advice whatever becomes of who gave it, and cannot be asked which
//! there is. So whoever comes after a uvmd that was killed reads here what to withdraw.
//!
//! The file has a line of JSON for each piece of advice that is about to be given, which is on the disk before the driver is called, and one for each that
//! was withdrawn. The other way round nothing has to be on the disk: what is withdrawn twice is withdrawn. A process is known by its id, when it
//! started, and the boot in which it did; with the process its advice ends too, and its lines go the next time that the file is written anew.
//!
//! * `state`: all of it in memory; `waiting`: what of it is to be written; `writer`: the thread that writes it to a `storage`
//! * `intent`: advice that is about to be given, which waits for the disk, for a bounded time
//! * `open`, `read`, `line`: the file, whoever wrote it; `unrecognised`: what of it this version cannot apply

mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod health;
mod in_force;
mod intent;
mod line;
mod open;
mod read;
mod state;
mod storage;
mod unrecognised;
mod waiting;
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
use state::{Life, Refusal, State};
use sys::Roots;
use waiting::Slot;

/// Maximum wait for the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// An intent. A disk that took nothing for so long is stuck, and others do not wait for it then.
    pub(crate) intent: Duration,
    /// Whoever drops the journal last, until all is written.
    pub(crate) closing: Duration,
}

impl Waits {
    const USUAL: Self = Self { intent: Duration::from_secs(2), closing: Duration::from_secs(1) };
}

/// Advice of a former run that may still be in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// On whose memory.
    pub process: ProcessId,
    /// At which GPU it was decided.
    pub gpu: GpuUuid,
    /// Steps that withdraw it.
    pub steps: Vec<Step>,
}

/// See the module's documentation. Clones are the same journal. Whoever drops the last waits a moment until all is written.
#[derive(Clone)]
pub struct Journal(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    /// Processes that had ended when it was opened, of those with advice in force.
    ended: Vec<ProcessId>,
}

/// State shared by its users and the writer.
struct Shared {
    path: PathBuf,
    roots: Roots,
    waits: Waits,
    state: Mutex<State>,
    /// Something waits to be written, or was written, or nobody has it any more.
    changed: Condvar,
    /// Where the file was put that had more in it than could be kept.
    set_aside: Option<PathBuf>,
}

impl Journal {
    /// Advice known to be in effect, by process and GPU: after [`Journal::open`], that of the former run.
    #[must_use]
    pub fn leftovers(&self) -> Vec<Leftover> {
        let mut found: BTreeMap<(ProcessId, GpuUuid), Vec<Step>> = BTreeMap::new();
        for (process, gpu, begin, end, advice) in self.state().in_force.iter() {
            found.entry((process, gpu)).or_default().push(Step { begin, end, action: Action::Withdraw(advice) });
        }
        found.into_iter().map(|((process, gpu), steps)| Leftover { process, gpu, steps }).collect()
    }

    /// Processes on whose memory it had advice, and which had ended when it was opened.
    #[must_use]
    pub fn ended(&self) -> &[ProcessId] {
        &self.0.ended
    }

    /// What an order came to that gave no advice. Waits for no disk: that it is not written yet does no harm, at worst something is withdrawn again.
    pub(crate) fn carried_out(&self, outcome: &Outcome) {
        self.settle((outcome.process, outcome.gpu), &outcome.calls, None);
    }

    /// Has the file written anew, with nothing in it but what is in force and what is not understood. Waits for that as [`Journal::flush`] does.
    #[must_use]
    pub fn rewrite(&self, at_most: Duration) -> bool {
        self.state().waiting.rewrite();
        self.0.shared.changed.notify_all();
        self.flush(at_most)
    }

    /// Waits until all is written, for so long at most, and says whether it is.
    pub fn flush(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let state = self.0.shared.wait_until(deadline, State::is_at_rest);
        state.is_at_rest() && state.last_error.is_none()
    }

    fn intend(
        &self,
        (process, gpu): (ProcessId, GpuUuid),
        steps: &[Step],
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<(u64, InForce, Arc<Slot>), JournalError> {
        let path = || self.0.shared.path.clone();
        let intended = self.state().intend((process, gpu), steps, self.0.shared.waits.intent, wake);
        self.0.shared.changed.notify_all();
        intended.map_err(|refusal| match refusal {
            Refusal::Stuck(waited) => JournalError::Stuck { path: path(), waited },
            Refusal::Full => JournalError::Full(path()),
            Refusal::Newer(version) => JournalError::Newer { path: path(), version },
        })
    }

    /// An intent of which nothing was carried out.
    fn cancel(&self, number: u64, before: &InForce) {
        self.state().cancel(number, before);
        self.0.shared.changed.notify_all();
    }

    fn settle(&self, of: (ProcessId, GpuUuid), calls: &[Call], intent: Option<(u64, InForce)>) {
        self.state().carried_out(of, calls, intent);
        self.0.shared.changed.notify_all();
    }

    fn stuck(&self, waited: Duration) -> JournalError {
        JournalError::Stuck { path: self.0.shared.path.clone(), waited }
    }

    fn patience(&self) -> Duration {
        self.0.shared.waits.intent
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
        drop(self.shared.wait_until(Instant::now() + self.shared.waits.closing, |state| state.life == Life::Closed));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, deadline: Instant, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(self.state(), left, |state| !is_so(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

//! Where answers are made: off the event loop, so many at a time, with so many waiting.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task,
};

use super::budget::{Budget, Reservation};
use crate::{
    peers::{Held, PeerKey, Shares},
    problem::{Kind, Problem},
};

/// A lane of its own for a kind of answers: what others ask for does not hold it up.
#[derive(Debug)]
pub(crate) struct Lane {
    builds: Arc<Semaphore>,
    /// Those who wait, and how many of a peer may.
    waiting: Shares,
    /// What an answer is expected to take before it is made.
    pub(super) expected_bytes: usize,
    /// Responses that were made.
    pub(super) built: AtomicU64,
    /// Requests turned away because no memory was to be had.
    pub(super) rejected_by_budget: AtomicU64,
    pub(super) budget: Arc<Budget>,
}

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Place {
    lane: Arc<Lane>,
    _held: Held,
}

impl Lane {
    pub(crate) fn new(builds: usize, waiting: Shares, expected_bytes: usize, budget: Budget) -> Self {
        Self {
            builds: Arc::new(Semaphore::new(builds)),
            waiting,
            expected_bytes,
            built: AtomicU64::new(0),
            rejected_by_budget: AtomicU64::new(0),
            budget: Arc::new(budget),
        }
    }

    /// A place in the queue, if there is one for this peer.
    pub(crate) fn queue(self: &Arc<Self>, asker: PeerKey) -> Result<Place, Problem> {
        let held = self.waiting.take(asker).ok_or_else(|| busy("too many responses are pending"))?;
        Ok(Place { lane: Arc::clone(self), _held: held })
    }

    /// Requests turned away because too many waited.
    pub(super) fn rejected_by_queue(&self) -> u64 {
        self.waiting.rejected()
    }

    pub(super) fn out_of_memory(&self) -> Problem {
        self.rejected_by_budget.fetch_add(1, Ordering::Relaxed);
        busy("the memory for responses is used by slow clients")
    }
}

impl Place {
    /// Waits for a turn.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit, Problem> {
        // It is never closed.
        Arc::clone(&self.lane.builds).acquire_owned().await.map_err(|_| failed())
    }

    /// Waits for a turn and for the memory of an answer. Where that is short, others have their turns meanwhile. `relieve` is as for [`Budget::reserve`].
    pub(super) async fn turn_with_memory(
        &self,
        relieve: impl Fn(),
    ) -> Result<(OwnedSemaphorePermit, Reservation), Problem> {
        let Lane { budget, expected_bytes, .. } = &*self.lane;
        let turn = self.turn().await?;
        if let Some(reservation) = budget.try_reserve(*expected_bytes) {
            return Ok((turn, reservation));
        }
        drop(turn);
        let reservation = budget.reserve(*expected_bytes, relieve).await.ok_or_else(|| self.lane.out_of_memory())?;
        Ok((self.turn().await?, reservation))
    }
}

fn busy(why: &str) -> Problem {
    Problem::new(Kind::Overloaded, format!("{why}: retry in a second")).come_back_soon()
}

/// Works where it may take its time.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    task::spawn_blocking(work).await.unwrap_or_else(|_| Err(failed()))
}

/// A mistake of ours: a panic, which the log has.
pub(crate) fn failed() -> Problem {
    Problem::new(Kind::InternalError, "uvmd failed: its log has the cause".to_owned())
}

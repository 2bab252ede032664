//! Lanes in which responses are built: off the event loop, with a limited number of builds and of
//! waiting requests.

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

/// Lane for one kind of responses, which requests of other kinds do not delay.
#[derive(Debug)]
pub(crate) struct Lane {
    builds: Arc<Semaphore>,
    /// Places in the queue, with the share of a peer.
    waiting: Shares,
    /// Expected size of a response before it is built.
    pub(super) expected_bytes: usize,
    /// Responses built.
    pub(super) built: AtomicU64,
    /// Requests rejected for want of memory.
    pub(super) rejected_by_budget: AtomicU64,
    /// Requests rejected because their source had the maximum of others.
    pub(super) rejected_by_source: AtomicU64,
    pub(super) budget: Arc<Budget>,
}

/// Place in the queue.
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
            rejected_by_source: AtomicU64::new(0),
            budget: Arc::new(budget),
        }
    }

    /// Takes a place in the queue, if there is one for this peer.
    pub(crate) fn queue(self: &Arc<Self>, peer: PeerKey) -> Result<Place, Problem> {
        let held = self.waiting.take(peer).ok_or_else(|| busy("too many responses are pending"))?;
        Ok(Place { lane: Arc::clone(self), _held: held })
    }

    /// Requests rejected because too many waited.
    pub(super) fn rejected_by_queue(&self) -> u64 {
        self.waiting.rejected()
    }

    pub(super) fn out_of_memory(&self) -> Problem {
        self.rejected_by_budget.fetch_add(1, Ordering::Relaxed);
        busy("the memory for responses is used by slow clients")
    }

    pub(super) fn busy_source(&self, reason: &str) -> Problem {
        self.rejected_by_source.fetch_add(1, Ordering::Relaxed);
        busy(reason)
    }
}

impl Place {
    /// Waits for a turn.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit, Problem> {
        // The semaphore is never closed.
        Arc::clone(&self.lane.builds).acquire_owned().await.map_err(|_| failed())
    }

    /// Waits for a turn and for the memory of a response. While memory is short, others have their
    /// turns. `relieve` is as for [`Budget::reserve`].
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

fn busy(reason: &str) -> Problem {
    Problem::new(Kind::Overloaded, format!("{reason}: retry in a second")).retry_soon()
}

/// Runs work in a thread that may block.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    task::spawn_blocking(work).await.unwrap_or_else(|_| Err(failed()))
}

/// Problem of a bug in uvmd: a panic, which is in the log.
pub(crate) fn failed() -> Problem {
    Problem::new(Kind::InternalError, "uvmd failed: its log has the cause".to_owned())
}

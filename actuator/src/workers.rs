//! Workers: a thread for each GPU, which executes its orders in sequence.
//!
//! A call of the driver waits for the target's locks, possibly for a long time: no other thread
//! waits for a worker, and one GPU's worker does not block another's.
//!
//! Withdrawals come first, and are always accepted: there is at most one for each decision in
//! force. An order that it reverts is cancelled if it waits, or stops after its current call.
//! Otherwise its advice would come into force after the withdrawal.
//!
//! Advice is in the journal before it is given. While a worker waits for that, possibly for a long
//! time on a stuck disk, it executes withdrawals.
//!
//! A hung operation gives way when a withdrawal about another process waits for the worker
//! ([`Interrupt::should_yield`](model::Interrupt::should_yield)).

mod executor;
mod queue;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use executor::Executor;
use model::{Actuator, CallResult, GpuUuid, Order, Outcome};
use queue::Queue;

use crate::{journal::Journal, uniform_outcome};

type Make = Arc<dyn Fn(GpuUuid) -> Box<dyn Actuator> + Send + Sync>;
type Off = Arc<dyn Fn() -> bool + Send + Sync>;

/// Workers of all GPUs. Its owner stops it before the drop: [`Workers::stop`].
pub struct Workers {
    make: Make,
    off: Off,
    journal: Option<Journal>,
    gpus: BTreeMap<GpuUuid, Worker>,
    outcome_sender: Sender<Outcome>,
    outcomes: Receiver<Outcome>,
}

struct Worker {
    queue: Arc<Queue>,
    thread: JoinHandle<()>,
}

impl Workers {
    /// Creates workers with an actuator per GPU, made in its thread at its first order, and again
    /// after a panic. While `off` returns true, only withdrawals are executed. Advice is in the
    /// journal before it is given; without a journal, orders must not give advice that stays.
    pub fn start(
        make: impl Fn(GpuUuid) -> Box<dyn Actuator> + Send + Sync + 'static,
        off: impl Fn() -> bool + Send + Sync + 'static,
        journal: Option<Journal>,
    ) -> Self {
        let (outcome_sender, outcomes) = mpsc::channel();
        Self { make: Arc::new(make), off: Arc::new(off), journal, gpus: BTreeMap::new(), outcome_sender, outcomes }
    }

    /// Submits an order. It always gets an outcome, even if there is no room for it.
    pub fn submit(&mut self, order: Order) {
        let queue = match self.queue(order.gpu) {
            Ok(queue) => queue,
            Err(error) => {
                let why = format!("the worker thread cannot be started: {error}");
                let _ = self.outcome_sender.send(uniform_outcome(&order, &CallResult::Failed(why)));
                return;
            }
        };
        for (order, why) in queue.push(order) {
            let outcome = match why {
                queue::Rejection::RolledBack => uniform_outcome(&order, &CallResult::Cancelled),
                queue::Rejection::Full => {
                    let why = format!("the queue of this GPU is full: {} orders wait", queue::QUEUE_MAX);
                    uniform_outcome(&order, &CallResult::Denied(why))
                }
            };
            // This side holds the other end.
            let _ = self.outcome_sender.send(outcome);
        }
    }

    /// Next outcome; waits at most this long.
    #[must_use]
    pub fn next_outcome(&self, at_most: Duration) -> Option<Outcome> {
        self.outcomes.recv_timeout(at_most).ok()
    }

    /// Cancels waiting orders except withdrawals, executes these, and ends. A worker that hangs in
    /// the driver for longer than this is abandoned. Returns the outcomes meanwhile.
    #[must_use]
    pub fn stop(self, at_most: Duration) -> Vec<Outcome> {
        let deadline = Instant::now() + at_most;
        for worker in self.gpus.values() {
            worker.queue.close();
        }
        for (gpu, worker) in self.gpus {
            while !worker.thread.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            if !worker.thread.is_finished() {
                tracing::warn!("the calls at {gpu} have not ended: their worker is abandoned");
            }
        }
        self.outcomes.try_iter().collect()
    }

    fn queue(&mut self, gpu: GpuUuid) -> std::io::Result<&Queue> {
        use std::collections::btree_map::Entry;

        let worker = match self.gpus.entry(gpu) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let queue = Arc::new(Queue::default());
                let executor = Executor {
                    gpu,
                    make: Arc::clone(&self.make),
                    off: Arc::clone(&self.off),
                    journal: self.journal.clone(),
                    orders: Arc::clone(&queue),
                    outcome_sender: self.outcome_sender.clone(),
                    actuator: None,
                };
                let thread = thread::Builder::new().name("actuator".to_owned()).spawn(move || executor.run())?;
                entry.insert(Worker { queue, thread })
            }
        };
        Ok(&worker.queue)
    }
}

#[cfg(test)]
mod tests;

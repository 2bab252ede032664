//! Queues of operations, each with a thread of its own.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use crate::{Error, errors::complain, executor::Executor, operation::Operation};

/// Queue, whose operations are performed one after the other.
#[derive(Debug)]
pub(crate) struct Queue {
    name: String,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    pushed: u64,
    done: u64,
    has_worker: bool,
    closed: bool,
}

#[derive(Debug)]
struct Job {
    waits: Vec<Point>,
    operation: Operation,
}

/// Place in a queue: reached when what was pushed before is done.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    queue: Arc<Shared>,
    number: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Point {
    /// Whether it is reached.
    pub(crate) fn is_reached(&self) -> bool {
        self.queue.lock().done >= self.number
    }

    /// Waits until it is reached.
    pub(crate) fn wait(&self) {
        let mut state = self.queue.lock();
        while state.done < self.number {
            state = self.queue.wait(state);
        }
    }
}

impl Queue {
    /// Empty queue, whose thread has this name.
    pub(crate) fn new(name: String) -> Self {
        Self { name, shared: Arc::default() }
    }

    /// Point behind all that was pushed so far.
    pub(crate) fn tail(&self) -> Point {
        Point { queue: Arc::clone(&self.shared), number: self.shared.lock().pushed }
    }

    /// Adds an operation behind all of the queue, and behind these points, which were taken before.
    pub(crate) fn push(&self, executor: &Arc<Executor>, mut waits: Vec<Point>, operation: Operation) -> Point {
        waits.retain(|point| !Arc::ptr_eq(&point.queue, &self.shared) && !point.is_reached());
        let mut state = self.shared.lock();
        state.pushed += 1;
        let point = Point { queue: Arc::clone(&self.shared), number: state.pushed };
        if state.closed {
            // The context is being destroyed: nothing runs any more.
            state.done = state.pushed;
            return point;
        }
        if state.jobs.is_empty() && state.done + 1 == state.pushed && waits.is_empty() && operation.is_instant() {
            // Nothing to wait for, so that no thread is needed.
            executor.perform(&operation);
            state.done = state.pushed;
            return point;
        }
        state.jobs.push_back(Job { waits, operation });
        if state.has_worker {
            self.shared.changed.notify_all();
        } else {
            state.has_worker = true;
            let (shared, executor) = (Arc::clone(&self.shared), Arc::clone(executor));
            if let Err(error) = thread::Builder::new().name(self.name.clone()).spawn(move || work(&shared, &executor)) {
                complain(&format!("no thread for a stream: {error}"));
                state.jobs.clear();
                state.has_worker = false;
                state.done = state.pushed;
            }
        }
        point
    }

    /// Lets the thread end when the queue is empty.
    pub(crate) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

/// Performs the operations of a queue, one after the other.
fn work(queue: &Shared, executor: &Executor) {
    loop {
        let mut state = queue.lock();
        let job = loop {
            if let Some(job) = state.jobs.pop_front() {
                break job;
            }
            if state.closed {
                return;
            }
            state = queue.wait(state);
        };
        drop(state);
        job.waits.iter().for_each(Point::wait);
        let performed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| executor.perform(&job.operation)));
        if performed.is_err() {
            executor.fail(Error::CUDA_ERROR_LAUNCH_FAILED);
        }
        queue.lock().done += 1;
        queue.changed.notify_all();
    }
}

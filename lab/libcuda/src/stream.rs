//! Streams: queues of operations, each with a thread of its own.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
};

use crate::{
    Error, Result,
    context::Context,
    graph::Capture,
    handle::{self, Handle},
    operation::Operation,
};

/// Which other streams of its context a stream waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The legacy default stream: waits for all blocking streams, and these for it.
    Legacy,
    /// Blocking.
    Blocking,
    /// `CU_STREAM_NON_BLOCKING`.
    NonBlocking,
}

/// Stream of a context.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Handle.
    pub(crate) handle: Handle,
    /// Number among all streams.
    pub(crate) id: u64,
    /// Order.
    pub(crate) order: Order,
    /// Priority, which is kept alone.
    pub(crate) priority: i32,
    /// Context.
    pub(crate) context: Weak<Context>,
    /// Graph that is being captured.
    pub(crate) capture: Mutex<Option<Capture>>,
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
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
    queue: Arc<Queue>,
    number: u64,
}

impl Queue {
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

impl Stream {
    /// Empty stream.
    pub(crate) fn new(context: Weak<Context>, id: u64, order: Order, priority: i32) -> Self {
        let queue = Arc::default();
        Self { handle: handle::fresh(), id, order, priority, context, capture: Mutex::new(None), queue }
    }

    /// Context, unless it is destroyed.
    ///
    /// # Errors
    /// It is.
    pub(crate) fn context(&self) -> Result<Arc<Context>> {
        self.context.upgrade().ok_or(Error::CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// Point behind all that was pushed so far.
    pub(crate) fn tail(&self) -> Point {
        Point { queue: Arc::clone(&self.queue), number: self.queue.lock().pushed }
    }

    /// Adds an operation behind all of the stream, and behind these points, which were taken
    /// before. [`Context::push`] adds what the stream's order asks for.
    pub(crate) fn enqueue(&self, context: &Arc<Context>, mut waits: Vec<Point>, operation: Operation) -> Point {
        waits.retain(|point| !Arc::ptr_eq(&point.queue, &self.queue) && !point.is_reached());
        let mut state = self.queue.lock();
        state.pushed += 1;
        let point = Point { queue: Arc::clone(&self.queue), number: state.pushed };
        if state.closed {
            // The context is being destroyed: nothing runs any more.
            state.done = state.pushed;
            return point;
        }
        if state.jobs.is_empty() && state.done + 1 == state.pushed && waits.is_empty() && operation.is_instant() {
            // Nothing to wait for, so that no thread is needed.
            operation.perform(context);
            state.done = state.pushed;
            return point;
        }
        state.jobs.push_back(Job { waits, operation });
        if state.has_worker {
            self.queue.changed.notify_all();
        } else {
            state.has_worker = true;
            let (queue, context) = (Arc::clone(&self.queue), Arc::clone(context));
            let name = format!("cuda-stream-{}", self.id);
            if let Err(error) = thread::Builder::new().name(name).spawn(move || work(&queue, &context)) {
                crate::errors::complain(&format!("no thread for a stream: {error}"));
                state.jobs.clear();
                state.has_worker = false;
                state.done = state.pushed;
            }
        }
        point
    }

    /// Lets the thread end when the queue is empty.
    pub(crate) fn close(&self) {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
    }
}

/// Performs the operations of a queue, one after the other.
fn work(queue: &Queue, context: &Arc<Context>) {
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
        let performed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.operation.perform(context)));
        if performed.is_err() {
            context.fail(Error::CUDA_ERROR_LAUNCH_FAILED);
        }
        queue.lock().done += 1;
        queue.changed.notify_all();
    }
}

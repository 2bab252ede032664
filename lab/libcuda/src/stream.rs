//! Streams of contexts.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    executor::Executor,
    graph::Capture,
    handle::{self, Handle},
    operation::Operation,
    queue::{Point, Queue},
};

static IDS: AtomicU64 = AtomicU64::new(1);

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
    pub(crate) context: Handle,
    /// Graph that is being captured.
    pub(crate) capture: Mutex<Option<Capture>>,
    queue: Queue,
}

impl Stream {
    /// Empty stream of a context.
    pub(crate) fn new(context: Handle, order: Order, priority: i32) -> Self {
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let queue = Queue::new(format!("cuda-stream-{id}"));
        Self { handle: handle::fresh(), id, order, priority, context, capture: Mutex::new(None), queue }
    }

    /// Point behind all that was pushed so far.
    pub(crate) fn tail(&self) -> Point {
        self.queue.tail()
    }

    /// Adds an operation behind all of the stream, and behind these points, which were taken
    /// before. The context adds the points that the stream's order asks for.
    pub(crate) fn enqueue(&self, executor: &Arc<Executor>, waits: Vec<Point>, operation: Operation) -> Point {
        self.queue.push(executor, waits, operation)
    }

    /// Lets the thread end when the queue is empty.
    pub(crate) fn close(&self) {
        self.queue.close();
    }
}

//! Contexts: streams of a device that wait for each other, and fail together.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
};

use crate::{
    Error, Result,
    event::Event,
    executor::Executor,
    graph::Content,
    handle::{self, Handle},
    heap::DeviceHeap,
    machine::Machine,
    memory::Owner,
    operation::{Operation, Time},
    queue::Point,
    stream::{Order, Stream},
};

static IDS: AtomicU64 = AtomicU64::new(1);

/// Context of a device.
#[derive(Debug)]
pub(crate) struct Context {
    /// Handle.
    pub(crate) handle: Handle,
    /// Number among all contexts.
    pub(crate) id: u64,
    /// Device.
    pub(crate) device: usize,
    /// Flags of its making.
    pub(crate) flags: AtomicU32,
    /// Limits that were set, by number.
    pub(crate) limits: Mutex<HashMap<u32, u64>>,
    executor: Arc<Executor>,
    legacy: Arc<Stream>,
    streams: Mutex<Vec<Weak<Stream>>>,
    per_thread: Mutex<HashMap<ThreadId, Arc<Stream>>>,
    /// Streams that were destroyed before their work was done.
    ending: Mutex<Vec<Arc<Stream>>>,
    /// Held while an operation's waits are gathered and it is pushed.
    order: Mutex<()>,
}

/// Primary context of a device.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// Context, while it is retained.
    pub(crate) context: Option<Arc<Context>>,
    /// How often it is retained.
    pub(crate) retained: u32,
    /// Flags for it.
    pub(crate) flags: u32,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// New context on a device.
    pub(crate) fn new(machine: Arc<Machine>, device: usize, flags: u32) -> Self {
        let handle = handle::fresh();
        Self {
            handle,
            id: IDS.fetch_add(1, Ordering::Relaxed),
            device,
            flags: AtomicU32::new(flags),
            limits: Mutex::default(),
            executor: Arc::new(Executor::new(machine, device)),
            legacy: Arc::new(Stream::new(handle, Order::Legacy, 0)),
            streams: Mutex::default(),
            per_thread: Mutex::default(),
            ending: Mutex::default(),
            order: Mutex::default(),
        }
    }

    /// Owner of what is allocated in it.
    pub(crate) const fn owner(&self) -> Owner {
        Owner { context: self.handle, device: self.device, pool: None, flags: 0 }
    }

    /// What its kernels allocate from.
    pub(crate) fn heap(&self) -> &DeviceHeap {
        &self.executor.heap
    }

    /// New stream.
    pub(crate) fn create_stream(&self, order: Order, priority: i32) -> Arc<Stream> {
        let stream = Arc::new(Stream::new(self.handle, order, priority));
        let mut streams = locked(&self.streams);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(&stream));
        stream
    }

    /// Legacy default stream.
    pub(crate) fn legacy(&self) -> &Arc<Stream> {
        &self.legacy
    }

    /// Default stream of the calling thread.
    pub(crate) fn per_thread(&self) -> Arc<Stream> {
        let mut per_thread = locked(&self.per_thread);
        let stream = per_thread.entry(thread::current().id());
        Arc::clone(stream.or_insert_with(|| self.create_stream(Order::Blocking, 0)))
    }

    fn blocking(&self) -> Vec<Arc<Stream>> {
        let streams = locked(&self.streams);
        streams.iter().filter_map(Weak::upgrade).filter(|stream| stream.order == Order::Blocking).collect()
    }

    /// Adds an operation to a stream, behind what the stream's order asks for and behind these
    /// points.
    pub(crate) fn push(&self, stream: &Stream, mut waits: Vec<Point>, operation: Operation) -> Point {
        let _order = locked(&self.order);
        match stream.order {
            Order::Legacy => waits.extend(self.blocking().iter().map(|stream| stream.tail())),
            Order::Blocking => waits.push(self.legacy.tail()),
            Order::NonBlocking => {}
        }
        stream.enqueue(&self.executor, waits, operation)
    }

    /// Adds an operation to a stream, or to the graph that is captured of it.
    ///
    /// # Errors
    /// It cannot be captured.
    pub(crate) fn submit(&self, stream: &Stream, operation: Operation) -> Result<Option<Point>> {
        let mut capture = locked(&stream.capture);
        let Some(capture) = capture.as_mut() else {
            return Ok(Some(self.push(stream, Vec::new(), operation)));
        };
        if !operation.can_be_captured() {
            return Err(Error::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let node = capture.graph.add(Content::Operation(operation), capture.last.clone())?;
        capture.last = vec![node];
        Ok(None)
    }

    /// Records an event in a stream.
    pub(crate) fn record(&self, event: &Event, stream: &Stream) {
        let time = Time::default();
        let point = self.push(stream, Vec::new(), Operation::Record(Arc::clone(&time)));
        event.set_recorded(point, time);
    }

    /// Has a stream wait for the last record of an event, if there is one.
    pub(crate) fn wait_for(&self, event: &Event, stream: &Stream) {
        self.push(stream, event.point().into_iter().collect(), Operation::Nothing);
    }

    /// Whether a stream, and what the legacy stream waits for, is done.
    pub(crate) fn is_idle(&self, stream: &Stream) -> bool {
        let blocking = if stream.order == Order::Legacy { self.blocking() } else { Vec::new() };
        stream.tail().is_reached() && blocking.iter().all(|stream| stream.tail().is_reached())
    }

    /// Waits until all operations of a stream are done.
    ///
    /// # Errors
    /// One failed, in any stream of the context.
    pub(crate) fn wait(&self, stream: &Stream) -> Result<()> {
        let blocking = if stream.order == Order::Legacy { self.blocking() } else { Vec::new() };
        for stream in blocking {
            stream.tail().wait();
        }
        stream.tail().wait();
        self.check()
    }

    /// Waits for all streams.
    ///
    /// # Errors
    /// An operation failed.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.wait_for_streams();
        self.check()
    }

    /// Waits for all streams, whatever becomes of their operations.
    pub(crate) fn wait_for_streams(&self) {
        for stream in self.streams() {
            stream.tail().wait();
        }
    }

    /// All streams that there are.
    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        let mut all: Vec<_> = locked(&self.streams).iter().filter_map(Weak::upgrade).collect();
        all.push(Arc::clone(&self.legacy));
        all
    }

    /// Lets a stream end when its work is done.
    pub(crate) fn leave_to_end(&self, stream: &Arc<Stream>) {
        let mut ending = locked(&self.ending);
        ending.retain(|stream| !stream.tail().is_reached());
        if !stream.tail().is_reached() {
            ending.push(Arc::clone(stream));
        }
        locked(&self.per_thread).retain(|_, own| !Arc::ptr_eq(own, stream));
        stream.close();
    }

    /// Checks that no error ended it.
    ///
    /// # Errors
    /// The error.
    pub(crate) fn check(&self) -> Result<()> {
        self.executor.error().map_or(Ok(()), Err)
    }

    /// Waits for all streams, and lets them end; returns their handles.
    pub(crate) fn close(&self) -> Vec<Handle> {
        let streams = self.streams();
        for stream in &streams {
            stream.tail().wait();
            stream.close();
        }
        locked(&self.per_thread).clear();
        streams.iter().map(|stream| stream.handle).collect()
    }
}

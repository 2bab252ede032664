//! Contexts, and which is current.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
};

use crate::{
    Error, Result,
    driver::Driver,
    graph::Content,
    handle::{self, Handle},
    operation::Operation,
    stream::{Order, Point, Stream},
};

static STREAM_IDS: AtomicU64 = AtomicU64::new(1);
static CONTEXT_IDS: AtomicU64 = AtomicU64::new(1);

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
    error: OnceLock<Error>,
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

fn next_stream_id() -> u64 {
    STREAM_IDS.fetch_add(1, Ordering::Relaxed)
}

impl Context {
    /// New context, known to the driver.
    pub(crate) fn create(driver: &Driver, device: usize, flags: u32) -> Arc<Self> {
        let context = Arc::new_cyclic(|weak: &Weak<Self>| Self {
            handle: handle::fresh(),
            id: CONTEXT_IDS.fetch_add(1, Ordering::Relaxed),
            device,
            flags: AtomicU32::new(flags),
            limits: Mutex::default(),
            error: OnceLock::new(),
            legacy: Arc::new(Stream::new(weak.clone(), next_stream_id(), Order::Legacy, 0)),
            streams: Mutex::default(),
            per_thread: Mutex::default(),
            ending: Mutex::default(),
            order: Mutex::default(),
        });
        driver.contexts.add(context.handle, Arc::clone(&context));
        driver.streams.add(context.legacy.handle, Arc::clone(&context.legacy));
        context
    }

    /// New stream, known to the driver.
    pub(crate) fn create_stream(self: &Arc<Self>, driver: &Driver, order: Order, priority: i32) -> Arc<Stream> {
        let stream = Arc::new(Stream::new(Arc::downgrade(self), next_stream_id(), order, priority));
        let mut streams = locked(&self.streams);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(&stream));
        driver.streams.add(stream.handle, Arc::clone(&stream));
        stream
    }

    /// Legacy default stream.
    pub(crate) fn legacy(&self) -> &Arc<Stream> {
        &self.legacy
    }

    /// Default stream of the calling thread.
    pub(crate) fn per_thread(self: &Arc<Self>, driver: &Driver) -> Arc<Stream> {
        let mut per_thread = locked(&self.per_thread);
        let stream = per_thread.entry(thread::current().id());
        Arc::clone(stream.or_insert_with(|| self.create_stream(driver, Order::Blocking, 0)))
    }

    fn blocking(&self) -> Vec<Arc<Stream>> {
        let streams = locked(&self.streams);
        streams.iter().filter_map(Weak::upgrade).filter(|stream| stream.order == Order::Blocking).collect()
    }

    /// Adds an operation to a stream, behind what the stream's order asks for and behind these
    /// points.
    pub(crate) fn push(self: &Arc<Self>, stream: &Stream, mut waits: Vec<Point>, operation: Operation) -> Point {
        let _order = locked(&self.order);
        match stream.order {
            Order::Legacy => waits.extend(self.blocking().iter().map(|stream| stream.tail())),
            Order::Blocking => waits.push(self.legacy.tail()),
            Order::NonBlocking => {}
        }
        stream.enqueue(self, waits, operation)
    }

    /// Adds an operation to a stream, or to the graph that is captured of it.
    ///
    /// # Errors
    /// It cannot be captured.
    pub(crate) fn submit(
        self: &Arc<Self>,
        driver: &Driver,
        stream: &Stream,
        operation: Operation,
    ) -> Result<Option<Point>> {
        let mut capture = locked(&stream.capture);
        let Some(capture) = capture.as_mut() else {
            return Ok(Some(self.push(stream, Vec::new(), operation)));
        };
        if matches!(operation, Operation::Migrate(..) | Operation::Free(_) | Operation::Callback(_)) {
            return Err(Error::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let node = capture.graph.add(driver, Content::Operation(operation), capture.last.clone())?;
        capture.last = vec![node];
        Ok(None)
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
        for stream in self.all_streams() {
            stream.tail().wait();
        }
        self.check()
    }

    fn all_streams(&self) -> Vec<Arc<Stream>> {
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

    /// Error that ended it, if any.
    pub(crate) fn error(&self) -> Option<Error> {
        self.error.get().copied()
    }

    /// Ends it by an error, unless another has.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.error.set(error);
    }

    /// Checks that no error ended it.
    ///
    /// # Errors
    /// The error.
    pub(crate) fn check(&self) -> Result<()> {
        self.error().map_or(Ok(()), Err)
    }

    /// Frees all that it has, after its streams are done.
    pub(crate) fn destroy(self: &Arc<Self>, driver: &Driver) {
        for stream in self.all_streams() {
            stream.tail().wait();
            stream.close();
            driver.streams.remove(stream.handle);
        }
        locked(&self.per_thread).clear();
        let modules = driver.modules.all().iter().filter(|module| module.context == self.handle).count();
        let mut left = driver.memory.all();
        left.retain(|block| block.context == self.handle);
        for block in &left {
            driver.memory.free(driver.backend.as_ref(), block);
        }
        driver.functions.retain(|function| function.context != self.handle);
        driver.modules.retain(|module| module.context != self.handle);
        for library in driver.libraries.all() {
            library.forget(self.handle);
        }
        driver.contexts.remove(self.handle);
        driver.log.write(
            "context_destroy",
            0,
            || serde_json::json!({ "context": self.id, "blocks_left": left.len(), "modules_left": modules }),
        );
        driver.log.flush();
    }
}

thread_local! {
    static CURRENT: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

fn with_stack<T>(work: impl FnOnce(&mut Vec<Handle>) -> T) -> Result<T> {
    // A thread that ends has no contexts any more.
    CURRENT.try_with(|stack| work(&mut stack.borrow_mut())).map_err(|_| Error::CUDA_ERROR_DEINITIALIZED)
}

/// Context that is current to the calling thread.
///
/// # Errors
/// None is, or it was destroyed.
pub(crate) fn current(driver: &Driver) -> Result<Arc<Context>> {
    let top = with_stack(|stack| stack.last().copied())?.filter(|handle| *handle != 0);
    let handle = top.ok_or(Error::CUDA_ERROR_INVALID_CONTEXT)?;
    driver.contexts.get(handle).ok_or(Error::CUDA_ERROR_CONTEXT_IS_DESTROYED)
}

/// Handle on top of the calling thread's stack; 0 if there is none.
pub(crate) fn top() -> Result<Handle> {
    with_stack(|stack| stack.last().copied().unwrap_or(0))
}

/// Replaces the top of the stack; 0 empties it.
pub(crate) fn set_top(handle: Handle) -> Result<()> {
    with_stack(|stack| {
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
    })
}

/// Pushes a context.
pub(crate) fn push(handle: Handle) -> Result<()> {
    with_stack(|stack| stack.push(handle))
}

/// Pops a context.
///
/// # Errors
/// There is none.
pub(crate) fn pop() -> Result<Handle> {
    with_stack(Vec::pop)?.ok_or(Error::CUDA_ERROR_INVALID_CONTEXT)
}

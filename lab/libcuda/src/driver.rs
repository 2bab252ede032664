//! The driver: what is one of in a process.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ptx::Counts;

use crate::{
    Error, Result,
    backend::{self, Backend},
    context::{Context, Primary},
    errors::{complain, of_backend},
    event::Event,
    graph::{Executable, Graph, NodeOwner},
    handle::Table,
    linker::Link,
    log::Log,
    memory::Memory,
    module::{Function, Library, LibraryKernel, Module},
    pool::Pool,
    settings::Settings,
    stream::Stream,
};

/// Version of the driver API, as 1000 · major + 10 · minor.
pub(crate) const VERSION: i32 = 12090;

/// Driver of this process.
pub(crate) struct Driver {
    /// GPUs.
    pub(crate) backend: Box<dyn Backend>,
    /// Settings.
    pub(crate) settings: Settings,
    /// Log.
    pub(crate) log: Log,
    /// Allocations.
    pub(crate) memory: Memory,
    /// Sums over all kernels.
    pub(crate) statistics: Statistics,
    /// Primary contexts by device.
    pub(crate) primaries: Vec<Mutex<Primary>>,
    /// Contexts.
    pub(crate) contexts: Table<Context>,
    /// Streams.
    pub(crate) streams: Table<Stream>,
    /// Events.
    pub(crate) events: Table<Event>,
    /// Modules.
    pub(crate) modules: Table<Module>,
    /// Kernels of modules.
    pub(crate) functions: Table<Function>,
    /// Libraries.
    pub(crate) libraries: Table<Library>,
    /// Kernels of libraries.
    pub(crate) kernels: Table<LibraryKernel>,
    /// Links.
    pub(crate) links: Table<Link>,
    /// Graphs.
    pub(crate) graphs: Table<Graph>,
    /// Graphs of nodes.
    pub(crate) nodes: Table<NodeOwner>,
    /// Executable graphs.
    pub(crate) executables: Table<Executable>,
    /// Memory pools.
    pub(crate) pools: Table<Pool>,
    /// Default pool and current pool by device.
    pub(crate) device_pools: Vec<(Arc<Pool>, Mutex<Arc<Pool>>)>,
    engines: Vec<Engines>,
    process: u32,
}

/// Engines of a device, which do one thing at a time.
#[derive(Debug, Default)]
pub(crate) struct Engines {
    /// Runs kernels.
    pub(crate) compute: Mutex<()>,
    /// Moves managed memory.
    pub(crate) migration: Mutex<()>,
}

/// Sums over all kernels.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    launches: AtomicU64,
    thread_instructions: AtomicU64,
    loads: AtomicU64,
    stores: AtomicU64,
    atomics: AtomicU64,
    kernel_ns: AtomicU64,
}

impl Statistics {
    /// Adds a kernel.
    pub(crate) fn add(&self, counts: &Counts, time: Duration) {
        let add = |sum: &AtomicU64, value: u64| sum.fetch_add(value, Ordering::Relaxed);
        add(&self.launches, 1);
        add(&self.thread_instructions, counts.thread_instructions);
        add(&self.loads, counts.loads);
        add(&self.stores, counts.stores);
        add(&self.atomics, counts.atomics);
        add(&self.kernel_ns, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    fn line(&self) -> String {
        let of = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        format!(
            "{} kernels, {} thread instructions, {} loads, {} stores, {} atomics, {:.3} s",
            of(&self.launches),
            of(&self.thread_instructions),
            of(&self.loads),
            of(&self.stores),
            of(&self.atomics),
            of(&self.kernel_ns) as f64 / 1e9
        )
    }
}

static DRIVER: OnceLock<std::result::Result<Driver, Error>> = OnceLock::new();

/// Driver, started by the first call.
///
/// # Errors
/// There is no device, or the backend does not start.
pub(crate) fn start() -> Result<&'static Driver> {
    let driver = DRIVER.get_or_init(Driver::new).as_ref().map_err(|error| *error)?;
    driver.check_process()?;
    Ok(driver)
}

/// Driver that was started in this process.
///
/// # Errors
/// It was not, or in a process of which this one is a fork.
pub(crate) fn get() -> Result<&'static Driver> {
    let driver = DRIVER.get().and_then(|driver| driver.as_ref().ok()).ok_or(Error::CUDA_ERROR_NOT_INITIALIZED)?;
    driver.check_process()?;
    Ok(driver)
}

/// Does something with the driver, if it was started.
pub(crate) fn with(work: impl FnOnce(&'static Driver)) {
    if let Ok(driver) = get() {
        work(driver);
    }
}

impl Driver {
    fn new() -> Result<Self> {
        let settings = Settings::from_environment();
        if settings.devices == 0 {
            return Err(Error::CUDA_ERROR_NO_DEVICE);
        }
        let backend = backend::of_machine(&settings).map_err(of_backend)?;
        let count = backend.devices().len();
        let pools = Table::default();
        let device_pools = (0..count).map(|device| {
            let pool = Arc::new(Pool::new(device));
            pools.add(pool.handle, Arc::clone(&pool));
            (Arc::clone(&pool), Mutex::new(pool))
        });
        let device_pools = device_pools.collect();
        at_exit();
        Ok(Self {
            log: Log::new(settings.log.as_deref()),
            backend,
            settings,
            memory: Memory::default(),
            statistics: Statistics::default(),
            primaries: (0..count).map(|_| Mutex::default()).collect(),
            contexts: Table::default(),
            streams: Table::default(),
            events: Table::default(),
            modules: Table::default(),
            functions: Table::default(),
            libraries: Table::default(),
            kernels: Table::default(),
            links: Table::default(),
            graphs: Table::default(),
            nodes: Table::default(),
            executables: Table::default(),
            pools,
            device_pools,
            engines: (0..count).map(|_| Engines::default()).collect(),
            process: std::process::id(),
        })
    }

    /// A fork has the memory, but not the threads: nothing works in it.
    fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() { Ok(()) } else { Err(Error::CUDA_ERROR_NOT_INITIALIZED) }
    }

    /// Engines of a device.
    ///
    /// # Errors
    /// There is no such device.
    pub(crate) fn engines(&self, device: usize) -> Result<&Engines> {
        self.engines.get(device).ok_or(Error::CUDA_ERROR_INVALID_DEVICE)
    }

    /// Waits for all streams of all contexts.
    pub(crate) fn wait_for_all(&self) {
        for stream in self.streams.all() {
            stream.tail().wait();
        }
    }
}

/// Has the log written, and statistics told, when the process exits.
fn at_exit() {
    extern "C" fn finish() {
        with(|driver| {
            driver.log.flush();
            if driver.settings.stats {
                complain(&driver.statistics.line());
            }
        });
    }
    #[expect(unsafe_code, reason = "the standard library has nothing that runs at exit")]
    // SAFETY: the function stays loaded, since the library is linked with -z nodelete.
    unsafe {
        libc::atexit(finish)
    };
}

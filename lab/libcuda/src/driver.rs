//! The driver: what is one of in a process.

use std::sync::{Arc, Mutex, OnceLock};

use crate::{
    Error, Result,
    context::{Context, Primary},
    current,
    errors::complain,
    event::Event,
    graph::Graphs,
    handle::{Handle, Table},
    library::Libraries,
    linker::Link,
    machine::Machine,
    module::{Function, Modules},
    pool::Pool,
    settings::Settings,
    stream::Stream,
};

/// Driver of this process.
pub(crate) struct Driver {
    /// GPUs and their memory.
    pub(crate) machine: Arc<Machine>,
    /// Primary contexts by device.
    pub(crate) primaries: Vec<Mutex<Primary>>,
    /// Contexts.
    pub(crate) contexts: Table<Context>,
    /// Streams that programs have handles of.
    pub(crate) streams: Table<Stream>,
    /// Events.
    pub(crate) events: Table<Event>,
    /// Modules.
    pub(crate) modules: Modules,
    /// Libraries.
    pub(crate) libraries: Libraries,
    /// Links.
    pub(crate) links: Table<Link>,
    /// Graphs.
    pub(crate) graphs: Graphs,
    /// Memory pools.
    pub(crate) pools: Table<Pool>,
    /// Default pool and current pool by device.
    pub(crate) device_pools: Vec<(Arc<Pool>, Mutex<Arc<Pool>>)>,
    process: u32,
}

static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();

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

impl Driver {
    fn new() -> Result<Self> {
        let machine = Arc::new(Machine::start(Settings::from_environment())?);
        let count = machine.backend.devices().len();
        let pools = Table::default();
        let device_pools = (0..count).map(|device| {
            let pool = Arc::new(Pool::new(device));
            pools.add(pool.handle, Arc::clone(&pool));
            (Arc::clone(&pool), Mutex::new(pool))
        });
        let device_pools = device_pools.collect();
        if machine.settings.stats {
            at_exit();
        }
        Ok(Self {
            machine,
            primaries: (0..count).map(|_| Mutex::default()).collect(),
            contexts: Table::default(),
            streams: Table::default(),
            events: Table::default(),
            modules: Modules::default(),
            libraries: Libraries::default(),
            links: Table::default(),
            graphs: Graphs::default(),
            pools,
            device_pools,
            process: std::process::id(),
        })
    }

    /// A fork has the memory, but not the threads: nothing works in it.
    fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() { Ok(()) } else { Err(Error::CUDA_ERROR_NOT_INITIALIZED) }
    }

    /// Context that is current to the calling thread.
    ///
    /// # Errors
    /// None is, or it was destroyed.
    pub(crate) fn current(&self) -> Result<Arc<Context>> {
        let handle = Some(current::top()?).filter(|handle| *handle != 0).ok_or(Error::CUDA_ERROR_INVALID_CONTEXT)?;
        self.contexts.get(handle).ok_or(Error::CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// New context on a device.
    pub(crate) fn create_context(&self, device: usize, flags: u32) -> Arc<Context> {
        let context = Arc::new(Context::new(Arc::clone(&self.machine), device, flags));
        self.contexts.add(context.handle, Arc::clone(&context));
        context
    }

    /// Frees all that a context has, after its streams are done.
    pub(crate) fn destroy_context(&self, context: &Context) {
        for stream in context.close() {
            self.streams.remove(stream);
        }
        context.heap().release(&self.machine);
        let machine = &self.machine;
        let mut left = machine.memory.all();
        left.retain(|block| block.context == context.handle);
        left.sort_by_key(|block| block.range.address);
        let variables = self.modules.variables(context.handle);
        for block in &left {
            machine.memory.free(machine.backend.as_ref(), block);
        }
        let modules_left = self.modules.forget(context.handle);
        self.libraries.forget(context.handle);
        self.contexts.remove(context.handle);
        machine.log.write("context_destroy", 0, || {
            let addresses = left.iter().map(|block| block.range.address);
            let addresses: Vec<u64> = addresses.filter(|address| !variables.contains(address)).collect();
            serde_json::json!({ "context": context.id, "freed": addresses, "modules_left": modules_left })
        });
    }

    /// Kernel of a handle, which is of a module, or of a library that is loaded into the context.
    ///
    /// # Errors
    /// Neither, or the library does not load.
    pub(crate) fn function(&self, context: &Context, handle: Handle) -> Result<Arc<Function>> {
        self.libraries.function(&self.machine, &self.modules, context.owner(), handle)
    }

    /// Waits for all streams of all contexts.
    pub(crate) fn wait_for_all(&self) {
        for context in self.contexts.all() {
            context.wait_for_streams();
        }
    }
}

/// Has the statistics printed when the process exits.
fn at_exit() {
    extern "C" fn finish() {
        if let Ok(driver) = get() {
            complain(&driver.machine.statistics.line());
        }
    }
    #[expect(unsafe_code, reason = "the standard library has nothing that runs at exit")]
    // SAFETY: the function stays loaded, since the library is linked with -z nodelete.
    unsafe {
        libc::atexit(finish)
    };
}

//! Modules: linked PTX with its variables and kernels; libraries, which are modules of every
//! context.

use std::{
    collections::HashMap,
    ffi::CString,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
};

use ptx::{Kernel, Linked, Ptx};
use serde_json::json;

use crate::{
    Error, Result,
    backend::Kind,
    context::Context,
    driver::Driver,
    errors::complain,
    handle::{self, Handle},
    memory::{Block, Owner},
    place::{Place, Staged},
};

/// Module of a context.
#[derive(Debug)]
pub(crate) struct Module {
    /// Handle.
    pub(crate) handle: Handle,
    /// Context.
    pub(crate) context: Handle,
    placed: ptx::Module,
    /// Memory of its variables.
    variables: Option<Arc<Block>>,
    functions: Vec<Arc<Function>>,
}

/// Kernel of a module.
#[derive(Debug)]
pub(crate) struct Function {
    /// Handle.
    pub(crate) handle: Handle,
    /// Kernel.
    pub(crate) kernel: Arc<Kernel>,
    /// Name, as the ABI has it.
    pub(crate) name: CString,
    /// Module.
    pub(crate) module: Handle,
    /// Context.
    pub(crate) context: Handle,
    /// What was set.
    pub(crate) settings: FunctionSettings,
}

/// Attributes of a kernel that can be set.
#[derive(Debug)]
pub(crate) struct FunctionSettings {
    /// Most dynamic shared memory, in bytes.
    pub(crate) dynamic_shared_bytes: AtomicI32,
    /// Preferred share of shared memory, in percent.
    pub(crate) carveout: AtomicI32,
}

/// Shared memory that a block has without asking for more.
pub(crate) const SHARED_BYTES: i32 = 48 << 10;
/// Shared memory that a block can ask for.
pub(crate) const SHARED_BYTES_MAX: i32 = 64 << 10;

impl FunctionSettings {
    fn new(kernel: &Kernel) -> Self {
        let shared = i32::try_from(kernel.shared_bytes()).unwrap_or(i32::MAX);
        let dynamic_shared_bytes = AtomicI32::new(SHARED_BYTES.saturating_sub(shared).max(0));
        Self { dynamic_shared_bytes, carveout: AtomicI32::new(-1) }
    }
}

/// Why a module does not load.
#[derive(Debug)]
pub(crate) struct LoadError {
    /// Code.
    pub(crate) code: Error,
    /// Text for the log of the compiler.
    pub(crate) text: String,
}

impl From<Error> for LoadError {
    fn from(code: Error) -> Self {
        Self { code, text: String::new() }
    }
}

fn invalid(error: &dyn std::fmt::Display) -> LoadError {
    let text = format!("ptxas fatal: {error}");
    complain(&text);
    LoadError { code: Error::CUDA_ERROR_INVALID_PTX, text }
}

/// Parses a text. The message of a failure has the line.
fn parse(text: &str) -> std::result::Result<Ptx, LoadError> {
    Ptx::parse(text).map_err(|error| {
        let before = usize::try_from(error.line).unwrap_or(0).saturating_sub(1);
        let line = text.lines().nth(before).unwrap_or_default().trim();
        invalid(&format_args!("{error}: {line}"))
    })
}

fn link(texts: &[String]) -> std::result::Result<Linked, LoadError> {
    let parsed = texts.iter().map(|text| parse(text)).collect::<std::result::Result<_, _>>()?;
    ptx::link(parsed).map_err(|error| invalid(&error))
}

/// Checks that texts are PTX.
///
/// # Errors
/// One is not.
pub(crate) fn check(texts: &[String]) -> std::result::Result<(), LoadError> {
    texts.iter().try_for_each(|text| parse(text).map(|_| ()))
}

/// Checks that texts link.
///
/// # Errors
/// They do not.
pub(crate) fn check_linked(texts: &[String]) -> std::result::Result<(), LoadError> {
    link(texts).map(|_| ())
}

/// Offsets of variables in one allocation, and its length.
fn lay_out(linked: &Linked) -> (Vec<u64>, u64) {
    let mut end = 0u64;
    let place = |variable: &ptx::Variable| {
        let offset = end.next_multiple_of(variable.align_bytes.max(1));
        end = offset.saturating_add(variable.bytes);
        offset
    };
    let offsets = linked.variables().iter().map(place).collect();
    (offsets, end)
}

/// Loads PTX into a context.
///
/// # Errors
/// It is not PTX that runs, or there is no memory for its variables.
pub(crate) fn load(
    driver: &Driver,
    context: &Context,
    texts: &[String],
) -> std::result::Result<Arc<Module>, LoadError> {
    let linked = link(texts)?;
    let (offsets, bytes) = lay_out(&linked);
    let backend = driver.backend.as_ref();
    let owner = Owner { context: context.handle, device: context.device, pool: None, flags: 0 };
    let variables = match bytes {
        0 => None,
        _ => Some(driver.memory.allocate(backend, Kind::Device(context.device), bytes, owner)?),
    };
    let base = variables.as_ref().map_or(0, |block| block.range.address);
    let addresses: Vec<u64> = offsets.iter().map(|offset| base + offset).collect();
    let free = |error| {
        if let Some(block) = &variables {
            driver.memory.free(backend, block);
        }
        error
    };
    let placed = linked.place(&addresses).map_err(|error| free(invalid(&error)))?;
    if let Some(place) = Place::of_window(backend, base) {
        let failed = |_| free(Error::CUDA_ERROR_ILLEGAL_ADDRESS.into());
        backend.fill(context.device, place, &[0], bytes).map_err(failed)?;
        for (address, contents) in placed.initial_contents() {
            let staged = Staged::new(contents.clone());
            let Some(to) = Place::of_window(backend, *address) else { continue };
            backend.copy(context.device, to, staged.place(), contents.len() as u64).map_err(failed)?;
        }
    }
    let handle = handle::fresh();
    let function = |kernel: &Arc<Kernel>| {
        let function = Arc::new(Function {
            handle: handle::fresh(),
            kernel: Arc::clone(kernel),
            name: CString::new(kernel.name()).unwrap_or_default(),
            module: handle,
            context: context.handle,
            settings: FunctionSettings::new(kernel),
        });
        driver.functions.add(function.handle, Arc::clone(&function));
        function
    };
    let functions: Vec<_> = placed.kernels().iter().map(function).collect();
    driver.log.write("module_load", 0, || {
        let names: Vec<&str> = functions.iter().map(|function| function.kernel.name()).collect();
        json!({ "module": handle, "kernels": names, "variables": base, "bytes": bytes })
    });
    let module = Arc::new(Module { handle, context: context.handle, placed, variables, functions });
    driver.modules.add(handle, Arc::clone(&module));
    Ok(module)
}

impl Module {
    /// Kernel by name.
    pub(crate) fn function(&self, name: &str) -> Option<&Arc<Function>> {
        self.functions.iter().find(|function| function.kernel.name() == name)
    }

    /// Kernels in the order of the text.
    pub(crate) fn functions(&self) -> &[Arc<Function>] {
        &self.functions
    }

    /// Address and bytes of a variable.
    pub(crate) fn variable(&self, name: &str) -> Option<(u64, u64)> {
        self.placed.variable(name)
    }

    /// Forgets it, after all streams are done.
    pub(crate) fn unload(&self, driver: &Driver) {
        driver.wait_for_all();
        for function in &self.functions {
            driver.functions.remove(function.handle);
        }
        if let Some(block) = &self.variables {
            driver.memory.free(driver.backend.as_ref(), block);
        }
        driver.modules.remove(self.handle);
        driver.log.write("module_unload", 0, || json!({ "module": self.handle }));
    }
}

/// Library: PTX that becomes a module in each context that uses it.
#[derive(Debug)]
pub(crate) struct Library {
    /// Handle.
    pub(crate) handle: Handle,
    texts: Vec<String>,
    kernels: Vec<Arc<LibraryKernel>>,
    modules: Mutex<HashMap<Handle, Arc<Module>>>,
}

/// Kernel of a library.
#[derive(Debug)]
pub(crate) struct LibraryKernel {
    /// Handle.
    pub(crate) handle: Handle,
    /// Library.
    pub(crate) library: Handle,
    /// Name, as the ABI has it.
    pub(crate) name: CString,
    /// Kernel, whose variables have no memory.
    pub(crate) kernel: Arc<Kernel>,
    /// What was set for all contexts.
    pub(crate) settings: FunctionSettings,
}

impl Library {
    /// Library of these texts, known to the driver.
    ///
    /// # Errors
    /// They are not PTX that runs.
    pub(crate) fn create(driver: &Driver, texts: Vec<String>) -> std::result::Result<Arc<Self>, LoadError> {
        let linked = link(&texts)?;
        let (addresses, _) = lay_out(&linked);
        let prototype = linked.place(&addresses).map_err(|error| invalid(&error))?;
        let handle = handle::fresh();
        let kernel = |kernel: &Arc<Kernel>| {
            let kernel = Arc::new(LibraryKernel {
                handle: handle::fresh(),
                library: handle,
                name: CString::new(kernel.name()).unwrap_or_default(),
                kernel: Arc::clone(kernel),
                settings: FunctionSettings::new(kernel),
            });
            driver.kernels.add(kernel.handle, Arc::clone(&kernel));
            kernel
        };
        let kernels = prototype.kernels().iter().map(kernel).collect();
        let library = Arc::new(Self { handle, texts, kernels, modules: Mutex::default() });
        driver.libraries.add(handle, Arc::clone(&library));
        Ok(library)
    }

    /// Kernels in the order of the text.
    pub(crate) fn kernels(&self) -> &[Arc<LibraryKernel>] {
        &self.kernels
    }

    /// Module of a context, loaded when it is first asked for.
    ///
    /// # Errors
    /// It does not load.
    pub(crate) fn module(&self, driver: &Driver, context: &Context) -> Result<Arc<Module>> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(&context.handle) {
            return Ok(Arc::clone(module));
        }
        let module = load(driver, context, &self.texts).map_err(|error| error.code)?;
        modules.insert(context.handle, Arc::clone(&module));
        Ok(module)
    }

    /// Forgets the module of a context that is destroyed.
    pub(crate) fn forget(&self, context: Handle) {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner).remove(&context);
    }

    /// Forgets it.
    pub(crate) fn unload(&self, driver: &Driver) {
        for module in self.modules.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            module.1.unload(driver);
        }
        for kernel in &self.kernels {
            driver.kernels.remove(kernel.handle);
        }
        driver.libraries.remove(self.handle);
    }
}

/// Kernel of a handle, which is of a module or of a library.
///
/// # Errors
/// Neither, or the library does not load into the context.
pub(crate) fn function(driver: &Driver, context: &Context, handle: Handle) -> Result<Arc<Function>> {
    if let Some(function) = driver.functions.get(handle) {
        return Ok(function);
    }
    let kernel = driver.kernels.get(handle).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)?;
    let library = driver.libraries.get(kernel.library).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)?;
    let module = library.module(driver, context)?;
    let function = module.function(kernel.kernel.name()).ok_or(Error::CUDA_ERROR_NOT_FOUND)?;
    let dynamic = kernel.settings.dynamic_shared_bytes.load(Ordering::Relaxed);
    function.settings.dynamic_shared_bytes.fetch_max(dynamic, Ordering::Relaxed);
    Ok(Arc::clone(function))
}

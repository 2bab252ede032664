//! Libraries: PTX that becomes a module of every context that uses it.

use std::{
    collections::HashMap,
    ffi::CString,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use ptx::Kernel;

use crate::{
    Error, Result,
    handle::{self, Handle, Table},
    jit::{self, LoadError},
    machine::Machine,
    memory::Owner,
    module::{Function, FunctionSettings, Module, Modules},
};

/// Libraries of the process.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    /// Libraries.
    pub(crate) libraries: Table<Library>,
    /// Their kernels.
    pub(crate) kernels: Table<LibraryKernel>,
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
    /// Library of these texts.
    ///
    /// # Errors
    /// They are not PTX that runs.
    fn new(texts: Vec<String>) -> Result<Self, LoadError> {
        let prototype = jit::compile(&texts)?;
        let handle = handle::fresh();
        let kernel = |kernel: &Arc<Kernel>| {
            Arc::new(LibraryKernel {
                handle: handle::fresh(),
                library: handle,
                name: CString::new(kernel.name()).unwrap_or_default(),
                kernel: Arc::clone(kernel),
                settings: FunctionSettings::new(kernel),
            })
        };
        let kernels = prototype.kernels().iter().map(kernel).collect();
        Ok(Self { handle, texts, kernels, modules: Mutex::default() })
    }

    /// Kernels in the order of the text.
    pub(crate) fn kernels(&self) -> &[Arc<LibraryKernel>] {
        &self.kernels
    }

    fn modules(&self) -> MutexGuard<'_, HashMap<Handle, Arc<Module>>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Module of a context, loaded when it is first asked for.
    ///
    /// # Errors
    /// It does not load.
    pub(crate) fn module(&self, machine: &Machine, modules: &Modules, owner: Owner) -> Result<Arc<Module>> {
        let mut own = self.modules();
        if let Some(module) = own.get(&owner.context) {
            return Ok(Arc::clone(module));
        }
        let module = modules.load(machine, owner, &self.texts).map_err(|error| error.code)?;
        own.insert(owner.context, Arc::clone(&module));
        Ok(module)
    }
}

impl Libraries {
    /// New library of these texts.
    ///
    /// # Errors
    /// They are not PTX that runs.
    pub(crate) fn create(&self, texts: Vec<String>) -> Result<Arc<Library>, LoadError> {
        let library = Arc::new(Library::new(texts)?);
        library.kernels.iter().for_each(|kernel| self.kernels.add(kernel.handle, Arc::clone(kernel)));
        self.libraries.add(library.handle, Arc::clone(&library));
        Ok(library)
    }

    /// Kernel of a handle, which is of a module or of a library.
    ///
    /// # Errors
    /// Neither, or the library does not load into the context.
    pub(crate) fn function(
        &self,
        machine: &Machine,
        modules: &Modules,
        owner: Owner,
        handle: Handle,
    ) -> Result<Arc<Function>> {
        if let Some(function) = modules.functions.get(handle) {
            return Ok(function);
        }
        let kernel = self.kernels.get(handle).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)?;
        let library = self.libraries.get(kernel.library).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)?;
        let module = library.module(machine, modules, owner)?;
        let function = module.function(kernel.kernel.name()).ok_or(Error::CUDA_ERROR_NOT_FOUND)?;
        let dynamic = kernel.settings.dynamic_shared_bytes.load(Ordering::Relaxed);
        function.settings.dynamic_shared_bytes.fetch_max(dynamic, Ordering::Relaxed);
        Ok(Arc::clone(function))
    }

    /// Forgets the modules of a context that is destroyed.
    pub(crate) fn forget(&self, context: Handle) {
        for library in self.libraries.all() {
            library.modules().remove(&context);
        }
    }

    /// Forgets a library with its modules, of which nothing runs any more.
    pub(crate) fn unload(&self, machine: &Machine, modules: &Modules, library: &Library) {
        for (_, module) in library.modules().drain() {
            modules.unload(machine, &module);
        }
        library.kernels.iter().for_each(|kernel| drop(self.kernels.remove(kernel.handle)));
        self.libraries.remove(library.handle);
    }
}

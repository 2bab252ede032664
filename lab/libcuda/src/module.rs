//! Modules: linked PTX with its variables and kernels.

use std::{
    ffi::CString,
    sync::{Arc, atomic::AtomicI32},
};

use ptx::{Kernel, Linked};
use serde_json::json;

use crate::{
    Error,
    backend::{Kind, Place, Staged},
    handle::{self, Handle, Table},
    jit::{self, Layout, LoadError, invalid},
    machine::Machine,
    memory::{Block, Owner},
};

/// Modules of all contexts.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// Modules.
    pub(crate) modules: Table<Module>,
    /// Their kernels.
    pub(crate) functions: Table<Function>,
}

/// Module of a context.
#[derive(Debug)]
pub(crate) struct Module {
    /// Handle.
    pub(crate) handle: Handle,
    /// Context.
    pub(crate) context: Handle,
    placed: ptx::Module,
    variables: Variables,
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
    /// What a kernel has at first.
    pub(crate) fn new(kernel: &Kernel) -> Self {
        let shared = i32::try_from(kernel.shared_bytes()).unwrap_or(i32::MAX);
        let dynamic_shared_bytes = AtomicI32::new(SHARED_BYTES.saturating_sub(shared).max(0));
        Self { dynamic_shared_bytes, carveout: AtomicI32::new(-1) }
    }
}

impl Modules {
    /// Loads PTX into a context.
    ///
    /// # Errors
    /// It is not PTX that runs, or there is no memory for its variables.
    pub(crate) fn load(&self, machine: &Machine, owner: Owner, texts: &[String]) -> Result<Arc<Module>, LoadError> {
        let linked = jit::link(texts)?;
        let layout = jit::lay_out(&linked);
        let variables = Variables::allocate(machine, owner, &layout)?;
        let placed = variables.place(machine, linked, &layout.offsets).inspect_err(|_| variables.free(machine))?;
        let handle = handle::fresh();
        let functions: Vec<_> =
            placed.kernels().iter().map(|kernel| Arc::new(Function::new(kernel, handle, owner.context))).collect();
        machine.log.write("module_load", 0, || {
            let names: Vec<&str> = functions.iter().map(|function| function.kernel.name()).collect();
            let at = |block: &Option<Arc<Block>>| block.as_ref().map_or(0, |block| block.range.address);
            json!({
                "module": handle, "kernels": names, "variables": at(&variables.device), "bytes": layout.device_bytes,
                "managed": at(&variables.managed), "managed_bytes": layout.managed_bytes,
            })
        });
        for function in &functions {
            self.functions.add(function.handle, Arc::clone(function));
        }
        let module = Arc::new(Module { handle, context: owner.context, placed, variables, functions });
        self.modules.add(handle, Arc::clone(&module));
        Ok(module)
    }

    /// Forgets a module, of which nothing runs any more.
    pub(crate) fn unload(&self, machine: &Machine, module: &Module) {
        for function in &module.functions {
            self.functions.remove(function.handle);
        }
        module.variables.free(machine);
        self.modules.remove(module.handle);
        machine.log.write("module_unload", 0, || json!({ "module": module.handle }));
    }

    /// Addresses of the variables of a context's modules.
    pub(crate) fn variables(&self, context: Handle) -> Vec<u64> {
        let modules = self.modules.all();
        let of_context = modules.iter().filter(|module| module.context == context);
        of_context
            .flat_map(|module| module.variables.blocks().map(|block| block.range.address).collect::<Vec<_>>())
            .collect()
    }

    /// Forgets the modules of a context, whose memory is freed; returns how many there were.
    pub(crate) fn forget(&self, context: Handle) -> usize {
        let count = self.modules.all().iter().filter(|module| module.context == context).count();
        self.functions.retain(|function| function.context != context);
        self.modules.retain(|module| module.context != context);
        count
    }
}

/// Memory of a module's variables.
#[derive(Debug)]
struct Variables {
    device: Option<Arc<Block>>,
    /// Of those that CPU and GPUs access, `__managed__`.
    managed: Option<Arc<Block>>,
}

impl Variables {
    fn allocate(machine: &Machine, owner: Owner, layout: &Layout) -> Result<Self, LoadError> {
        let allocate = |kind, bytes| match bytes {
            0 => Ok(None),
            _ => machine.memory.allocate(machine.backend.as_ref(), kind, bytes, owner).map(Some),
        };
        let mut variables = Self { device: allocate(Kind::Device(owner.device), layout.device_bytes)?, managed: None };
        variables.managed = allocate(Kind::Managed, layout.managed_bytes).inspect_err(|_| variables.free(machine))?;
        Ok(variables)
    }

    fn blocks(&self) -> impl Iterator<Item = &Arc<Block>> {
        self.device.iter().chain(&self.managed)
    }

    fn free(&self, machine: &Machine) {
        self.blocks().for_each(|block| machine.memory.free(machine.backend.as_ref(), block));
    }

    /// Places variables in their blocks, with their initial contents.
    fn place(&self, machine: &Machine, linked: Linked, offsets: &[u64]) -> Result<ptx::Module, LoadError> {
        let backend = machine.backend.as_ref();
        let base = |variable: &ptx::Variable| {
            let block = if variable.managed { &self.managed } else { &self.device };
            block.as_ref().map_or(0, |block| block.range.address)
        };
        let addresses: Vec<u64> =
            linked.variables().iter().zip(offsets).map(|(variable, offset)| base(variable) + offset).collect();
        let placed = linked.place(&addresses).map_err(|error| invalid(&error))?;
        let failed = |_| Error::CUDA_ERROR_ILLEGAL_ADDRESS;
        for block in self.blocks() {
            let Some(to) = Place::of_window(backend, block.range.address) else { continue };
            backend.fill(block.device, to, &[0], block.range.bytes).map_err(failed)?;
        }
        let Some(device) = self.blocks().next().map(|block| block.device) else { return Ok(placed) };
        for (address, contents) in placed.initial_contents() {
            let staged = Staged::new(contents.clone());
            let Some(to) = Place::of_window(backend, *address) else { continue };
            backend.copy(device, to, staged.place(), contents.len() as u64).map_err(failed)?;
        }
        Ok(placed)
    }
}

impl Function {
    fn new(kernel: &Arc<Kernel>, module: Handle, context: Handle) -> Self {
        Self {
            handle: handle::fresh(),
            kernel: Arc::clone(kernel),
            name: CString::new(kernel.name()).unwrap_or_default(),
            module,
            context,
            settings: FunctionSettings::new(kernel),
        }
    }
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
        self.placed.variable(name).map(|(variable, address)| (address, variable.bytes))
    }

    /// The same of a managed one.
    pub(crate) fn managed_variable(&self, name: &str) -> Option<(u64, u64)> {
        let found = self.placed.variable(name).filter(|(variable, _)| variable.managed);
        found.map(|(variable, address)| (address, variable.bytes))
    }
}

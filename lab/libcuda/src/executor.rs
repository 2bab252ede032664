//! Execution of a context's operations on its device.

use std::{
    sync::{Arc, OnceLock, PoisonError},
    time::Instant,
};

use crate::{
    Error, Result,
    backend::{Accesses, Kind, Origin, Place, Range},
    errors::{complain, of_backend, of_kernel},
    heap::DeviceHeap,
    machine::Machine,
    module::Function,
    operation::{KernelLaunch, Operation},
};

/// Memory by which the blocks of a cooperative launch wait for each other.
const WORKSPACE_BYTES: u64 = 64;

/// Executor of a context. After a failure it performs nothing further, as a context does.
#[derive(Debug)]
pub(crate) struct Executor {
    machine: Arc<Machine>,
    device: usize,
    error: OnceLock<Error>,
    /// What its kernels allocate from.
    pub(crate) heap: DeviceHeap,
}

impl Executor {
    /// Executor on a device.
    pub(crate) const fn new(machine: Arc<Machine>, device: usize) -> Self {
        Self { machine, device, error: OnceLock::new(), heap: DeviceHeap::new(device) }
    }

    /// Error that ended it, if any.
    pub(crate) fn error(&self) -> Option<Error> {
        self.error.get().copied()
    }

    /// Ends it by an error, unless another has.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.error.set(error);
    }

    /// Performs an operation. Its failure is the executor's.
    pub(crate) fn perform(&self, operation: &Operation) {
        match operation {
            Operation::Record(time) => {
                let _ = time.set(Instant::now());
            }
            Operation::Callback(callback) => callback.call(self.error().unwrap_or(Error::CUDA_SUCCESS)),
            Operation::Free(block) => self.machine.memory.free(self.machine.backend.as_ref(), block),
            _ if self.error().is_some() => {}
            _ => {
                if let Err(error) = self.attempt(operation) {
                    self.fail(error);
                }
            }
        }
    }

    fn attempt(&self, operation: &Operation) -> Result<()> {
        let backend = self.machine.backend.as_ref();
        let fault = |fault: ptx::MemoryFault| {
            complain(&format!("copy or memset: {fault}"));
            Error::CUDA_ERROR_ILLEGAL_ADDRESS
        };
        match operation {
            Operation::Kernel(launch) => self.launch(launch),
            Operation::Copy(copy) => {
                copy.perform(backend, self.device).map_err(fault)?;
                self.log(copy.origin, || copy.accesses(backend));
                Ok(())
            }
            Operation::Fill(fill) => {
                fill.perform(backend, self.device).map_err(fault)?;
                self.log(fill.origin, || fill.accesses(backend));
                Ok(())
            }
            Operation::Wait(wait) => wait.perform(backend, self.device, || self.error().is_some()).map_err(fault),
            Operation::Migrate(range, to) => {
                let engines = self.machine.engines(self.device)?;
                let _migration = engines.migration.lock().unwrap_or_else(PoisonError::into_inner);
                backend.migrate(*range, *to).map_err(of_backend)
            }
            Operation::Host(call) => {
                call.call();
                Ok(())
            }
            Operation::Nothing | Operation::Free(_) | Operation::Callback(_) | Operation::Record(_) => Ok(()),
        }
    }

    /// Logs what an operation has accessed: before it counts as done, and so before its memory can
    /// be freed.
    fn log(&self, origin: Origin, accesses: impl FnOnce() -> Accesses) {
        if self.machine.settings.observes() && origin != Origin::NONE {
            let end_of = |address| self.machine.memory.find(address).map(|block| block.range.end());
            self.machine.log.write("access", origin.stream, || accesses().describe(origin, end_of));
        }
    }

    fn launch(&self, KernelLaunch { function, launch, cooperative, origin, .. }: &KernelLaunch) -> Result<()> {
        let backend = self.machine.backend.as_ref();
        let mut launch = launch.clone();
        if function.kernel.uses_heap() {
            launch.heap = Some(self.heap.get(&self.machine)?);
        }
        if !cooperative {
            return self.run(function, launch, *origin);
        }
        let kind = Kind::Device(self.device);
        let address = backend.allocate(kind, WORKSPACE_BYTES).map_err(of_backend)?;
        launch.workspace = Some(address);
        let place = Place::of_window(backend, address);
        let ran = match place.map(|place| backend.fill(self.device, place, &[0], WORKSPACE_BYTES)) {
            Some(Ok(())) => self.run(function, launch, *origin),
            _ => Err(Error::CUDA_ERROR_LAUNCH_FAILED),
        };
        backend.release(kind, Range { address, bytes: WORKSPACE_BYTES });
        ran
    }

    fn run(&self, function: &Function, launch: ptx::Launch, origin: Origin) -> Result<()> {
        let engines = self.machine.engines(self.device)?;
        let _channel = engines.compute.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        let (counts, accesses) = self.machine.backend.run(self.device, &function.kernel, launch).map_err(|error| {
            complain(&format!("kernel {}: {error}", function.kernel.name()));
            of_kernel(&error)
        })?;
        self.machine.statistics.add(&counts, begun.elapsed());
        self.log(origin, || accesses);
        Ok(())
    }
}

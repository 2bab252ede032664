//! Execution of a context's operations on its device.

use std::{
    sync::{Arc, OnceLock, PoisonError},
    time::Instant,
};

use crate::{
    Error, Result,
    backend::{Accesses, Origin},
    errors::{complain, of_backend, of_kernel},
    machine::Machine,
    operation::{KernelLaunch, Operation},
};

/// Executor of a context. After a failure it performs nothing further, as a context does.
#[derive(Debug)]
pub(crate) struct Executor {
    machine: Arc<Machine>,
    device: usize,
    error: OnceLock<Error>,
}

impl Executor {
    /// Executor on a device.
    pub(crate) const fn new(machine: Arc<Machine>, device: usize) -> Self {
        Self { machine, device, error: OnceLock::new() }
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

    fn launch(&self, KernelLaunch { function, launch, origin, .. }: &KernelLaunch) -> Result<()> {
        let engines = self.machine.engines(self.device)?;
        let _channel = engines.compute.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        let (counts, accesses) =
            self.machine.backend.run(self.device, &function.kernel, launch.clone()).map_err(|error| {
                complain(&format!("kernel {}: {error}", function.kernel.name()));
                of_kernel(&error)
            })?;
        self.machine.statistics.add(&counts, begun.elapsed());
        self.log(*origin, || accesses);
        Ok(())
    }
}

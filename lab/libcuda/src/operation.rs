//! Operations of streams and graphs.

use std::{sync::Arc, sync::PoisonError, time::Instant};

use crate::{
    Error, Result,
    backend::{Location, Range},
    context::Context,
    copy::{Copy, Fill},
    driver,
    errors::{complain, of_backend, of_kernel},
    event::Time,
    host::{Callback, HostCall},
    memory::Block,
    module::Function,
};

/// Kernel with grid and arguments.
#[derive(Clone, Debug)]
pub(crate) struct KernelLaunch {
    /// Kernel.
    pub(crate) function: Arc<Function>,
    /// Grid and arguments.
    pub(crate) launch: ptx::Launch,
}

/// Operation of a stream.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Nothing but its place in the order.
    Nothing,
    /// A kernel.
    Kernel(KernelLaunch),
    /// A copy.
    Copy(Copy),
    /// A fill.
    Fill(Fill),
    /// A prefetch of managed memory.
    Migrate(Range, Location),
    /// The end of an allocation.
    Free(Arc<Block>),
    /// A function of the program, not called after an error.
    Host(HostCall),
    /// A function of the program that is told the state.
    Callback(Callback),
    /// The time of an event.
    Record(Time),
}

impl Operation {
    /// Whether it takes no time and calls nothing of the program.
    pub(crate) const fn is_instant(&self) -> bool {
        matches!(self, Self::Nothing | Self::Record(_))
    }

    /// Performs it. A failure is the context's, which performs nothing further.
    pub(crate) fn perform(&self, context: &Context) {
        match self {
            Self::Record(time) => {
                let _ = time.set(Instant::now());
            }
            Self::Callback(callback) => callback.call(context.error().unwrap_or(Error::CUDA_SUCCESS)),
            Self::Free(block) => driver::with(|driver| driver.memory.free(driver.backend.as_ref(), block)),
            _ if context.error().is_some() => {}
            _ => {
                if let Err(error) = self.attempt(context) {
                    context.fail(error);
                }
            }
        }
    }

    fn attempt(&self, context: &Context) -> Result<()> {
        let driver = driver::get()?;
        let backend = driver.backend.as_ref();
        let device = context.device;
        let fault = |fault: ptx::MemoryFault| {
            complain(&format!("copy or memset: {fault}"));
            Error::CUDA_ERROR_ILLEGAL_ADDRESS
        };
        match self {
            Self::Kernel(KernelLaunch { function, launch }) => {
                let engines = driver.engines(device)?;
                let _channel = engines.compute.lock().unwrap_or_else(PoisonError::into_inner);
                let begun = Instant::now();
                let counts = backend.run(device, &function.kernel, launch.clone()).map_err(|error| {
                    complain(&format!("kernel {}: {error}", function.kernel.name()));
                    of_kernel(&error)
                })?;
                driver.statistics.add(&counts, begun.elapsed());
                Ok(())
            }
            Self::Copy(copy) => copy.perform(backend, device).map_err(fault),
            Self::Fill(fill) => fill.perform(backend, device).map_err(fault),
            Self::Migrate(range, to) => {
                let engines = driver.engines(device)?;
                let _migration = engines.migration.lock().unwrap_or_else(PoisonError::into_inner);
                backend.migrate(*range, *to).map_err(of_backend)
            }
            Self::Host(call) => {
                call.call();
                Ok(())
            }
            Self::Nothing | Self::Free(_) | Self::Callback(_) | Self::Record(_) => Ok(()),
        }
    }
}

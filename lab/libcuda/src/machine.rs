//! Machine of a process: the GPUs with their memory and engines, and what is recorded of them.

use std::sync::Mutex;

use crate::{
    Error, Result,
    backend::{self, Backend, Kind},
    errors::of_backend,
    log::Log,
    memory::Memory,
    settings::Settings,
    statistics::Statistics,
};

/// GPUs with all that works on them.
pub(crate) struct Machine {
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
    engines: Vec<Engines>,
}

/// Engines of a device, which do one thing at a time.
#[derive(Debug, Default)]
pub(crate) struct Engines {
    /// Runs kernels.
    pub(crate) compute: Mutex<()>,
    /// Moves managed memory.
    pub(crate) migration: Mutex<()>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Machine").field("devices", &self.backend.devices()).finish_non_exhaustive()
    }
}

impl Machine {
    /// Machine with the GPUs of the settings, or with the software GPUs that are here.
    ///
    /// # Errors
    /// There is no device, or the backend does not start.
    pub(crate) fn start(settings: Settings) -> Result<Self> {
        if settings.devices == 0 {
            return Err(Error::CUDA_ERROR_NO_DEVICE);
        }
        let backend = backend::of_machine(&settings).map_err(of_backend)?;
        Ok(Self {
            log: Log::new(settings.log.as_deref()),
            engines: backend.devices().iter().map(|_| Engines::default()).collect(),
            backend,
            settings,
            memory: Memory::default(),
            statistics: Statistics::default(),
        })
    }

    /// Kind of the memory that a program asks of a device.
    pub(crate) const fn device_memory(&self, device: usize) -> Kind {
        if self.settings.managed { Kind::Managed } else { Kind::Device(device) }
    }

    /// Engines of a device.
    ///
    /// # Errors
    /// There is no such device.
    pub(crate) fn engines(&self, device: usize) -> Result<&Engines> {
        self.engines.get(device).ok_or(Error::CUDA_ERROR_INVALID_DEVICE)
    }
}

//! A GPU of the lab, and this process's view of its memory.

use std::sync::{Mutex, PoisonError, atomic::AtomicU8};

use gpu::{
    mirror::Permissions,
    swgpu::{Gpu, Space},
    uvm::VaSpace,
    words::Words,
};
use ptx::Window;

use super::{VIEW_OFFSET, frames::Frames, of_gpu};
use crate::{
    backend::{
        BackendError, Properties, Range,
        observed::Table,
        pages::{Pages, Shared},
        window::{self, DEVICE_BASE, HOST_BASE, SPACE_BYTES},
    },
    settings::{Settings, capability},
};

/// GPU with a view of the window: managed memory by the mirror, device memory, host memory.
pub(super) struct Device {
    pub(super) space: Space,
    gpu: Gpu,
    _mirror: Words,
    /// Bytes of device memory.
    memory: Pages,
    permissions: Permissions,
    /// If accesses are observed.
    pub(super) observed: Option<Table>,
    frames: Mutex<Frames>,
    /// Accesses that wait for a fault at a time.
    pub(super) window: u32,
    /// Thread blocks in progress at a time.
    pub(super) resident_blocks: u32,
}

impl Device {
    /// Registers a GPU with the process's VA space, and maps the view.
    pub(super) fn start(
        gpu: Gpu,
        va_space: &VaSpace,
        host: &Shared,
        settings: &Settings,
    ) -> Result<Self, BackendError> {
        let offset = offset(&gpu);
        let attach = || {
            let space = gpu.space()?;
            va_space.attach(&gpu.uuid, &space)?;
            let mirror = space.mirror(window::BASE, SPACE_BYTES, window::BASE + offset)?;
            let permissions = Permissions::map(&space, window::BASE, window::BYTES)?;
            Ok((space, mirror, permissions))
        };
        let (space, mirror, permissions) = attach().map_err(|error| of_gpu(&error))?;
        let memory = Pages::map(Some(DEVICE_BASE + offset), usize::try_from(SPACE_BYTES).unwrap_or(0))?;
        host.map(HOST_BASE + offset)?;
        let (window, resident_blocks) = (settings.window, settings.resident_blocks);
        let frames = Mutex::default();
        let observed = settings.observes().then(Table::map).transpose()?;
        Ok(Self { space, gpu, _mirror: mirror, memory, permissions, observed, frames, window, resident_blocks })
    }

    /// Properties, of which the settings have the compute capability.
    pub(super) fn properties(&self, settings: &Settings) -> Properties {
        Properties {
            uuid: self.gpu.uuid,
            name: format!("Lab GPU ({})", self.gpu.arch),
            total_bytes: self.gpu.memory_bytes,
            capability: capability(&self.gpu.arch),
            pci: (0, self.gpu.number() + 1, 0),
            concurrent: settings.concurrent,
        }
    }

    /// Memory that allocations can have: free frames. Frames of managed memory count as used, as
    /// `cuMemGetInfo` counts them.
    pub(super) fn free_bytes(&self) -> u64 {
        self.gpu.counters().map_or(0, |counters| counters.free_bytes)
    }

    /// Takes frames for device memory.
    pub(super) fn take(&self, bytes: u64) -> Result<(), BackendError> {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if frames.take(&self.gpu, bytes) { Ok(()) } else { Err(BackendError::OutOfMemory(bytes)) }
    }

    /// Gives the frames of device memory back.
    pub(super) fn give(&self, bytes: u64) {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner).give(&self.gpu, bytes);
    }

    /// Gives the memory of whole pages of device memory back.
    pub(super) fn discard(&self, range: Range) {
        self.memory.discard(self.view(range.address), range.bytes);
    }

    /// Address in this process of what the device has at an address of the window.
    pub(super) fn view(&self, address: u64) -> u64 {
        address + offset(&self.gpu)
    }

    /// The window, for kernels.
    pub(super) fn window(&self) -> Window {
        Window {
            base: window::BASE,
            bytes: window::BYTES,
            offset: offset(&self.gpu),
            permissions: self.permissions.pages().as_ptr(),
        }
    }

    /// What the device may do at the moment, by granule of the window.
    pub(super) fn permissions(&self) -> &[AtomicU8] {
        self.permissions.pages()
    }

    /// Whether the device may access an address.
    pub(super) fn permits(&self, address: u64, permission: u8) -> bool {
        window::permits(self.permissions.pages(), Range { address, bytes: 1 }, permission)
    }

    /// Sets what the device may do with memory that does not migrate.
    pub(super) fn permit(&self, range: Range, permissions: u8) {
        window::permit(self.permissions.pages(), range, permissions);
    }
}

fn offset(gpu: &Gpu) -> u64 {
    (u64::from(gpu.number()) + 1) * VIEW_OFFSET
}

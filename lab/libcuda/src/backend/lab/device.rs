//! A GPU of the lab, and this process's view of its memory.

use std::sync::{Mutex, PoisonError, atomic::Ordering};

use gpu::{
    mirror::Permissions,
    swgpu::{Gpu, Space},
    uvm::VaSpace,
    words::Words,
};
use ptx::{GRANULE_BYTES, Window};

use super::{DEVICE_BASE, HOST_BASE, SPACE_BYTES, VIEW_OFFSET, WINDOW_BASE, WINDOW_BYTES, frames::Frames, of_gpu};
use crate::{
    backend::{
        BackendError, Properties, Range,
        pages::{Pages, Shared},
    },
    settings::{Settings, capability},
};

/// All that a device may do with memory that does not migrate.
const ALLOWED: u8 = ptx::permission::READ | ptx::permission::WRITE | ptx::permission::ATOMIC;

/// GPU with a view of the window: managed memory by the mirror, device memory, host memory.
pub(super) struct Device {
    pub(super) space: Space,
    gpu: Gpu,
    _mirror: Words,
    permissions: Permissions,
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
            let mirror = space.mirror(WINDOW_BASE, SPACE_BYTES, WINDOW_BASE + offset)?;
            let permissions = Permissions::map(&space, WINDOW_BASE, WINDOW_BYTES)?;
            Ok((space, mirror, permissions))
        };
        let (space, mirror, permissions) = attach().map_err(|error| of_gpu(&error))?;
        Pages::map(Some(DEVICE_BASE + offset), usize::try_from(SPACE_BYTES).unwrap_or(0))?;
        host.map(HOST_BASE + offset)?;
        let (window, resident_blocks) = (settings.window, settings.resident_blocks);
        Ok(Self { space, gpu, _mirror: mirror, permissions, frames: Mutex::default(), window, resident_blocks })
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

    /// Address in this process of what the device has at an address of the window.
    pub(super) fn view(&self, address: u64) -> u64 {
        address + offset(&self.gpu)
    }

    /// The window, for kernels.
    pub(super) fn window(&self) -> Window {
        Window {
            base: WINDOW_BASE,
            bytes: WINDOW_BYTES,
            offset: offset(&self.gpu),
            permissions: self.permissions.pages().as_ptr(),
        }
    }

    /// Permissions of the granule of an address.
    pub(super) fn permission(&self, address: u64) -> u8 {
        let granule = self.permissions.pages().get(granule(address));
        granule.map_or(0, |granule| granule.load(Ordering::Acquire))
    }

    /// Allows the device all accesses of memory that does not migrate, or none.
    pub(super) fn permit(&self, range: Range, allow: bool) {
        let granules = granule(range.address)..granule(range.end().saturating_add(GRANULE_BYTES - 1));
        for granule in self.permissions.pages().get(granules).unwrap_or_default() {
            granule.store(if allow { ALLOWED } else { 0 }, Ordering::Release);
        }
    }
}

fn offset(gpu: &Gpu) -> u64 {
    (u64::from(gpu.number()) + 1) * VIEW_OFFSET
}

fn granule(address: u64) -> usize {
    usize::try_from(address.saturating_sub(WINDOW_BASE) / GRANULE_BYTES).unwrap_or(usize::MAX)
}

//! Global memory of a kernel on plain memory.

use std::{io::Write as _, ptr, sync::atomic::AtomicU8};

use ptx::{Access, Memory, MemoryFault, Miss, WarpAccess, Window};

use super::Plain;
use crate::backend::{update::update, window};

/// Global memory of a kernel.
pub(super) struct Global<'a> {
    plain: &'a Plain,
    device: usize,
    permissions: &'static [AtomicU8],
}

impl<'a> Global<'a> {
    /// Memory that kernels of a device access.
    ///
    /// # Errors
    /// There is no such device.
    pub(super) fn new(plain: &'a Plain, device: usize) -> Result<Self, MemoryFault> {
        Ok(Self { plain, device, permissions: plain.permissions(device)? })
    }

    fn check(&self, address: u64, bytes: u64, access: Access) -> Result<(), MemoryFault> {
        self.plain.check(self.device, address, bytes, access)
    }

    fn pointer(address: u64) -> *mut u8 {
        ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
    }
}

// SAFETY: permissions are set for allocated memory of the window alone, which is mapped for the
// rest of the process. `miss` never answers `Go`.
unsafe impl Memory for Global<'_> {
    fn window(&self) -> Window {
        Window { base: window::BASE, bytes: window::BYTES, offset: 0, permissions: self.permissions.as_ptr() }
    }

    fn miss(&mut self, access: &WarpAccess<'_>) -> Result<Miss, MemoryFault> {
        for address in access.addresses {
            self.check(*address, access.lane_bytes.into(), access.access)?;
        }
        Ok(Miss::Remote)
    }

    fn settle(&mut self) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.check(address, bytes.len() as u64, Access::Read)?;
        // SAFETY: allocated or registered memory, as just checked.
        unsafe { ptr::copy(Self::pointer(address).cast_const(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.check(address, bytes.len() as u64, Access::Write)?;
        // SAFETY: allocated or registered memory, as just checked.
        unsafe { ptr::copy(bytes.as_ptr(), Self::pointer(address), bytes.len()) };
        Ok(())
    }

    fn update(&mut self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        self.check(address, bytes.into(), Access::Atomic)?;
        // SAFETY: allocated or registered memory, as just checked; the interpreter has checked its
        // alignment.
        unsafe { update(Self::pointer(address), bytes, change) }.ok_or(MemoryFault { address })
    }

    fn print(&mut self, text: &str) {
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}

//! Addresses that programs hand over.
#![expect(unsafe_code, reason = "ordinary memory of the program is accessed at addresses that it gave")]

use std::{ptr, slice};

use super::Backend;

/// Address at which the program lets the driver access memory: of the window, or its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl Place {
    /// Address as given.
    ///
    /// # Safety
    /// If it is ordinary memory of this process, the bytes that an operation accesses there can be
    /// accessed until the operation ends.
    pub(crate) const unsafe fn new(address: u64) -> Self {
        Self(address)
    }

    /// Address of the window, whose memory a backend accesses only where it is allocated.
    pub(crate) fn of_window(backend: &dyn Backend, address: u64) -> Option<Self> {
        backend.in_window(address).then_some(Self(address))
    }

    /// Address.
    pub(crate) const fn address(self) -> u64 {
        self.0
    }

    /// Place some bytes further on, in the same memory.
    pub(crate) const fn after(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Pointer to ordinary memory.
    pub(crate) fn pointer(self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(usize::try_from(self.0).unwrap_or(0))
    }

    /// Bytes of ordinary memory, copied.
    pub(crate) fn read(self, bytes: usize) -> Vec<u8> {
        if bytes == 0 {
            return Vec::new();
        }
        // SAFETY: ordinary memory that can be read, by the contract of `new`.
        unsafe { slice::from_raw_parts(self.pointer(), bytes) }.to_vec()
    }
}

/// Copy of ordinary memory that an operation reads later.
#[derive(Clone, Debug)]
pub(crate) struct Staged(Box<[u8]>);

impl Staged {
    /// Copy of these bytes.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes.into_boxed_slice())
    }

    /// Place of the copy. Used for reading, while `self` lives.
    pub(crate) fn place(&self) -> Place {
        Place(self.0.as_ptr().expose_provenance() as u64)
    }
}

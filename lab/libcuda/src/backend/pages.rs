//! Large mappings of which only the pages that are used take memory.
#![expect(unsafe_code, reason = "maps memory at fixed addresses")]

use std::{
    ffi::CString,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr, slice,
    sync::atomic::AtomicU8,
};

use super::BackendError;

/// Mapping of zeros, for the rest of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    base: u64,
    bytes: usize,
}

fn pointer(address: u64) -> *mut libc::c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

impl Pages {
    /// Maps pages, at this address if there is one.
    ///
    /// # Errors
    /// The system refuses, or something else is at the address.
    pub(crate) fn map(address: Option<u64>, bytes: usize) -> Result<Self, BackendError> {
        let fixed = if address.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping that replaces none.
        let mapped = unsafe { libc::mmap(pointer(address.unwrap_or(0)), bytes, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(system("mmap"));
        }
        // SAFETY: a hint about the mapping just made: core files leave it out.
        unsafe { libc::madvise(mapped, bytes, libc::MADV_DONTDUMP) };
        Ok(Self { base: mapped.expose_provenance() as u64, bytes })
    }

    /// Bytes as atomics.
    pub(crate) fn atomics(self) -> &'static [AtomicU8] {
        // SAFETY: mapped for the rest of the process, and accessed by atomics alone.
        unsafe { slice::from_raw_parts(pointer(self.base).cast(), self.bytes) }
    }

    /// Gives the memory of a range of whole pages back; it reads as zeros.
    pub(crate) fn discard(self, address: u64, bytes: u64) {
        let inside = address >= self.base && address + bytes <= self.base + self.bytes as u64;
        if let (true, Ok(length)) = (inside, usize::try_from(bytes)) {
            // SAFETY: a private mapping of this type, in which no Rust object lies.
            unsafe { libc::madvise(pointer(address), length, libc::MADV_DONTNEED) };
        }
    }
}

/// Memory that is mapped at several addresses.
#[derive(Debug)]
pub(crate) struct Shared {
    file: OwnedFd,
    bytes: usize,
}

impl Shared {
    /// Zeros, of which only those that are used take memory.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn create(name: &str, bytes: u64) -> Result<Self, BackendError> {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: reads a string that ends with a NUL.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(system("memfd_create"));
        }
        // SAFETY: a descriptor that was just created, without another owner.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: takes numbers, touches no memory.
        if unsafe { libc::ftruncate(fd, i64::try_from(bytes).unwrap_or(i64::MAX)) } != 0 {
            return Err(system("ftruncate"));
        }
        Ok(Self { file, bytes: usize::try_from(bytes).unwrap_or(0) })
    }

    /// Gives the memory of a range of whole pages back; it reads as zeros.
    pub(crate) fn discard(&self, offset: u64, bytes: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        if let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(bytes)) {
            // SAFETY: takes numbers; no Rust object lies in this memory.
            unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, length) };
        }
    }

    /// Maps it, for the rest of the process.
    ///
    /// # Errors
    /// The system refuses, or something else is at the address.
    pub(crate) fn map(&self, address: u64) -> Result<(), BackendError> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping that replaces none.
        let mapped = unsafe { libc::mmap(pointer(address), self.bytes, protection, flags, self.file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(system("mmap"));
        }
        // SAFETY: a hint about the mapping just made: core files leave it out.
        unsafe { libc::madvise(mapped, self.bytes, libc::MADV_DONTDUMP) };
        Ok(())
    }
}

fn system(call: &'static str) -> BackendError {
    BackendError::System { call, error: std::io::Error::last_os_error().to_string() }
}

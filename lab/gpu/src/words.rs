//! Mapped memory of a driver, as 8-byte words that other processors may change at any time.
//!
//! Accesses of it panic beyond the end.
#![expect(clippy::must_use_candidate, reason = "an access of a GPU has effects beyond its value")]

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
};

use crate::Error;

/// Mapping of a driver's file at a fixed address.
pub struct Words {
    base: NonNull<u64>,
    words: usize,
}

impl Words {
    /// Maps `bytes` at `offset` of a file to `address`, which must be free and page-aligned; 0 is an
    /// address that the kernel chooses.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn map(file: &File, address: u64, offset: u64, bytes: u64) -> Result<Self, Error> {
        let about = |source| Error::Map { address, bytes, source };
        let invalid = || about(io::ErrorKind::InvalidInput.into());
        let length = usize::try_from(bytes).map_err(|_| invalid())?;
        let fixed_address = usize::try_from(address).map_err(|_| invalid())?;
        let offset = libc::off_t::try_from(offset).map_err(|_| invalid())?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fixed = if address == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | fixed;
        // SAFETY: with MAP_FIXED_NOREPLACE a new mapping never replaces one, so no memory in use
        // changes.
        let base = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(fixed_address),
                length,
                protection,
                flags,
                file.as_raw_fd(),
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(about(io::Error::last_os_error()));
        }
        let base = NonNull::new(base.cast::<u64>()).ok_or_else(invalid)?;
        Ok(Self { base, words: length / size_of::<u64>() })
    }

    /// Unmaps the memory.
    ///
    /// # Errors
    /// [`Error::Unmap`].
    pub fn unmap(self) -> Result<(), Error> {
        // SAFETY: this value alone owns the mapping, and nothing reads or writes through it after
        // this call.
        let result = unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * size_of::<u64>()) };
        if result == 0 { Ok(()) } else { Err(Error::Unmap(io::Error::last_os_error())) }
    }

    /// Word of the memory. GPUs change it while their kernels run, and the
    /// driver migrates it; both in whole words.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.words, "word {at} of {} words", self.words);
        // SAFETY: `at` is within the mapping, which lives as long as `self`, as the reference does.
        let word = unsafe { self.base.add(at) };
        // SAFETY: aligned, mapped, and accessed by this process through atomics only.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }
    }

    /// Reads a word. Panics beyond the end, as do the others.
    pub fn read(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    /// Writes a word.
    pub fn write(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }

    /// Adds to a word, and returns its value before.
    pub fn add(&self, at: usize, addend: u64) -> u64 {
        self.word(at).fetch_add(addend, Ordering::Relaxed)
    }

    /// The memory as bytes.
    #[must_use]
    pub fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: mapped as long as `self`, and accessed by this process through atomics only.
        unsafe { slice::from_raw_parts(self.base.as_ptr().cast(), self.words * size_of::<u64>()) }
    }
}

// SAFETY: the memory is accessed through atomics only.
unsafe impl Sync for Words {}
// SAFETY: the mapping belongs to the process, not to a thread, and this value alone unmaps it.
unsafe impl Send for Words {}

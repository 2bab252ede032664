//! Mapping of another process's memory, whose pages that process can take away.

use std::{
    fs::{File, Metadata},
    io,
    num::NonZeroUsize,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::SharedMemoryError;

pub(super) const WORD_BYTES: usize = 8;
/// Unit in which the kernel counts the memory that a file takes.
const SECTOR_BYTES: u64 = 512;

/// First words of a file, mapped for writing.
#[derive(Debug)]
pub(super) struct Mapping {
    words: NonNull<AtomicU64>,
    count: NonZeroUsize,
    file: File,
    /// Whether holes were seen in it.
    had_holes: AtomicBool,
    /// Whether a page could not be locked.
    was_unlocked: AtomicBool,
}

#[expect(unsafe_code, reason = "words are atomic")]
// SAFETY: the mapping belongs to the process and not to a thread, and is accessed by atomic operations alone.
unsafe impl Send for Mapping {}
#[expect(unsafe_code, reason = "words are atomic")]
// SAFETY: the mapping is accessed by atomic operations alone, and system calls on it may be made by any thread.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, of this size.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.bytes()) };
    }
}

impl Mapping {
    /// Maps the first bytes of a file, which must not shrink.
    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    pub(super) fn new(file: File, bytes: NonZeroUsize) -> io::Result<Self> {
        let count = NonZeroUsize::new(bytes.get() / WORD_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping, which touches no other.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes.get(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(address.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { words, count, file, had_holes: AtomicBool::new(false), was_unlocked: AtomicBool::new(false) })
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    #[expect(unsafe_code, reason = "memory that was mapped")]
    pub(super) const fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for as long as this value lives; the file cannot shrink.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.count.get()) }
    }

    const fn bytes(&self) -> usize {
        self.count.get() * WORD_BYTES
    }

    /// Checks that the file has had no holes.
    pub(super) fn check_holes(&self) -> Result<(), SharedMemoryError> {
        if self.file.metadata().map_or(true, |metadata| is_sparse(&metadata)) {
            self.had_holes.store(true, Ordering::Relaxed);
        }
        if self.had_holes.load(Ordering::Relaxed) { Err(SharedMemoryError::Sparse) } else { Ok(()) }
    }

    /// Locks all pages in memory, until they are unmapped. The process can replace a page by one that is not
    /// locked, so that this is repeated.
    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    pub(super) fn lock(&self) -> Result<(), SharedMemoryError> {
        if self.was_unlocked.load(Ordering::Relaxed) {
            return Err(SharedMemoryError::Lock(io::ErrorKind::OutOfMemory.into()));
        }
        // SAFETY: this value's own mapping, of this size; the call changes no memory.
        let result = unsafe { libc::mlock(self.words.as_ptr().cast(), self.bytes()) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        self.was_unlocked.store(true, Ordering::Relaxed);
        Err(SharedMemoryError::Lock(error))
    }

    /// Replaces the mapping by zeros of this process: an access that faults without end then succeeds.
    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    pub(super) fn revoke(&self) {
        // SAFETY: this value's own mapping, of this size. References to its words stay valid: they are to
        // memory of the same address, which is mapped for reading and writing before and after the call.
        let address = unsafe {
            libc::mmap(
                self.words.as_ptr().cast(),
                self.bytes(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        // Without memory for a mapping, the next attempt may succeed.
        debug_assert_ne!(address, libc::MAP_FAILED);
    }
}

/// Whether a file takes less memory than its size, whoever pays for it. Memory beyond its end, allocated
/// before the seals, counts in place of holes. `ftruncate` would free that memory, and `SEEK_HOLE` would find
/// the holes. Both wait for the lock of the inode, and older kernels do not end the wait of a killed process.
/// The owner can hold that lock without end, by a write from memory whose faults it serves.
pub(super) fn is_sparse(metadata: &Metadata) -> bool {
    metadata.blocks().saturating_mul(SECTOR_BYTES) < metadata.len()
}

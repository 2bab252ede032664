//! Mapping of another process's memory, whose pages that process can take away.

use std::{
    ffi::{c_int, c_void},
    fs::{File, Metadata},
    io,
    num::NonZeroUsize,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
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
    /// Zeros of the same size, which take the place of the words; null once they have.
    reserve: AtomicPtr<c_void>,
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
        let reserve = *self.reserve.get_mut();
        if !reserve.is_null() {
            // SAFETY: this value's own mapping, of this size, as it has not taken the place of the words.
            unsafe { libc::munmap(reserve, self.bytes()) };
        }
    }
}

impl Mapping {
    /// Maps the first bytes of a file, which must not shrink.
    pub(super) fn new(file: File, bytes: NonZeroUsize) -> io::Result<Self> {
        let count = NonZeroUsize::new(bytes.get() / WORD_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        let words = map(bytes, libc::MAP_SHARED, file.as_raw_fd())?.cast();
        let (had_holes, was_unlocked) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut mapping = Self { words, count, file, had_holes, was_unlocked, reserve: AtomicPtr::default() };
        *mapping.reserve.get_mut() = map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?.as_ptr();
        Ok(mapping)
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

    /// Replaces the mapping by zeros of this process: an access that faults without end then succeeds. Further
    /// calls have no effect.
    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    pub(super) fn revoke(&self) {
        let reserve = self.reserve.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if reserve.is_null() {
            return;
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: both are this value's own mappings, of this size. References to its words stay valid: they are
        // to memory of the same address, which is mapped for reading and writing before and after the call.
        let address = unsafe { libc::mremap(reserve, self.bytes(), self.bytes(), flags, self.words.as_ptr()) };
        if address == libc::MAP_FAILED {
            self.reserve.store(reserve, Ordering::Release);
        }
    }
}

/// A new mapping for reading and writing.
#[expect(unsafe_code, reason = "a system call without a safe wrapper")]
fn map(bytes: NonZeroUsize, flags: c_int, file: c_int) -> io::Result<NonNull<c_void>> {
    // SAFETY: a new mapping, which touches no other.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes.get(), libc::PROT_READ | libc::PROT_WRITE, flags, file, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Whether a file takes less memory than its size, whoever pays for it. Memory beyond its end, allocated
/// before the seals, counts in place of holes. `ftruncate` would free that memory, and `SEEK_HOLE` would find
/// the holes. Both wait for the lock of the inode, and older kernels do not end the wait of a killed process.
/// The owner can hold that lock without end, by a write from memory whose faults it serves.
pub(super) fn is_sparse(metadata: &Metadata) -> bool {
    metadata.blocks().saturating_mul(SECTOR_BYTES) < metadata.len()
}

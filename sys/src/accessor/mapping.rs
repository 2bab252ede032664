//! Words of another process's memory that are mapped for writing.

use std::{
    fs::{File, Metadata},
    io,
    num::NonZeroUsize,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    ptr::NonNull,
    slice,
    sync::atomic::AtomicU64,
};

/// Bytes of a word.
pub(crate) const WORD_BYTES: usize = 8;
/// Unit in which the kernel counts the memory that a file takes.
const SECTOR_BYTES: u64 = 512;

/// First words of a file, mapped for writing.
#[derive(Debug)]
pub(crate) struct Mapping {
    words: NonNull<AtomicU64>,
    count: NonZeroUsize,
}

#[expect(unsafe_code, reason = "words are atomic")]
// SAFETY: the mapping belongs to the process and not to a thread, and is accessed by atomic operations alone.
unsafe impl Send for Mapping {}
#[expect(unsafe_code, reason = "words are atomic")]
// SAFETY: the mapping is accessed by atomic operations alone.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, of this size.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.count.get() * WORD_BYTES) };
    }
}

impl Mapping {
    /// Maps the first bytes of a file, which must not shrink.
    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    pub(crate) fn new(file: &File, bytes: NonZeroUsize) -> io::Result<Self> {
        let count = NonZeroUsize::new(bytes.get() / WORD_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        let (access, bytes) = (libc::PROT_READ | libc::PROT_WRITE, count.get() * WORD_BYTES);
        // SAFETY: a new mapping, which touches no other.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { words, count })
    }

    #[expect(unsafe_code, reason = "memory that was mapped")]
    pub(crate) const fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for as long as this value lives; the file cannot shrink.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.count.get()) }
    }
}

/// Whether a file takes less memory than its size, whoever pays for it. Memory beyond its end, allocated
/// before the seals, counts in place of holes. `ftruncate` would free that memory, and `SEEK_HOLE` would find
/// the holes. Both wait for the lock of the inode, and older kernels do not end the wait of a killed process.
/// The owner can hold that lock without end, by a write from memory whose faults it serves.
pub(crate) fn is_sparse(metadata: &Metadata) -> bool {
    taken_bytes(metadata) < metadata.len()
}

/// Memory that a file takes.
pub(crate) fn taken_bytes(metadata: &Metadata) -> u64 {
    metadata.blocks().saturating_mul(SECTOR_BYTES)
}

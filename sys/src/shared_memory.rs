//! Shared memory that a process made for uvmd to read: a sealed `memfd` under a name, found among the
//! process's mappings. Nothing of it is taken from the process: no descriptor, and no attachment as
//! of a debugger.

use std::{
    ffi::CStr,
    fs::File,
    io::{self, Read},
    num::NonZeroUsize,
    ops::{Deref, Range},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
    ptr::NonNull,
    slice,
    sync::atomic::AtomicU64,
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_get_seals, fstat, memfd_create};
use thiserror::Error;

use crate::{
    Roots,
    mappings::{self, MAPS_MAX_BYTES},
};

const WORD_BYTES: usize = 8;

/// Reason why memory of a process is not read.
#[derive(Debug, Error)]
pub enum SharedMemoryError {
    /// The process has exited, or its mappings cannot be read.
    #[error("its mappings cannot be read: {}", crate::reason(.0))]
    Mappings(#[source] io::Error),
    /// The memory cannot be opened.
    #[error("its shared memory cannot be opened, which takes CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH: {}", crate::reason(.0))]
    Open(#[source] io::Error),
    /// It has another size, or can be resized, which would end uvmd.
    #[error("its shared memory has {bytes} bytes, sealed: {is_sealed}")]
    Form {
        /// Size.
        bytes: u64,
        /// Whether it cannot be resized.
        is_sealed: bool,
    },
    /// It cannot be mapped.
    #[error("its shared memory cannot be mapped: {}", crate::reason(.0))]
    Map(#[source] io::Error),
}

/// Words of shared memory, mapped here. The other process may change them at any time, but cannot
/// take them away.
#[derive(Debug)]
pub struct SharedMemory {
    words: NonNull<AtomicU64>,
    count: NonZeroUsize,
}

#[expect(unsafe_code, reason = "words are atomic")]
// SAFETY: a mapping is of the process, and not of a thread.
unsafe impl Send for SharedMemory {}
#[expect(unsafe_code, reason = "words are atomic")]
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl Deref for SharedMemory {
    type Target = [AtomicU64];

    #[expect(unsafe_code, reason = "memory that was mapped")]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: mapped for as long as this value lives; the seals forbid to shrink the memory.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.count.get()) }
    }
}

impl Drop for SharedMemory {
    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, of this size.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.count.get() * WORD_BYTES) };
    }
}

impl SharedMemory {
    /// Shared memory of a process with this name and size; `None` if it has none. Reads its mappings,
    /// which may hang.
    ///
    /// # Errors
    /// If it cannot be read, or could be taken away later.
    pub fn of_process(
        roots: &Roots,
        pid: u32,
        name: &CStr,
        bytes: NonZeroUsize,
    ) -> Result<Option<Self>, SharedMemoryError> {
        let folder = roots.proc.join(pid.to_string());
        let device = device().map_err(SharedMemoryError::Map)?;
        let maps = File::open(folder.join("maps")).map_err(SharedMemoryError::Mappings)?;
        let Some(range) = find(maps, name, device).map_err(SharedMemoryError::Mappings)? else { return Ok(None) };
        let file = folder.join("map_files").join(format!("{:x}-{:x}", range.start, range.end));
        Self::open(&file, bytes).map(Some)
    }

    /// Makes such memory, as the helper does.
    ///
    /// # Errors
    /// If it cannot be made.
    #[cfg(any(test, feature = "fake"))]
    pub fn create(name: &CStr, bytes: NonZeroUsize) -> io::Result<Self> {
        Self::with_seals(name, bytes, SealFlags::SHRINK | SealFlags::GROW)
    }

    #[cfg(any(test, feature = "fake"))]
    fn with_seals(name: &CStr, bytes: NonZeroUsize, seals: SealFlags) -> io::Result<Self> {
        let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&memory, bytes.get() as u64)?;
        rustix::fs::fcntl_add_seals(&memory, seals)?;
        Self::map(&File::from(memory), bytes)
    }

    fn open(file: &Path, bytes: NonZeroUsize) -> Result<Self, SharedMemoryError> {
        // Without blocking: the process may have a lease on it.
        let options = &mut File::options();
        let options = options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let memory = options.open(file).map_err(SharedMemoryError::Open)?;
        let seals = fcntl_get_seals(&memory).unwrap_or(SealFlags::empty());
        let is_sealed = seals.contains(SealFlags::SHRINK);
        let there = memory.metadata().map_err(SharedMemoryError::Open)?.len();
        if there != bytes.get() as u64 || !is_sealed {
            return Err(SharedMemoryError::Form { bytes: there, is_sealed });
        }
        Self::map(&memory, bytes).map_err(SharedMemoryError::Map)
    }

    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    fn map(memory: &File, bytes: NonZeroUsize) -> io::Result<Self> {
        // SAFETY: a new mapping, which touches no other.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes.get(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                memory.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(address.cast()).ok_or_else(io::Error::last_os_error)?;
        let count = NonZeroUsize::new(bytes.get() / WORD_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { words, count })
    }
}

/// Device of the kernel's own file system for such memory. No user can mount it, so that a file of
/// this device never hangs.
fn device() -> io::Result<(u32, u32)> {
    let probe = memfd_create("uvmd-probe", MemfdFlags::CLOEXEC)?;
    let device = fstat(probe.as_fd())?.st_dev;
    Ok((rustix::fs::major(device), rustix::fs::minor(device)))
}

/// First shared mapping of a `memfd` of this name that has it from its begin.
fn find(maps: impl Read, name: &CStr, device: (u32, u32)) -> io::Result<Option<Range<u64>>> {
    let mut found = None;
    mappings::for_each(maps, MAPS_MAX_BYTES, |mapping| {
        let is_named = mapping.path.strip_prefix("/memfd:").is_some_and(|path| path.as_bytes() == name.to_bytes());
        let is_whole = mapping.is_shared && mapping.offset_bytes == 0;
        if found.is_none() && is_named && is_whole && mapping.device == device {
            found = Some(mapping.range);
        }
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    const BYTES: NonZeroUsize = NonZeroUsize::new(8192).unwrap();

    fn made(name: &CStr, bytes: usize, seals: SealFlags) -> SharedMemory {
        SharedMemory::with_seals(name, NonZeroUsize::new(bytes).unwrap(), seals).unwrap()
    }

    fn of_this_process(name: &CStr) -> Result<Option<SharedMemory>, SharedMemoryError> {
        SharedMemory::of_process(&Roots::default(), std::process::id(), name, BYTES)
    }

    /// Whether this machine lets the test open mappings.
    fn is_permitted() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root || std::env::var_os("UVMD_TEST_REQUIRE_ROOT").is_none());
        is_root
    }

    #[test]
    fn words_written_on_one_side_are_read_on_the_other() {
        if !is_permitted() {
            return;
        }
        let own = made(c"uvmd-test-words", 8192, SealFlags::SHRINK | SealFlags::GROW);
        let found = of_this_process(c"uvmd-test-words").unwrap().unwrap();
        own[1023].store(7, Ordering::Relaxed);
        assert_eq!((found.len(), found[1023].load(Ordering::Relaxed)), (1024, 7));
        found[0].store(8, Ordering::Relaxed);
        assert_eq!(own[0].load(Ordering::Relaxed), 8);
    }

    #[test]
    fn memory_that_can_shrink_or_has_another_size_is_refused() {
        if !is_permitted() {
            return;
        }
        let _unsealed = made(c"uvmd-test-unsealed", 8192, SealFlags::GROW);
        let refused = of_this_process(c"uvmd-test-unsealed").unwrap_err();
        assert!(matches!(refused, SharedMemoryError::Form { bytes: 8192, is_sealed: false }), "{refused}");
        let _larger = made(c"uvmd-test-larger", 12288, SealFlags::SHRINK);
        let refused = of_this_process(c"uvmd-test-larger").unwrap_err();
        assert!(matches!(refused, SharedMemoryError::Form { bytes: 12288, is_sealed: true }), "{refused}");
    }

    #[test]
    fn process_without_the_memory_has_none() {
        assert!(of_this_process(c"uvmd-test-nothing").unwrap().is_none());
    }

    #[test]
    fn file_of_another_file_system_with_the_same_name_is_not_opened() {
        let line = "7f0000000000-7f0000002000 rw-s 00000000 00:01 1024 /memfd:uvmd-ring (deleted)\n";
        let found = |line: &str| find(line.as_bytes(), c"uvmd-ring", (0, 1)).unwrap();
        assert_eq!(found(line), Some(0x7f00_0000_0000..0x7f00_0000_2000));
        assert_eq!(found(&line.replace("00:01", "00:2a")), None);
        assert_eq!(found(&line.replace("rw-s", "rw-p")), None);
        assert_eq!(found(&line.replace(" 00000000", " 00001000")), None);
        assert_eq!(found(&line.replace("uvmd-ring", "uvmd-ring2")), None);
    }
}

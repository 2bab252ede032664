//! Runner's memory: zeroed, and shared between processes so that it outlives its writer; and memory
//! that an attack shares.

use std::{
    ffi::CStr,
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::AtomicU64,
};

use anyhow::Context;

use super::tally::Tally;

/// Zeroed words, which cost memory only where they are touched: the kernel populates zeroed pages
/// at the first touch.
pub(crate) fn zeroed(words: usize) -> Box<[AtomicU64]> {
    let words: *mut [u64] = Box::into_raw(vec![0_u64; words].into_boxed_slice());
    // SAFETY: AtomicU64 has the size and bit validity of u64, and on 64-bit machines its alignment;
    // ownership of the box moves.
    unsafe { Box::from_raw(words as *mut [AtomicU64]) }
}
const _: () = assert!(align_of::<AtomicU64>() == align_of::<u64>());

/// Shared memory of this size under a name.
fn anonymous(name: &CStr, bytes: u64) -> anyhow::Result<File> {
    // SAFETY: reads a NUL-terminated name.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error()).context("cannot make shared memory");
    }
    // SAFETY: a descriptor that was just created, without another owner.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(bytes).context("cannot size shared memory")?;
    Ok(file)
}

/// Shared memory of this size, all of it there, which cannot be resized any more.
pub(crate) fn sealed(name: &CStr, bytes: u64) -> anyhow::Result<File> {
    let file = anonymous(name, bytes)?;
    // SAFETY: takes numbers; nobody has mapped it.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, libc::off_t::try_from(bytes)?) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot allocate shared memory");
    }
    // SAFETY: takes numbers, touches no memory.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) };
    if result == 0 { Ok(file) } else { Err(io::Error::last_os_error()).context("cannot seal shared memory") }
}

/// Makes a hole of part of shared memory, which reads as zeros.
pub(crate) fn punch(file: &File, offset: u64, bytes: u64) -> anyhow::Result<()> {
    let (offset, bytes) = (libc::off_t::try_from(offset)?, libc::off_t::try_from(bytes)?);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: takes numbers; what the mapping holds changes under atomics.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot make a hole of shared memory") }
}

const PAGE_BYTES: usize = 4096;
/// Number of pages, in the order of the accessors below.
const PAGES: usize = 4;
const COUNTERS: usize = 0;
const EVENT_CONTROL: usize = 1;
const EVENTS: usize = 2;
const TALLY: usize = 3;

/// Page of words that the driver writes.
pub(crate) type Words = [AtomicU64; PAGE_BYTES / 8];

/// Pages that a worker and the runner share: one of the driver's counters, two of its event queue,
/// and the worker's tally.
pub(crate) struct SharedPages {
    file: File,
    base: NonNull<AtomicU64>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and lasts until the pages are dropped.
unsafe impl Send for SharedPages {}
// SAFETY: a shared reference gives access to atomics alone, and to a file, which is `Sync`.
unsafe impl Sync for SharedPages {}

impl SharedPages {
    pub(crate) fn create() -> anyhow::Result<Self> {
        Self::map(anonymous(c"lab-runner", (PAGES * PAGE_BYTES) as u64)?)
    }

    /// Maps pages that another process created.
    pub(crate) fn map(file: File) -> anyhow::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), PAGES * PAGE_BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("cannot map shared memory");
        }
        let base = NonNull::new(base.cast()).context("shared memory at address 0")?;
        Ok(Self { file, base })
    }

    /// Number of the descriptor in this process.
    pub(crate) fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Page of the driver's counters.
    pub(crate) fn counters(&self) -> &Words {
        // SAFETY: atomics, for which every content is valid.
        unsafe { self.page::<COUNTERS, Words>() }
    }

    /// Page with the pointers of the driver's event queue, and its counts of dropped events.
    pub(crate) fn event_control(&self) -> &Words {
        // SAFETY: atomics, for which every content is valid.
        unsafe { self.page::<EVENT_CONTROL, Words>() }
    }

    /// Page of the events themselves.
    pub(crate) fn events(&self) -> &Words {
        // SAFETY: atomics, for which every content is valid.
        unsafe { self.page::<EVENTS, Words>() }
    }

    pub(crate) fn tally(&self) -> &Tally {
        // SAFETY: a tally is atomics.
        unsafe { self.page::<TALLY, Tally>() }
    }

    /// Contents of a page.
    ///
    /// # Safety
    /// Every content of memory is a valid `T`, which changes under a shared reference.
    unsafe fn page<const AT: usize, T>(&self) -> &T {
        const { assert!(AT < PAGES && size_of::<T>() <= PAGE_BYTES && align_of::<T>() <= PAGE_BYTES) };
        // SAFETY: within the mapping.
        let page = unsafe { self.base.byte_add(AT * PAGE_BYTES) };
        // SAFETY: a page of the mapping, which lasts as long as `self`; by the caller's contract
        // its contents are a valid `T`.
        unsafe { page.cast().as_ref() }
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGES * PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_mapping_shows_the_words_of_another_and_outlives_it() {
        let one = SharedPages::create().unwrap();
        let other = SharedPages::map(one.file.try_clone().unwrap()).unwrap();
        one.counters()[9].store(7, Ordering::Relaxed);
        one.event_control()[9].store(8, Ordering::Relaxed);
        one.events()[9].store(9, Ordering::Relaxed);
        one.tally().mismatches.store(3, Ordering::Relaxed);
        drop(one);
        let ninth =
            [other.counters(), other.event_control(), other.events()].map(|page| page[9].load(Ordering::Relaxed));
        assert_eq!(ninth, [7, 8, 9]);
        assert_eq!(other.tally().mismatches.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn zeroed_words_are_zero() {
        assert!(zeroed(1000).iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }
}

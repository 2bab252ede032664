//! System calls that crate `syscalls` lacks. They are made where the helper starts, or its thread:
//! there the filters of system calls are known. Once the helper has started, a call of the program's makes
//! none of them.

#![expect(unsafe_code, reason = "system calls")]

pub(crate) use syscalls::{
    Errno,
    futex::{Sharing, Waited, sleep, wait, wake},
};
use syscalls::{call, file::Descriptor};

/// Numbers of x86-64.
mod number {
    pub(super) const MMAP: usize = 9;
    pub(super) const MUNMAP: usize = 11;
    pub(super) const MADVISE: usize = 28;
    pub(super) const RT_SIGPROCMASK: usize = 14;
    pub(super) const GETPID: usize = 39;
    pub(super) const FCNTL: usize = 72;
    pub(super) const FTRUNCATE: usize = 77;
    pub(super) const PRCTL: usize = 157;
    pub(super) const GETTID: usize = 186;
    pub(super) const FALLOCATE: usize = 285;
    pub(super) const PRLIMIT64: usize = 302;
    pub(super) const MEMFD_CREATE: usize = 319;
}

/// Number of the calling thread.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: takes no arguments, and succeeds always.
    let id = unsafe { call(number::GETTID, [0; 6]) };
    id.ok().and_then(|id| u32::try_from(id).ok()).unwrap_or(0)
}

/// Number of the process, which is that of its first thread.
pub(crate) fn process_id() -> u32 {
    // SAFETY: takes no arguments, and succeeds always.
    let id = unsafe { call(number::GETPID, [0; 6]) };
    id.ok().and_then(|id| u32::try_from(id).ok()).unwrap_or(0)
}

/// Signals that a thread blocks, by bit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals(u64);

impl Signals {
    /// All but those with which C libraries have each thread do something, as `setuid` does.
    pub(crate) const ALL: Self = Self(!(0b111 << 31));

    /// Blocks these alone in the calling thread; returns those that were blocked.
    pub(crate) fn block(self) -> Result<Self, Errno> {
        const SET: usize = 2;
        let mut before = 0_u64;
        let arguments = [SET, (&raw const self.0) as usize, (&raw mut before) as usize, size_of::<u64>(), 0, 0];
        // SAFETY: reads a set of signals, and writes another.
        unsafe { call(number::RT_SIGPROCMASK, arguments) }.map(|_| Self(before))
    }
}

/// Names the calling thread, as tools show it.
pub(crate) fn name_thread(name: &core::ffi::CStr) {
    const SET_NAME: usize = 15;
    // SAFETY: the name ends with a zero.
    let _ = unsafe { call(number::PRCTL, [SET_NAME, name.as_ptr() as usize, 0, 0, 0, 0]) };
}

/// Limit of a resource for this process: the soft one.
pub(crate) fn limit(resource: usize) -> u64 {
    let mut limits = [0_u64; 2];
    // SAFETY: writes an rlimit of two words.
    let _ = unsafe { call(number::PRLIMIT64, [0, resource, 0, (&raw mut limits) as usize, 0, 0]) };
    let [soft, _] = limits;
    soft
}

/// Anonymous shared memory of this size, which cannot be resized any more, all of it there.
pub(crate) fn sealed_memory(name: &core::ffi::CStr, bytes: usize) -> Result<Descriptor, Errno> {
    // Of linux/memfd.h and linux/fcntl.h.
    const CLOSE_ON_EXEC_AND_SEALS: usize = 1 | 2;
    const ADD_SEALS: usize = 1033;
    const SEAL_SEAL_SHRINK_GROW: usize = 1 | 2 | 4;
    // SAFETY: the name ends with a zero.
    let number = unsafe { call(number::MEMFD_CREATE, [name.as_ptr() as usize, CLOSE_ON_EXEC_AND_SEALS, 0, 0, 0, 0]) }?;
    // SAFETY: it was just opened.
    let memory = unsafe { Descriptor::from_raw(number) };
    // SAFETY: takes numbers.
    unsafe { call(number::FTRUNCATE, [memory.number(), bytes, 0, 0, 0, 0]) }?;
    // Now or never: no later write can fail for want of memory.
    // SAFETY: takes numbers.
    unsafe { call(number::FALLOCATE, [memory.number(), 0, 0, bytes, 0, 0]) }?;
    // SAFETY: takes numbers.
    unsafe { call(number::FCNTL, [memory.number(), ADD_SEALS, SEAL_SEAL_SHRINK_GROW, 0, 0, 0]) }?;
    Ok(memory)
}

const READ_WRITE: usize = 1 | 2;

/// Maps shared memory, for ever.
pub(crate) fn map_shared(memory: &Descriptor, bytes: usize) -> Result<usize, Errno> {
    const SHARED: usize = 1;
    // SAFETY: a new mapping, which touches no other.
    unsafe { call(number::MMAP, [0, bytes, READ_WRITE, SHARED, memory.number(), 0]) }
}

/// Maps private memory that is all zeros, for ever.
pub(crate) fn map_private(bytes: usize) -> Result<usize, Errno> {
    const PRIVATE_ANONYMOUS: usize = 2 | 32;
    // SAFETY: a new mapping, which touches no other.
    unsafe { call(number::MMAP, [0, bytes, READ_WRITE, PRIVATE_ANONYMOUS, usize::MAX, 0]) }
}

/// Unmaps memory that nothing uses yet.
pub(crate) fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller made the mapping, and has given it to nobody.
    let _ = unsafe { call(number::MUNMAP, [address, bytes, 0, 0, 0, 0]) };
}

/// What becomes of memory in a child that a fork makes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtFork {
    /// The child does not have it.
    Absent,
    /// The child has zeros in its place.
    Zeros,
}

/// Sets what becomes of mapped memory in a child.
pub(crate) fn at_fork(address: usize, bytes: usize, what: AtFork) -> Result<(), Errno> {
    const DONT_FORK: usize = 10;
    const WIPE_ON_FORK: usize = 18;
    let advice = match what {
        AtFork::Absent => DONT_FORK,
        AtFork::Zeros => WIPE_ON_FORK,
    };
    // SAFETY: changes nothing of this process's memory.
    unsafe { call(number::MADVISE, [address, bytes, advice, 0, 0, 0]) }.map(|_| ())
}

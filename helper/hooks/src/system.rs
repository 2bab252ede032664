//! System calls that crate `syscalls` lacks. They are made only at the start of the helper or of
//! its thread, where the system call filters are known. Once the helper has started, calls of the
//! program make none of them.

#![expect(unsafe_code, reason = "system calls")]

pub(crate) use syscalls::{
    Errno,
    futex::{Sharing, WaitResult, sleep, wait, wake},
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

/// Id of the calling thread.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: takes no arguments, and succeeds always.
    let id = unsafe { call(number::GETTID, [0; 6]) };
    id.ok().and_then(|id| u32::try_from(id).ok()).unwrap_or(0)
}

/// Id of the process, which is that of its first thread.
pub(crate) fn process_id() -> u32 {
    // SAFETY: takes no arguments, and succeeds always.
    let id = unsafe { call(number::GETPID, [0; 6]) };
    id.ok().and_then(|id| u32::try_from(id).ok()).unwrap_or(0)
}

/// Signal mask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalMask(u64);

impl SignalMask {
    /// All signals except those that C libraries send to each thread, as `setuid` does.
    pub(crate) const ALL: Self = Self(!(0b111 << 31));

    /// Sets the calling thread's signal mask; returns the former one.
    pub(crate) fn set(self) -> Result<Self, Errno> {
        const SET: usize = 2;
        let mut former = 0_u64;
        let arguments = [SET, (&raw const self.0) as usize, (&raw mut former) as usize, size_of::<u64>(), 0, 0];
        // SAFETY: reads a set of signals, and writes another.
        unsafe { call(number::RT_SIGPROCMASK, arguments) }.map(|_| Self(former))
    }
}

/// Names the calling thread, as shown by tools.
pub(crate) fn name_thread(name: &core::ffi::CStr) {
    const SET_NAME: usize = 15;
    // SAFETY: the name ends with a zero.
    let _ = unsafe { call(number::PRCTL, [SET_NAME, name.as_ptr() as usize, 0, 0, 0, 0]) };
}

/// Soft limit of a resource for this process.
pub(crate) fn limit(resource: usize) -> u64 {
    let mut limits = [0_u64; 2];
    // SAFETY: writes an rlimit of two words.
    let _ = unsafe { call(number::PRLIMIT64, [0, resource, 0, (&raw mut limits) as usize, 0, 0]) };
    let [soft, _] = limits;
    soft
}

/// Anonymous shared memory of this size: sealed against resizing, and fully allocated.
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
    // Allocated now, so that no later write can fail for lack of memory.
    // SAFETY: takes numbers.
    unsafe { call(number::FALLOCATE, [memory.number(), 0, 0, bytes, 0, 0]) }?;
    // SAFETY: takes numbers.
    unsafe { call(number::FCNTL, [memory.number(), ADD_SEALS, SEAL_SEAL_SHRINK_GROW, 0, 0, 0]) }?;
    Ok(memory)
}

const READ_WRITE: usize = 1 | 2;

/// Maps shared memory for the life of the process.
pub(crate) fn map_shared(memory: &Descriptor, bytes: usize) -> Result<usize, Errno> {
    const SHARED: usize = 1;
    // SAFETY: a new mapping, which touches no other.
    unsafe { call(number::MMAP, [0, bytes, READ_WRITE, SHARED, memory.number(), 0]) }
}

/// Maps zeroed private memory for the life of the process.
pub(crate) fn map_private(bytes: usize) -> Result<usize, Errno> {
    const PRIVATE_ANONYMOUS: usize = 2 | 32;
    // SAFETY: a new mapping, which touches no other.
    unsafe { call(number::MMAP, [0, bytes, READ_WRITE, PRIVATE_ANONYMOUS, usize::MAX, 0]) }
}

/// Unmaps memory that nothing uses yet.
pub(crate) fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller created the mapping, and has not shared it.
    let _ = unsafe { call(number::MUNMAP, [address, bytes, 0, 0, 0, 0]) };
}

/// Treatment of memory in a forked child.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtFork {
    /// The child does not have the mapping.
    DontFork,
    /// The child's copy is zeroed.
    WipeOnFork,
}

/// Sets the treatment of mapped memory in a forked child.
pub(crate) fn at_fork(address: usize, bytes: usize, behaviour: AtFork) -> Result<(), Errno> {
    const DONT_FORK: usize = 10;
    const WIPE_ON_FORK: usize = 18;
    let advice = match behaviour {
        AtFork::DontFork => DONT_FORK,
        AtFork::WipeOnFork => WIPE_ON_FORK,
    };
    // SAFETY: changes nothing of this process's memory.
    unsafe { call(number::MADVISE, [address, bytes, advice, 0, 0, 0]) }.map(|_| ())
}

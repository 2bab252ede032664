//! System calls, made directly: they leave `errno` alone, and need no function of a C library. They
//! are those that C libraries make, which filters of system calls permit.

#![expect(unsafe_code, reason = "system calls")]

use core::{arch::asm, sync::atomic::AtomicU64};

/// Numbers of x86-64.
mod number {
    pub(super) const READ: usize = 0;
    pub(super) const CLOSE: usize = 3;
    pub(super) const MMAP: usize = 9;
    pub(super) const MUNMAP: usize = 11;
    pub(super) const MADVISE: usize = 28;
    pub(super) const RT_SIGPROCMASK: usize = 14;
    pub(super) const SCHED_YIELD: usize = 24;
    pub(super) const GETPID: usize = 39;
    pub(super) const FCNTL: usize = 72;
    pub(super) const FTRUNCATE: usize = 77;
    pub(super) const PRCTL: usize = 157;
    pub(super) const GETTID: usize = 186;
    pub(super) const FUTEX: usize = 202;
    pub(super) const CLOCK_GETTIME: usize = 228;
    pub(super) const OPENAT: usize = 257;
    pub(super) const FALLOCATE: usize = 285;
    pub(super) const PRLIMIT64: usize = 302;
    pub(super) const CLONE: usize = 56;
    pub(super) const EXIT: usize = 60;
    pub(super) const WAIT4: usize = 61;
    pub(super) const MEMFD_CREATE: usize = 319;
}

/// Error number of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// # Safety
/// As the call with this number demands of its arguments.
unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result: isize;
    // SAFETY: the kernel changes rax, rcx and r11 alone; the rest is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    match result {
        -4095..0 => Err(Errno(i32::try_from(-result).unwrap_or(0))),
        _ => Ok(result.cast_unsigned()),
    }
}

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

/// Lets another thread run.
pub(crate) fn give_way() {
    // SAFETY: takes no arguments.
    let _ = unsafe { call(number::SCHED_YIELD, [0; 6]) };
}

/// Who shares a word that is waited at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sharing {
    /// Threads of this process.
    Private,
    /// Other processes, too.
    Shared,
}

impl Sharing {
    /// Operation on a word, of linux/futex.h.
    const fn operation(self, operation: usize) -> usize {
        const PRIVATE: usize = 128;
        match self {
            Self::Private => operation | PRIVATE,
            Self::Shared => operation,
        }
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The word was woken, or may have been.
    Woken,
    /// The time is up.
    TimedOut,
    /// The kernel lets nobody wait.
    Failed,
}

/// Waits until a word is woken, for so long at most, unless its first half is another.
pub(crate) fn wait(word: &AtomicU64, half: u32, sharing: Sharing, time_ns: u64) -> Waited {
    const WAIT: usize = 0;
    // Of asm-generic/errno.h: interrupted, another half, and the time.
    const WOKEN: [Errno; 2] = [Errno(4), Errno(11)];
    const TIMED_OUT: Errno = Errno(110);
    let time = [time_ns / 1_000_000_000, time_ns % 1_000_000_000];
    let arguments = [word.as_ptr() as usize, sharing.operation(WAIT), half as usize, (&raw const time) as usize, 0, 0];
    // SAFETY: reads the word and a timespec of two words.
    match unsafe { call(number::FUTEX, arguments) } {
        Err(TIMED_OUT) => Waited::TimedOut,
        Err(error) if !WOKEN.contains(&error) => Waited::Failed,
        _ => Waited::Woken,
    }
}

/// Wakes all that wait at a word.
pub(crate) fn wake(word: &AtomicU64, sharing: Sharing) {
    const WAKE: usize = 1;
    const ALL: usize = i32::MAX as usize;
    // SAFETY: takes an address as a name alone.
    let _ = unsafe { call(number::FUTEX, [word.as_ptr() as usize, sharing.operation(WAKE), ALL, 0, 0, 0]) };
}

/// Whether a thread has ended, by its number; `None` if that is not known. The kernel refuses to lock a
/// word whose owner has ended, and one whose owner has not, for different reasons.
pub(crate) fn thread_has_ended(thread: u32) -> Option<bool> {
    const TRY_LOCK_PI: usize = 8;
    // Of asm-generic/errno.h: no such thread; locked; locked by the calling thread.
    const ENDED: Errno = Errno(3);
    const LIVES: [Errno; 2] = [Errno(11), Errno(35)];
    let word = AtomicU64::new(thread.into());
    let arguments = [word.as_ptr() as usize, Sharing::Private.operation(TRY_LOCK_PI), 0, 0, 0, 0];
    // SAFETY: changes the word.
    match unsafe { call(number::FUTEX, arguments) } {
        Err(ENDED) => Some(true),
        Err(error) if LIVES.contains(&error) => Some(false),
        _ => None,
    }
}

/// Sleeps. By the call that is made to wait: a filter that permits that permits this.
pub(crate) fn sleep(time_ns: u64) {
    let nobody = AtomicU64::new(0);
    wait(&nobody, 0, Sharing::Private, time_ns);
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

/// Time of the monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    const MONOTONIC: usize = 1;
    let mut time = [0_u64; 2];
    // SAFETY: writes a timespec of two words.
    let _ = unsafe { call(number::CLOCK_GETTIME, [MONOTONIC, (&raw mut time) as usize, 0, 0, 0, 0]) };
    let [seconds, nanoseconds] = time;
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

/// Limit of a resource for this process: the soft one.
pub(crate) fn limit(resource: usize) -> u64 {
    let mut limits = [0_u64; 2];
    // SAFETY: writes an rlimit of two words.
    let _ = unsafe { call(number::PRLIMIT64, [0, resource, 0, (&raw mut limits) as usize, 0, 0]) };
    let [soft, _] = limits;
    soft
}

/// Descriptor that is closed at its end.
#[derive(Debug)]
pub(crate) struct Descriptor(usize);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own.
        let _ = unsafe { call(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Most bytes of a text that is read.
pub(crate) const TEXT_BYTES_MAX: usize = 4096;

/// Text of a file; what does not fit is cut.
pub(crate) fn read_text<'a>(path: &core::ffi::CStr, text: &'a mut [u8; TEXT_BYTES_MAX]) -> Option<&'a [u8]> {
    const IN_CURRENT_FOLDER: usize = (-100_isize).cast_unsigned();
    const READ_AND_CLOSE_ON_EXEC: usize = 0o2_000_000;
    let arguments = [IN_CURRENT_FOLDER, path.as_ptr() as usize, READ_AND_CLOSE_ON_EXEC, 0, 0, 0];
    // SAFETY: the path ends with a zero.
    let file = unsafe { call(number::OPENAT, arguments) }.map(Descriptor).ok()?;
    let mut length = 0;
    while let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) {
        // SAFETY: writes at most as many bytes as there are.
        match unsafe { call(number::READ, [file.0, rest.as_mut_ptr() as usize, rest.len(), 0, 0, 0]) } {
            Ok(0) => break,
            Ok(more) => length = length.saturating_add(more),
            Err(_) => return None,
        }
    }
    text.get(..length)
}

/// Whether a filter of system calls lets the process live that makes shared memory: asked by a
/// child of its own, which nobody but this function waits for and no signal tells of.
pub(crate) fn may_make_memory() -> bool {
    // Of linux/wait.h: also for children without a signal at their end.
    const ALL: usize = 0x4000_0000;
    // SAFETY: a child with a copy of this memory, which makes system calls alone, and no signal at
    // its end.
    let Ok(child) = (unsafe { call(number::CLONE, [0; 6]) }) else { return false };
    if child == 0 {
        let made = sealed_memory(c"uvmd-probe", 4096).is_ok();
        // SAFETY: ends the child.
        let _ = unsafe { call(number::EXIT, [usize::from(!made), 0, 0, 0, 0, 0]) };
    }
    let mut status = -1_i32;
    // SAFETY: writes a status.
    let waited = unsafe { call(number::WAIT4, [child, (&raw mut status) as usize, ALL, 0, 0, 0]) };
    waited.is_ok() && status == 0
}

/// Anonymous shared memory of this size, which cannot be resized any more, all of it there.
pub(crate) fn sealed_memory(name: &core::ffi::CStr, bytes: usize) -> Result<Descriptor, Errno> {
    // Of linux/memfd.h and linux/fcntl.h.
    const CLOSE_ON_EXEC_AND_SEALS: usize = 1 | 2;
    const ADD_SEALS: usize = 1033;
    const SEAL_SEAL_SHRINK_GROW: usize = 1 | 2 | 4;
    // SAFETY: the name ends with a zero.
    let number = unsafe { call(number::MEMFD_CREATE, [name.as_ptr() as usize, CLOSE_ON_EXEC_AND_SEALS, 0, 0, 0, 0]) }?;
    let memory = Descriptor(number);
    // SAFETY: takes numbers.
    unsafe { call(number::FTRUNCATE, [memory.0, bytes, 0, 0, 0, 0]) }?;
    // Now or never: no later write can fail for want of memory.
    // SAFETY: takes numbers.
    unsafe { call(number::FALLOCATE, [memory.0, 0, 0, bytes, 0, 0]) }?;
    // SAFETY: takes numbers.
    unsafe { call(number::FCNTL, [memory.0, ADD_SEALS, SEAL_SEAL_SHRINK_GROW, 0, 0, 0]) }?;
    Ok(memory)
}

const READ_WRITE: usize = 1 | 2;

/// Maps shared memory, for ever.
pub(crate) fn map_shared(memory: &Descriptor, bytes: usize) -> Result<usize, Errno> {
    const SHARED: usize = 1;
    // SAFETY: a new mapping, which touches no other.
    unsafe { call(number::MMAP, [0, bytes, READ_WRITE, SHARED, memory.0, 0]) }
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

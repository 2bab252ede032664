//! Return of freed memory from this process's allocator to the kernel.

/// Bytes from which on an allocation is mapped by itself, and goes back to the system when it is freed; and free bytes from which on an arena gives back its
/// end. These are the C library's own first values, which it raises as large allocations are freed unless they are set.
const LARGE_BYTES: libc::c_int = 128 << 10;
/// Else there are eight for each CPU: what a thread frees that belongs to another's arena waits there until that thread needs as much again.
const ARENAS: libc::c_int = 2;

/// Has the C library's allocator return freed memory. A service that now and then makes a large answer, on one thread or another, takes the memory of
/// all
/// of them otherwise. For the beginning of a program. Returns whether it will.
#[cfg(target_env = "gnu")]
#[must_use]
#[expect(unsafe_code, reason = "a function of the C library without a safe wrapper")]
pub fn return_freed_memory() -> bool {
    let parameters =
        [(libc::M_ARENA_MAX, ARENAS), (libc::M_MMAP_THRESHOLD, LARGE_BYTES), (libc::M_TRIM_THRESHOLD, LARGE_BYTES)];
    // SAFETY: it changes a number of the allocator's, under the allocator's own lock.
    let set = |(parameter, value)| unsafe { libc::mallopt(parameter, value) } == 1;
    parameters.map(set).iter().all(|is_set| *is_set)
}

/// Another C library has its own ways.
#[cfg(not(target_env = "gnu"))]
#[must_use]
pub const fn return_freed_memory() -> bool {
    false
}

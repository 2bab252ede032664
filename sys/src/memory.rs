//! Return of freed memory from this process's allocator to the kernel.

/// Size in bytes from which an allocation is mapped separately and returned to the system when
/// freed; and free bytes from which an arena returns its end. Both are the C library's initial
/// values, which it raises as large allocations are freed, unless they are set.
const LARGE_BYTES: libc::c_int = 128 << 10;
/// Number of arenas. The default is eight per CPU: memory that a thread frees in another's arena
/// stays there until that thread needs as much again.
const ARENAS: libc::c_int = 2;

/// Makes the C library's allocator return freed memory. Otherwise a service that sometimes makes a
/// large response, on changing threads, keeps the memory of all of them. To be called at the start
/// of a program. Returns whether it succeeded.
#[cfg(target_env = "gnu")]
#[must_use]
#[expect(unsafe_code, reason = "a function of the C library without a safe wrapper")]
pub fn return_freed_memory() -> bool {
    let parameters =
        [(libc::M_ARENA_MAX, ARENAS), (libc::M_MMAP_THRESHOLD, LARGE_BYTES), (libc::M_TRIM_THRESHOLD, LARGE_BYTES)];
    // SAFETY: changes a number of the allocator, under the allocator's lock.
    let set = |(parameter, value)| unsafe { libc::mallopt(parameter, value) } == 1;
    parameters.map(set).iter().all(|is_set| *is_set)
}

/// Returns `false`: other C libraries have no such setting.
#[cfg(not(target_env = "gnu"))]
#[must_use]
pub const fn return_freed_memory() -> bool {
    false
}

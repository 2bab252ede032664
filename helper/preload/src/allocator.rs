//! Managed memory for PyTorch: the two functions of a `torch.cuda.memory.CUDAPluggableAllocator`.
//!
//! They call the driver through the exports, as a program that is linked to it does, so that their
//! allocations are recorded if calls are. Threads of PyTorch's autograd call them before they have
//! a context: the runtime, which would make one current, is not involved.

#![expect(unsafe_code, reason = "functions of PyTorch's ABI, which call the driver")]

use core::{
    ffi::{CStr, c_int, c_void},
    mem::{transmute, transmute_copy},
    ptr::null_mut,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    driver,
    exports::{self, cuMemAllocManaged, cuMemFree_v2},
};

/// Memory that any stream of any device may access (`CU_MEM_ATTACH_GLOBAL` of cuda.h).
const ATTACH_GLOBAL: u32 = 1;
/// `CUDA_ERROR_INVALID_CONTEXT` of cuda.h: the thread has no context.
const INVALID_CONTEXT: c_int = 201;

/// Bit mask of the devices whose primary context is retained here until the process exits, as the
/// runtime does: memory ends with its context. Devices beyond the mask are retained at each use.
static RETAINED: AtomicU64 = AtomicU64::new(0);

type Context = *mut c_void;

/// Allocates `bytes` of managed memory. Returns null for 0 bytes. If the driver is missing or
/// fails, returns null and writes a line to standard error, as PyTorch takes any result for an
/// address. Takes the loader's lock until the driver is pinned.
///
/// # Safety
/// Any arguments are valid.
#[cfg_attr(feature = "injected", unsafe(no_mangle))]
pub unsafe extern "C" fn uvmd_malloc(bytes: isize, device: c_int, _stream: *mut c_void) -> *mut c_void {
    type AllocManaged = unsafe extern "C" fn(*mut *mut c_void, usize, u32) -> c_int;
    // SAFETY: the type is that of cuda.h.
    let allocate = unsafe { transmute::<unsafe extern "C" fn(), AllocManaged>(cuMemAllocManaged) };
    let Ok(bytes) = usize::try_from(bytes) else { return null_mut() };
    // A program that opened this library by `dlopen` does not call its `dlsym`.
    exports::prepare();
    let mut address = null_mut();
    let result = in_context(device, || {
        // SAFETY: the address is writable. The driver refuses 0 bytes.
        unsafe { allocate(&raw mut address, bytes, ATTACH_GLOBAL) }
    });
    if result == 0 {
        return address;
    }
    if bytes > 0 {
        write_stderr(b"uvmd_malloc: the CUDA driver failed to allocate managed memory\n");
    }
    null_mut()
}

/// Frees memory of [`uvmd_malloc`]. The driver waits for work that accesses it.
///
/// # Safety
/// The memory is not accessed afterwards.
#[cfg_attr(feature = "injected", unsafe(no_mangle))]
pub unsafe extern "C" fn uvmd_free(address: *mut c_void, _bytes: isize, device: c_int, _stream: *mut c_void) {
    type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
    // SAFETY: the type is that of cuda.h.
    let free = unsafe { transmute::<unsafe extern "C" fn(), Free>(cuMemFree_v2) };
    // PyTorch expects no result. The program's next wait also reports an error of earlier work.
    in_context(device, || {
        // SAFETY: the caller guarantees that nothing accesses the memory afterwards.
        unsafe { free(address) }
    });
}

/// Calls the driver, in the device's primary context if the thread has none.
fn in_context(device: c_int, mut call: impl FnMut() -> c_int) -> c_int {
    let result = call();
    if result == INVALID_CONTEXT { in_primary_context(device, call).unwrap_or(result) } else { result }
}

/// Calls the driver in a device's primary context, and restores the thread's context. `None` if
/// there is no such device.
fn in_primary_context(device: c_int, mut call: impl FnMut() -> c_int) -> Option<c_int> {
    // SAFETY: the type is that of cuda.h.
    let get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int = unsafe { driver_function(c"cuDeviceGet") }?;
    // SAFETY: the type is that of cuda.h.
    let retain: unsafe extern "C" fn(*mut Context, c_int) -> c_int =
        unsafe { driver_function(c"cuDevicePrimaryCtxRetain") }?;
    // SAFETY: the type is that of cuda.h.
    let release: unsafe extern "C" fn(c_int) -> c_int = unsafe { driver_function(c"cuDevicePrimaryCtxRelease_v2") }?;
    // SAFETY: the type is that of cuda.h.
    let push: unsafe extern "C" fn(Context) -> c_int = unsafe { driver_function(c"cuCtxPushCurrent_v2") }?;
    // SAFETY: the type is that of cuda.h.
    let pop: unsafe extern "C" fn(*mut Context) -> c_int = unsafe { driver_function(c"cuCtxPopCurrent_v2") }?;

    let (mut handle, mut context) = (0, null_mut());
    // SAFETY: the handle's address is writable.
    let found = unsafe { get(&raw mut handle, device) };
    // SAFETY: the context's address is writable.
    let retained = found == 0 && unsafe { retain(&raw mut context, handle) } == 0;
    if !retained {
        return None;
    }
    // SAFETY: the context is retained.
    let pushed = unsafe { push(context) } == 0;
    let result = pushed.then(&mut call);
    if pushed {
        // SAFETY: the context was pushed, and the address is writable.
        unsafe { pop(&raw mut context) };
    }
    let bit = u32::try_from(device).ok().and_then(|device| 1_u64.checked_shl(device)).unwrap_or(0);
    if RETAINED.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        // SAFETY: the context was retained twice.
        unsafe { release(handle) };
    }
    result
}

/// Writes a line to standard error.
fn write_stderr(line: &[u8]) {
    const WRITE: usize = 1;
    const STANDARD_ERROR: usize = 2;
    // SAFETY: a system call that reads the line.
    let _ = unsafe { syscalls::call(WRITE, [STANDARD_ERROR, line.as_ptr() as usize, line.len(), 0, 0, 0]) };
}

/// Function of the driver itself, without its hook: only calls of the program are recorded.
///
/// # Safety
/// `F` is the type of a pointer to the function of this name.
unsafe fn driver_function<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "F is a function pointer") };
    let function = driver::function(name)?;
    // SAFETY: the caller guarantees that `F` is the function's type.
    Some(unsafe { transmute_copy(&function) })
}

//! Stand-in for the driver. Functions listed in `functions!` return the result that a test sets in
//! [`RESULT`]; the others answer the helper's queries.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicI32, AtomicU64, Ordering},
};

/// Context that is current to all threads.
pub(crate) static CURRENT: AtomicU64 = AtomicU64::new(0);
/// Result of the functions listed in `functions!`.
pub(crate) static RESULT: AtomicI32 = AtomicI32::new(0);
/// Address or handle that allocating and creating functions return.
pub(crate) static CREATED: AtomicU64 = AtomicU64::new(0);
/// Context of each green context.
pub(crate) static GREEN: AtomicU64 = AtomicU64::new(0);
/// Whether the primary context of the device is active.
pub(crate) static IS_PRIMARY_ACTIVE: AtomicI32 = AtomicI32::new(1);
/// Whether memory is managed.
pub(crate) static MANAGED: AtomicI32 = AtomicI32::new(1);
/// Number of the allocation at any address, or 0 if the driver has none.
pub(crate) static MEMORY_ID: AtomicU64 = AtomicU64::new(0);
/// `CUmemorytype` of memory.
pub(crate) static MEMORY_TYPE: AtomicI32 = AtomicI32::new(2);
/// Capture that each stream is part of, or 0.
pub(crate) static CAPTURE: AtomicU64 = AtomicU64::new(0);
/// Result of the query for the device of a context.
pub(crate) static DEVICE_RESULT: AtomicI32 = AtomicI32::new(0);
/// Result of a look-up of a variable's size without its address.
pub(crate) static SIZE_RESULT: AtomicI32 = AtomicI32::new(0);
/// Number of devices.
pub(crate) static DEVICES: AtomicI32 = AtomicI32::new(1);
/// Count of queries of functions' parameters.
pub(crate) static PARAMETER_QUERIES: AtomicU64 = AtomicU64::new(0);

const INVALID: i32 = 1;

unsafe extern "C" {
    #[link_name = "dlsym"]
    fn libc_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Writes the output of a function.
fn write<T>(output: *mut T, value: T) -> i32 {
    // SAFETY: the helper and the tests pass addresses of their own variables.
    unsafe { output.write(value) };
    0
}

extern "C" fn current(context: *mut u64) -> i32 {
    write(context, CURRENT.load(Ordering::Relaxed))
}

extern "C" fn device_of_current(device: *mut i32) -> i32 {
    write(device, 0)
}

extern "C" fn device_of(device: *mut i32, _: u64) -> i32 {
    let result = DEVICE_RESULT.load(Ordering::Relaxed);
    if result == 0 { write(device, 0) } else { result }
}

extern "C" fn green(context: *mut u64, _: u64) -> i32 {
    write(context, GREEN.load(Ordering::Relaxed))
}

extern "C" fn device_count(count: *mut i32) -> i32 {
    write(count, DEVICES.load(Ordering::Relaxed))
}

extern "C" fn primary_state(_: i32, flags: *mut u32, is_active: *mut i32) -> i32 {
    write(flags, 0);
    write(is_active, IS_PRIMARY_ACTIVE.load(Ordering::Relaxed))
}

extern "C" fn capture_info(_: u64, status: *mut u32, id: *mut u64) -> i32 {
    let capture = CAPTURE.load(Ordering::Relaxed);
    write(status, u32::from(capture != 0));
    write(id, capture)
}

/// Attribute of a pointer: its type of memory, the number of its allocation, and whether it is managed.
extern "C" fn attribute(value: *mut c_void, attribute: u32, _: u64) -> i32 {
    match attribute {
        2 => write(value.cast(), MEMORY_TYPE.load(Ordering::Relaxed)),
        7 if MEMORY_ID.load(Ordering::Relaxed) != 0 => write(value.cast(), MEMORY_ID.load(Ordering::Relaxed)),
        8 => write(value.cast(), MANAGED.load(Ordering::Relaxed)),
        _ => INVALID,
    }
}

/// Look-up of a variable of 8 bytes. Either output may be null.
fn look_up_variable(address: *mut u64, bytes: *mut usize) -> i32 {
    if !bytes.is_null() {
        write(bytes, 8);
    }
    if address.is_null() {
        SIZE_RESULT.load(Ordering::Relaxed)
    } else {
        write(address, CREATED.load(Ordering::Relaxed))
    }
}

extern "C" fn variable_of_module(address: *mut u64, bytes: *mut usize) -> i32 {
    // No other function has the same address, as in `functions`.
    std::hint::black_box("module");
    look_up_variable(address, bytes)
}

extern "C" fn variable_of_library(address: *mut u64, bytes: *mut usize) -> i32 {
    std::hint::black_box("library");
    look_up_variable(address, bytes)
}

extern "C" fn managed_of_library(address: *mut u64, bytes: *mut usize) -> i32 {
    std::hint::black_box("managed");
    look_up_variable(address, bytes)
}

/// A function with one parameter of 8 bytes.
extern "C" fn parameter(_: u64, at: usize, offset_bytes: *mut usize, bytes: *mut usize) -> i32 {
    PARAMETER_QUERIES.fetch_add(1, Ordering::Relaxed);
    if at > 0 {
        return INVALID;
    }
    write(offset_bytes, 0);
    write(bytes, 8)
}

extern "C" fn function_name(name: *mut *const c_char, _: u64) -> i32 {
    write(name, c"kernel".as_ptr())
}

/// Functions that write a created address or handle to their first argument, and functions without
/// output.
macro_rules! functions {
    (creating $($created:ident)*; others $($other:ident)*) => {
        mod creating {
            use super::{CREATED, Ordering, RESULT, write};

            $(
                #[expect(non_snake_case, reason = "the name of the driver")]
                pub(super) extern "C" fn $created(output: *mut u64) -> i32 {
                    // A name of its own, so that no other function has the same address.
                    std::hint::black_box(stringify!($created));
                    let result = RESULT.load(Ordering::Relaxed);
                    if result == 0 { write(output, CREATED.load(Ordering::Relaxed)) } else { result }
                }
            )*
        }

        mod others {
            use super::{Ordering, RESULT};

            $(
                #[expect(non_snake_case, reason = "the name of the driver")]
                pub(super) extern "C" fn $other() -> i32 {
                    std::hint::black_box(stringify!($other));
                    RESULT.load(Ordering::Relaxed)
                }
            )*
        }

        /// Function by name; null if it is not listed.
        fn function_of_table(name: &str) -> *mut c_void {
            match name {
                $(stringify!($created) => creating::$created as *mut c_void,)*
                $(stringify!($other) => others::$other as *mut c_void,)*
                _ => null_mut(),
            }
        }
    };
}

functions! {
    creating cuCtxAttach cuDevicePrimaryCtxRetain cuGraphAddNode_v3 cuMemAllocManaged cuMemAllocFromPoolAsync;
    others cuCtxDestroy_v2 cuCtxDetach cuCtxSynchronize_v2 cuDevicePrimaryCtxReset_v2 cuGraphNodeSetParams_v2
        cuGreenCtxDestroy cuLaunchKernel cuMemAdvise_v2 cuMemDiscardAndPrefetchBatchAsync cuMemDiscardBatchAsync
        cuMemFree_v2 cuMemPrefetchAsync_v2 cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_v2 cuMemcpy3DPeerAsync
        cuMemcpy3DWithAttributesAsync cuMemcpyBatchAsync cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync_v2_ptsz
        cuMemcpyWithAttributesAsync cuStreamAttachMemAsync cuStreamBeginRecaptureToGraph
        cuModuleUnload cuLibraryUnload
}

/// Function of the stand-in; null if it has none of that name.
pub(crate) fn function(name: &CStr) -> *mut c_void {
    match name.to_str().unwrap() {
        "cuCtxGetCurrent" => current as *mut c_void,
        "cuCtxGetDevice" => device_of_current as *mut c_void,
        "cuCtxGetDevice_v2" => device_of as *mut c_void,
        "cuCtxFromGreenCtx" => green as *mut c_void,
        "cuDeviceGetCount" => device_count as *mut c_void,
        "cuDevicePrimaryCtxGetState" => primary_state as *mut c_void,
        "cuStreamGetCaptureInfo" => capture_info as *mut c_void,
        "cuPointerGetAttribute" => attribute as *mut c_void,
        "cuModuleGetGlobal_v2" => variable_of_module as *mut c_void,
        "cuLibraryGetGlobal" => variable_of_library as *mut c_void,
        "cuLibraryGetManaged" => managed_of_library as *mut c_void,
        "cuFuncGetParamInfo" => parameter as *mut c_void,
        "cuFuncGetName" => function_name as *mut c_void,
        name => function_of_table(name),
    }
}

/// As the first stage passes it: functions of the process, or of the driver by its handle.
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    if handle.is_null() {
        // SAFETY: as the caller's.
        return unsafe { libc_dlsym(handle, name) };
    }
    // SAFETY: the helper passes a text that ends with a zero.
    function(unsafe { CStr::from_ptr(name) })
}

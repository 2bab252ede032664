//! Functions of the driver that the helper calls for itself.

#![expect(unsafe_code, reason = "calls the driver")]

use core::ffi::c_void;

use crate::{
    cuda::{CuResult, Handle},
    parameters::Parameter,
    real::driver_functions,
};

driver_functions! {
    fn cuCtxGetCurrent(context: *mut Handle);
    fn cuCtxGetDevice(device: *mut i32);
    fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, is_active: *mut i32);
    fn cuFuncGetName(name: *mut *const u8, function: Handle);
    fn cuKernelGetName(name: *mut *const u8, kernel: Handle);
    fn cuFuncGetParamInfo(function: Handle, at: usize, offset_bytes: *mut usize, bytes: *mut usize);
    fn cuKernelGetParamInfo(kernel: Handle, at: usize, offset_bytes: *mut usize, bytes: *mut usize);
    fn cuPointerGetAttribute(value: *mut c_void, attribute: u32, address: u64);
    fn cuStreamGetCaptureInfo(stream: Handle, status: *mut u32, id: *mut u64);
}

/// What a call wrote, if it succeeded.
fn written<T>(result: Option<CuResult>, value: T) -> Option<T> {
    result.filter(|result| result.is_ok()).map(|_| value)
}

/// Context of the calling thread; 0 without one.
pub(crate) fn context() -> Handle {
    let mut context = 0;
    written(cuCtxGetCurrent(&raw mut context), ()).map_or(0, |()| context)
}

/// CUDA device of the calling thread's context.
pub(crate) fn device() -> u64 {
    let mut device = 0;
    let result = cuCtxGetDevice(&raw mut device);
    written(result, device).and_then(|device| u64::try_from(device).ok()).unwrap_or(0)
}

/// Whether the primary context of a device exists.
pub(crate) fn primary_is_active(device: i32) -> bool {
    let (mut flags, mut is_active) = (0, 0);
    let result = cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut is_active);
    written(result, is_active).is_none_or(|is_active| is_active != 0)
}

/// Name of a function, or of a kernel that is launched as one; null before CUDA 12.3.
pub(crate) fn name(function: Handle) -> *const u8 {
    let mut name = core::ptr::null();
    let result = cuFuncGetName(&raw mut name, function);
    if written(result, ()).is_some() {
        return name;
    }
    let mut name = core::ptr::null();
    let result = cuKernelGetName(&raw mut name, function);
    written(result, name).unwrap_or(core::ptr::null())
}

/// Parameter of a function, or of a kernel that is launched as one; `None` behind the last one, and
/// before CUDA 12.4.
pub(crate) fn parameter(function: Handle, at: usize) -> Option<Parameter> {
    let (mut offset_bytes, mut bytes) = (0, 0);
    let mut result = cuFuncGetParamInfo(function, at, &raw mut offset_bytes, &raw mut bytes);
    if written(result, ()).is_none() {
        result = cuKernelGetParamInfo(function, at, &raw mut offset_bytes, &raw mut bytes);
    }
    written(result, ()).and_then(|()| Parameter::new(offset_bytes, bytes))
}

/// Whether drivers tell parameters at all.
pub(crate) fn tells_parameters() -> bool {
    !reals::cuFuncGetParamInfo.address().is_null()
}

/// Whether memory is managed.
pub(crate) fn is_managed(address: u64) -> bool {
    const IS_MANAGED: u32 = 8;
    let mut is_managed = 0_u32;
    let result = cuPointerGetAttribute((&raw mut is_managed).cast(), IS_MANAGED, address);
    written(result, ()).is_some() && is_managed != 0
}

/// Id of the capture that a stream takes part in.
pub(crate) fn capture(stream: Handle) -> Option<u64> {
    let (mut status, mut id) = (0_u32, 0);
    let result = cuStreamGetCaptureInfo(stream, &raw mut status, &raw mut id);
    written(result, ()).filter(|()| status != 0).map(|()| id)
}

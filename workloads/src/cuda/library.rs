//! libcuda: a check for all functions that are called, and their errors.

use std::{
    ffi::{CStr, c_void},
    ptr,
};

use cudarc::driver::sys::{self, CUresult};
use thiserror::Error;

/// Error of libcuda or of a call.
#[derive(Debug, Error)]
pub enum CudaError {
    /// No driver.
    #[error(
        "libcuda not found: install NVIDIA's driver, or give the container access to the GPU (nvidia-container-toolkit)"
    )]
    NoLibrary,
    /// Driver that is too old.
    #[error("libcuda has no {0}: the driver is too old")]
    NoFunction(&'static str),
    /// Driver that does not start, for example without a GPU.
    #[error("CUDA does not start: {0}")]
    NoDriver(String),
    /// No such GPU.
    #[error("there is no GPU {index}: CUDA sees {count}")]
    NoDevice {
        /// Requested number.
        index: i32,
        /// Number of GPUs.
        count: i32,
    },
    /// Unsupported GPU.
    #[error("{gpu} {missing}")]
    Unsupported {
        /// Name.
        gpu: String,
        /// Missing capability, as a predicate.
        missing: &'static str,
    },
    /// Failed call.
    #[error("{call} failed: {reason}")]
    Call {
        /// Name of the function.
        call: &'static str,
        /// CUDA's name of the error and its description.
        reason: String,
    },
}

/// Functions that are called.
const FUNCTIONS: &[&str] = &[
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAdvise",
    "cuMemAllocManaged",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemPrefetchAsync",
    "cuMemcpyDtoH_v2",
    "cuMemsetD32_v2",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
];

macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: every argument is one of these: a plain number; a handle made by this module and
        // not yet destroyed; a pointer to a live local, or to memory that the callee's
        // documentation requires, of the type that the function reads or writes.
        let result = unsafe { cudarc::driver::sys::$function($($argument),*) };
        $crate::cuda::library::check(stringify!($function), result)
    }};
}
pub(super) use call;

pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(CudaError::Call { call, reason: describe(result) }) }
}

/// Description of a result, as in "`CUDA_ERROR_NO_DEVICE` (no CUDA-capable device is detected)".
fn describe(result: CUresult) -> String {
    let mut texts = [ptr::null(); 2];
    let [name, text] = &mut texts;
    // SAFETY: writes a pointer to a string that lives as long as the library.
    let name_result = unsafe { sys::cuGetErrorName(result, name) };
    // SAFETY: writes a pointer to a string that lives as long as the library.
    let text_result = unsafe { sys::cuGetErrorString(result, text) };
    if name_result != CUresult::CUDA_SUCCESS
        || text_result != CUresult::CUDA_SUCCESS
        || texts.iter().any(|text| text.is_null())
    {
        return format!("error {}", result as u32);
    }
    // SAFETY: not null, and a NUL-terminated string that lives as long as the library.
    let [name, text] = texts.map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy());
    format!("{name} ({text})")
}

/// Checks for the library and every function; cudarc would panic without them.
pub(super) fn check_library() -> Result<(), CudaError> {
    // SAFETY: loads the system's libcuda, whose initialisers have no requirements.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoLibrary);
    }
    // SAFETY: the library is present, as just checked, and its initialisers have no requirements.
    let library = unsafe { sys::culib() };
    let lacks = |function: &&&'static str| {
        // SAFETY: the symbol is only looked up, not used.
        let found = unsafe { library.get::<*const c_void>(function.as_bytes()) };
        found.is_err()
    };
    FUNCTIONS.iter().find(lacks).map_or(Ok(()), |function| Err(CudaError::NoFunction(function)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_function_that_is_called_is_checked_first() {
        let code = [include_str!("device.rs"), include_str!("machine.rs")].concat();
        let names = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let is_function = |name: &&str| {
            name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
        };
        let called: BTreeSet<_> = names.filter(is_function).chain(["cuGetErrorName", "cuGetErrorString"]).collect();
        assert!(called.iter().eq(FUNCTIONS), "{called:?}");
    }
}

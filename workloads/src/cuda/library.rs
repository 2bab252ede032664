//! libcuda: whether it is there with every function that is called, and what its functions answer.

use std::{
    ffi::{CStr, c_void},
    ptr,
};

use cudarc::driver::sys::{self, CUresult};
use thiserror::Error;

/// Why there is no GPU to work with, or why it did not do what it was asked for.
#[derive(Debug, Error)]
pub enum CudaError {
    /// No driver here.
    #[error(
        "there is no libcuda here: install NVIDIA's driver, or let the container have its GPU (nvidia-container-toolkit)"
    )]
    NoLibrary,
    /// A driver that is too old.
    #[error("libcuda has no {0}: the driver is too old")]
    NoFunction(&'static str),
    /// The driver does not start; without a GPU, for one.
    #[error("CUDA does not start: {0}")]
    NoDriver(String),
    /// No such GPU.
    #[error("there is no GPU {index}: CUDA sees {count}")]
    NoDevice {
        /// Asked for.
        index: i32,
        /// Those there are.
        count: i32,
    },
    /// The GPU cannot do it.
    #[error("{gpu} {lack}")]
    Unsupported {
        /// Its name.
        gpu: String,
        /// What it lacks.
        lack: &'static str,
    },
    /// A call failed.
    #[error("{call} failed: {reason}")]
    Call {
        /// The function.
        call: &'static str,
        /// CUDA's name of the error and its description.
        reason: String,
    },
}

/// Every function called here.
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
        // SAFETY: every argument is a plain number, a handle made by this module and not yet destroyed, or a pointer to a live local (or to memory
        // that the callee's documentation asks for) of the type that the function reads or writes.
        let result = unsafe { cudarc::driver::sys::$function($($argument),*) };
        $crate::cuda::library::check(stringify!($function), result)
    }};
}
pub(super) use call;

pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(CudaError::Call { call, reason: describe(result) }) }
}

/// As "`CUDA_ERROR_NO_DEVICE` (no CUDA-capable device is detected)".
fn describe(result: CUresult) -> String {
    let mut texts = [ptr::null(); 2];
    let [name, text] = &mut texts;
    // SAFETY: writes a pointer to a string that lasts as long as the library.
    let named = unsafe { sys::cuGetErrorName(result, name) };
    // SAFETY: as above.
    let described = unsafe { sys::cuGetErrorString(result, text) };
    if named != CUresult::CUDA_SUCCESS || described != CUresult::CUDA_SUCCESS || texts.iter().any(|text| text.is_null())
    {
        return format!("error {}", result as u32);
    }
    // SAFETY: not null, and a NUL-terminated string that lasts.
    let [name, text] = texts.map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy());
    format!("{name} ({text})")
}

/// Look for the library and every function, where cudarc would panic.
pub(super) fn look_for_library() -> Result<(), CudaError> {
    // SAFETY: loads the system's libcuda, whose initialisers have no requirements.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoLibrary);
    }
    // SAFETY: as above; it is there.
    let library = unsafe { sys::culib() };
    let lacks = |function: &&&'static str| {
        // SAFETY: the symbol is not used, only looked for.
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
    fn every_function_that_is_called_is_looked_for_first() {
        let code = [include_str!("device.rs"), include_str!("machine.rs")].concat();
        let names = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let is_function = |name: &&str| {
            name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
        };
        let called: BTreeSet<_> = names.filter(is_function).chain(["cuGetErrorName", "cuGetErrorString"]).collect();
        assert!(called.iter().eq(FUNCTIONS), "{called:?}");
    }
}

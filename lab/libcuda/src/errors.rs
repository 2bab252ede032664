//! Codes of failures: their names, and what they are for.

use std::{
    ffi::CStr,
    io::{self, Write as _},
};

use ptx::KernelError;

use crate::{Error, backend::BackendError};

macro_rules! described {
    ($($code:ident $text:literal)*) => {
        /// Codes with name and description.
        const DESCRIBED: &[(Error, &str, &str)] =
            &[$((Error::$code, concat!(stringify!($code), "\0"), concat!($text, "\0"))),*];
    };
}

described! {
    CUDA_SUCCESS "no error"
    CUDA_ERROR_INVALID_VALUE "invalid argument"
    CUDA_ERROR_OUT_OF_MEMORY "out of memory"
    CUDA_ERROR_NOT_INITIALIZED "initialization error"
    CUDA_ERROR_DEINITIALIZED "driver shutting down"
    CUDA_ERROR_PROFILER_DISABLED "profiler disabled while using external profiling tool"
    CUDA_ERROR_STUB_LIBRARY "CUDA driver is a stub library"
    CUDA_ERROR_DEVICE_UNAVAILABLE "CUDA-capable device(s) is/are busy or unavailable"
    CUDA_ERROR_NO_DEVICE "no CUDA-capable device is detected"
    CUDA_ERROR_INVALID_DEVICE "invalid device ordinal"
    CUDA_ERROR_INVALID_IMAGE "device kernel image is invalid"
    CUDA_ERROR_INVALID_CONTEXT "invalid device context"
    CUDA_ERROR_CONTEXT_ALREADY_CURRENT "context already current"
    CUDA_ERROR_MAP_FAILED "mapping of buffer object failed"
    CUDA_ERROR_UNMAP_FAILED "unmapping of buffer object failed"
    CUDA_ERROR_ALREADY_MAPPED "resource already mapped"
    CUDA_ERROR_NO_BINARY_FOR_GPU "no kernel image is available for execution on the device"
    CUDA_ERROR_NOT_MAPPED "resource not mapped"
    CUDA_ERROR_UNSUPPORTED_LIMIT "limit is not supported on this architecture"
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE "exclusive-thread device already in use by a different thread"
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED "peer access is not supported between these two devices"
    CUDA_ERROR_INVALID_PTX "a PTX JIT compilation failed"
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION "the provided PTX was compiled with an unsupported toolchain."
    CUDA_ERROR_INVALID_SOURCE "device kernel image is invalid"
    CUDA_ERROR_FILE_NOT_FOUND "file not found"
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND "shared object symbol not found"
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED "shared object initialization failed"
    CUDA_ERROR_OPERATING_SYSTEM "OS call failed or operation not supported on this OS"
    CUDA_ERROR_INVALID_HANDLE "invalid resource handle"
    CUDA_ERROR_ILLEGAL_STATE "the operation cannot be performed in the present state"
    CUDA_ERROR_NOT_FOUND "named symbol not found"
    CUDA_ERROR_NOT_READY "device not ready"
    CUDA_ERROR_ILLEGAL_ADDRESS "an illegal memory access was encountered"
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES "too many resources requested for launch"
    CUDA_ERROR_LAUNCH_TIMEOUT "the launch timed out and was terminated"
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED "peer access is already enabled"
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED "peer access has not been enabled"
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE "cannot set while device is active in this process"
    CUDA_ERROR_CONTEXT_IS_DESTROYED "context is destroyed"
    CUDA_ERROR_ASSERT "device-side assert triggered"
    CUDA_ERROR_TOO_MANY_PEERS "peer mapping resources exhausted"
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED "part or all of the requested memory range is already mapped"
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED "pointer does not correspond to a registered memory region"
    CUDA_ERROR_HARDWARE_STACK_ERROR "hardware stack error"
    CUDA_ERROR_ILLEGAL_INSTRUCTION "an illegal instruction was encountered"
    CUDA_ERROR_MISALIGNED_ADDRESS "misaligned address"
    CUDA_ERROR_INVALID_ADDRESS_SPACE "operation not supported on global/shared address space"
    CUDA_ERROR_INVALID_PC "invalid program counter"
    CUDA_ERROR_LAUNCH_FAILED "unspecified launch failure"
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE "too many blocks in cooperative launch"
    CUDA_ERROR_NOT_PERMITTED "operation not permitted"
    CUDA_ERROR_NOT_SUPPORTED "operation not supported"
    CUDA_ERROR_SYSTEM_NOT_READY "system not yet initialized"
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED "operation not permitted when stream is capturing"
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED "operation failed due to a previous error during capture"
    CUDA_ERROR_STREAM_CAPTURE_MERGE "operation would result in a merge of separate capture sequences"
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED "capture was not ended in the same stream as it began"
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED "capturing stream has unjoined work"
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION "dependency created on uncaptured work in another stream"
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT "operation would make the legacy stream depend on a capturing blocking stream"
    CUDA_ERROR_CAPTURED_EVENT "operation not permitted on an event last recorded in a capturing stream"
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD "attempt to terminate a thread-local capture sequence from another thread"
    CUDA_ERROR_TIMEOUT "wait operation timed out"
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE "the graph update was not performed because it included changes which violated constraints"
    CUDA_ERROR_UNKNOWN "unknown error"
}

fn texts(code: u32) -> Option<(&'static CStr, &'static CStr)> {
    let (_, name, text) = DESCRIBED.iter().find(|(known, ..)| *known as u32 == code)?;
    Some((CStr::from_bytes_with_nul(name.as_bytes()).ok()?, CStr::from_bytes_with_nul(text.as_bytes()).ok()?))
}

/// Name of a code.
pub(crate) fn name(code: u32) -> Option<&'static CStr> {
    texts(code).map(|(name, _)| name)
}

/// Description of a code.
pub(crate) fn description(code: u32) -> Option<&'static CStr> {
    texts(code).map(|(_, text)| text)
}

/// Code of a kernel's failure.
pub(crate) fn of_kernel(error: &KernelError) -> Error {
    match error {
        KernelError::Memory(_) | KernelError::OutOfSpace { .. } => Error::CUDA_ERROR_ILLEGAL_ADDRESS,
        KernelError::Misaligned { .. } => Error::CUDA_ERROR_MISALIGNED_ADDRESS,
        KernelError::Assertion { .. } => Error::CUDA_ERROR_ASSERT,
        KernelError::Trap { .. } | KernelError::Deadlock { .. } | KernelError::Cancelled => {
            Error::CUDA_ERROR_LAUNCH_FAILED
        }
        KernelError::Refused { .. } => Error::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
    }
}

/// Code of a backend's failure.
#[expect(clippy::needless_pass_by_value, reason = "a function for map_err")]
pub(crate) fn of_backend(error: BackendError) -> Error {
    match error {
        BackendError::OutOfMemory(_) => Error::CUDA_ERROR_OUT_OF_MEMORY,
        BackendError::System { .. } => {
            complain(&error.to_string());
            Error::CUDA_ERROR_OPERATING_SYSTEM
        }
    }
}

/// Tells on standard error what the program cannot be told by a code. In one piece: an exec may end the
/// thread at any time.
pub(crate) fn complain(message: &str) {
    let _ = io::stderr().write_all(format!("libcuda of the lab: {message}\n").as_bytes());
}

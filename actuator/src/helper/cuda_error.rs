//! Errors of CUDA.

use std::fmt;

/// `CUresult` of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CudaError(pub(super) u32);

impl CudaError {
    /// No free memory.
    pub(super) const OUT_OF_MEMORY: Self = Self(2);

    const fn name(self) -> Option<&'static str> {
        // cuda.h
        Some(match self.0 {
            1 => "CUDA_ERROR_INVALID_VALUE",
            2 => "CUDA_ERROR_OUT_OF_MEMORY",
            4 => "CUDA_ERROR_DEINITIALIZED",
            101 => "CUDA_ERROR_INVALID_DEVICE",
            201 => "CUDA_ERROR_INVALID_CONTEXT",
            700 => "CUDA_ERROR_ILLEGAL_ADDRESS",
            709 => "CUDA_ERROR_CONTEXT_IS_DESTROYED",
            719 => "CUDA_ERROR_LAUNCH_FAILED",
            801 => "CUDA_ERROR_NOT_SUPPORTED",
            999 => "CUDA_ERROR_UNKNOWN",
            _ => return None,
        })
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "CUresult {} (cuda.h)", self.0),
        }
    }
}

//! CUDA driver, through cudarc's bindings: the only unsafe code of this crate. The module's public
//! items are safe.
//!
//! * `library`: libcuda, its functions, and their results
//! * `device`: a GPU
//! * `machine`: managed memory, and the kernels that work on it
//!
//! cudarc panics if libcuda, or a function in it, is missing. So [`open`] first checks that all are
//! present. Its result codes are those of CUDA 12.9; the functions called here return none that was
//! added later.
#![expect(unsafe_code, reason = "foreign functions and managed memory; every other module is safe code")]

mod device;
mod library;
mod machine;

pub use device::{Device, open};
pub use library::CudaError;
pub use machine::CudaMachine;

//! The CUDA driver, through cudarc's bindings: the only unsafe code of this crate. What leaves this module is safe to use.
//!
//! * `library`: libcuda, its functions, and what they answer
//! * `device`: a GPU
//! * `machine`: managed memory, and the kernels that work on it
//!
//! cudarc panics when libcuda, or a function in it, is not there; so [`open`] looks for all of them first. Its result codes are those of CUDA
//! 12.9; the functions called here return none that came later.
#![expect(unsafe_code, reason = "foreign functions and managed memory; every other module is safe code")]

mod device;
mod library;
mod machine;

pub use device::{Device, open};
pub use library::CudaError;
pub use machine::CudaMachine;

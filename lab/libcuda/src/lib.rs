//! CUDA driver of the lab: a `libcuda.so.1` that runs programs of the driver API without a GPU.
//!
//! Kernels are given as PTX, which crate `ptx` interprets. Memory, copies and kernels' accesses are
//! a [backend](backend::Backend)'s. Streams are asynchronous as on a GPU: each is a queue with a
//! thread. `functions.txt` has all functions of CUDA 12.9, and what becomes of them; README.md has
//! the settings.
//!
//! * `ffi`: the functions of the ABI, by subject
//! * `driver`, `context`, `stream`, `event`, `memory`, `module`, `graph`, …: what they work on, in
//!   safe Rust
//! * `backend`: the GPU

mod advice;
mod backend;
mod context;
mod copy;
mod driver;
mod errors;
mod event;
mod ffi;
mod functions;
mod graph;
mod handle;
mod host;
mod linker;
mod log;
mod memory;
mod module;
mod operation;
mod place;
mod pool;
mod settings;
mod stream;

/// Result of a function of the driver.
type Result<T> = std::result::Result<T, Error>;

/// Code of a failure, as the ABI has it.
type Error = cudarc::driver::sys::CUresult;

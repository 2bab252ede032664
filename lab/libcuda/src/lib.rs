//! CUDA driver of the lab: a `libcuda.so.1` that runs programs of the driver API without a GPU.
//!
//! Kernels are given as PTX, which crate `ptx` interprets. Memory, copies and kernels' accesses are
//! a [backend](backend::Backend)'s. Streams are asynchronous as on a GPU: each is a queue with a
//! thread. `functions.txt` has all functions of CUDA 12.9, and what becomes of them; README.md has
//! the settings.
//!
//! From above to below, each on those below it alone:
//!
//! * `ffi`: the functions of the ABI, by subject; `functions`: their names
//! * `driver`: all that there is in a process, by handle
//! * `context`: streams that belong together; `stream`, `graph`, `event`: orders of operations
//! * `queue`, `executor`: when and how an operation is performed; `heap`: what kernels allocate
//! * `operation`: what is performed; `library`, `module`, `copy`, `host`, `value`: what it consists of
//! * `machine`: GPUs with `memory`, `log`, `statistics` and `settings`
//! * `backend`: the GPU

mod advice;
mod backend;
mod context;
mod copy;
mod current;
mod driver;
mod errors;
mod event;
mod executor;
mod ffi;
mod functions;
mod graph;
mod handle;
mod heap;
mod host;
mod jit;
mod library;
mod linker;
mod log;
mod machine;
mod memory;
mod module;
mod operation;
mod pool;
mod queue;
mod settings;
mod statistics;
mod stream;
mod value;

/// Result of a function of the driver.
type Result<T, E = Error> = std::result::Result<T, E>;

/// Code of a failure, as the ABI has it.
type Error = cudarc::driver::sys::CUresult;

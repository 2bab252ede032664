//! A launch of a kernel: its grid, and what came of it.

use std::sync::{Arc, Mutex};

use crate::heap::Heap;
use crate::memory::MemoryFault;

/// Grid and arguments of a launch.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// Thread blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Shared memory beside what the kernel declares.
    pub dynamic_shared_bytes: u32,
    /// Arguments, laid out as [`crate::Kernel::parameters`] has them.
    pub arguments: Vec<u8>,
    /// Blocks that are in progress at a time, at least 1: the next one begins when all warps of
    /// these have parked or ended.
    pub resident_blocks: u32,
    /// Address of 8 bytes of global memory, which hold 0, of a cooperative launch: its blocks wait for
    /// each other there, and are all in progress.
    pub workspace: Option<u64>,
    /// What `malloc` allocates from, which fails without.
    pub heap: Option<Arc<Mutex<Heap>>>,
}

/// Counts of a kernel that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions of warps.
    pub warp_instructions: u64,
    /// Instructions of threads: active lanes of the warps' instructions.
    pub thread_instructions: u64,
    /// Loads of global memory by threads.
    pub loads: u64,
    /// Stores to global memory by threads.
    pub stores: u64,
    /// Atomics on global memory by threads.
    pub atomics: u64,
}

/// Error that ends a kernel, and the context with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// `CUDA_ERROR_ILLEGAL_ADDRESS`.
    #[error(transparent)]
    Memory(#[from] MemoryFault),
    /// `CUDA_ERROR_ILLEGAL_ADDRESS` in shared, local or parameter memory.
    #[error("access beyond the {space} memory, at offset {offset:#x}")]
    OutOfSpace {
        /// State space.
        space: &'static str,
        /// Offset in it.
        offset: u64,
    },
    /// `CUDA_ERROR_MISALIGNED_ADDRESS`.
    #[error("misaligned address {address:#x} of an access of {bytes} bytes")]
    Misaligned {
        /// Address.
        address: u64,
        /// Bytes of the access.
        bytes: u32,
    },
    /// `CUDA_ERROR_LAUNCH_FAILED`: `trap`.
    #[error("trap at line {line}")]
    Trap {
        /// Line of the PTX text.
        line: u32,
    },
    /// `CUDA_ERROR_ASSERT`.
    #[error("assertion failed: {text}")]
    Assertion {
        /// Condition, file and line.
        text: String,
    },
    /// `CUDA_ERROR_LAUNCH_FAILED`: no warp can go on.
    #[error("deadlock at line {line}")]
    Deadlock {
        /// Line of the PTX text at which a warp waits.
        line: u32,
    },
    /// Cancelled from outside, by [`crate::Kernel::run_until`].
    #[error("cancelled")]
    Cancelled,
    /// `CUDA_ERROR_INVALID_VALUE` or `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`: nothing was run.
    #[error("launch refused: {reason}")]
    Refused {
        /// What does not fit.
        reason: String,
    },
}

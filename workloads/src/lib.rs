//! CUDA programs with known faults and copies, for checking uvmd on real GPUs.
//!
//! A workload is data: a list of phases ([`catalog`]) on one allocation of managed memory. The
//! contents of memory after each phase are known ([`contents`]), and so are the copies that the
//! driver must have made for it ([`residency`]).
//!
//! * [`phase`], [`order`], [`catalog`]: the language, and the workloads in it
//! * [`contents`], [`residency`]: expected contents and cost of a phase
//! * [`run`](mod@run): execution and verification of phases
//! * [`report`]: reports, and the protocol with observers that take figures between phases
//! * [`guard`]: limit of managed memory on a machine
//! * [`cuda`]: the CUDA driver; all unsafe code

pub mod catalog;
pub mod contents;
pub mod cuda;
pub mod guard;
pub mod order;
pub mod phase;
pub mod report;
pub mod residency;
pub mod run;

/// Page of the CPU and the driver.
pub const PAGE_BYTES: u64 = 4096;
/// Unit in which workloads access memory.
pub const WORD_BYTES: u64 = 8;
/// Words in a page.
pub const PAGE_WORDS: u64 = PAGE_BYTES / WORD_BYTES;

/// Exit codes of `uvm-workload`.
pub mod exit {
    /// Wrong data, or a failed call.
    pub const FAILED: u8 = 1;
    /// Wrong command line (clap's own code).
    pub const USAGE: u8 = 2;
    /// No GPU: no libcuda, one that is too old, or no such device.
    pub const NO_GPU: u8 = 3;
    /// Request for more memory than the guard allows.
    pub const DENIED: u8 = 4;
    /// GPU without managed memory, or without concurrent access by CPU and GPU
    /// (`concurrentManagedAccess`).
    pub const UNSUPPORTED: u8 = 5;
}

//! CUDA programs whose faults and copies are known beforehand, for checking uvmd on real GPUs.
//!
//! A workload is data: a list of phases ([`catalog`]) on one allocation of managed memory. What memory must hold after each phase is known
//! ([`contents`]), and so is what the driver must have copied for it ([`residency`]).
//!
//! * [`phase`], [`order`], [`catalog`]: the language, and the workloads in it
//! * [`contents`], [`residency`]: what must be true after a phase
//! * [`run`](mod@run): carries the phases out and verifies them
//! * [`report`]: what is told of it, and the protocol with whoever takes figures between phases
//! * [`guard`]: how much managed memory a machine may be asked for
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

/// What CPU and driver call a page.
pub const PAGE_BYTES: u64 = 4096;
/// Memory is worked on in words of this size.
pub const WORD_BYTES: u64 = 8;
/// Words in a page.
pub const PAGE_WORDS: u64 = PAGE_BYTES / WORD_BYTES;

/// The exit codes of `uvm-workload`.
pub mod exit {
    /// The data was wrong, or a call failed.
    pub const FAILED: u8 = 1;
    /// The command line was wrong (clap's own code).
    pub const USAGE: u8 = 2;
    /// No GPU: no libcuda, none that fits, or no device.
    pub const NO_GPU: u8 = 3;
    /// Asks for more memory than the guard allows.
    pub const REFUSED: u8 = 4;
    /// The GPU has no managed memory, or none that CPU and GPU may use at the same time (`concurrentManagedAccess`).
    pub const UNSUPPORTED: u8 = 5;
}

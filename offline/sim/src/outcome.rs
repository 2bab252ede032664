//! What comes out of a run.

use serde::Serialize;

/// What one iteration took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// All of it.
    pub time_s: f64,
    /// Its kernels alone.
    pub ideal_s: f64,
    /// The one by the other: 1 is best.
    pub share_of_ideal: f64,
    /// What kernels waited.
    pub stall_s: f64,
    /// Copied to the GPU over the link.
    pub bytes_htod: u64,
    /// Copied from the GPU over the link.
    pub bytes_dtoh: u64,
    /// Of those to the GPU, read from flash.
    pub bytes_ssd_read: u64,
    /// Written to flash.
    pub bytes_ssd_written: u64,
    /// Pages of 4 KiB that kernels faulted on.
    pub faults: u64,
    /// Batches in which the driver serviced them.
    pub fault_batches: u64,
    /// The most memory of the GPU in use at once, in blocks of 2 MiB.
    pub peak_bytes: u64,
}

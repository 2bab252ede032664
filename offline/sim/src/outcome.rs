//! Outcome of a run.

use serde::Serialize;

/// Cost of one iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Total time.
    pub time_s: f64,
    /// Time of the kernels alone.
    pub ideal_s: f64,
    /// `ideal_s` divided by `time_s`; 1 is best.
    pub share_of_ideal: f64,
    /// Time for which kernels waited.
    pub stall_s: f64,
    /// Bytes copied to the GPU over the link.
    pub bytes_htod: u64,
    /// Bytes copied from the GPU over the link.
    pub bytes_dtoh: u64,
    /// Bytes read from flash, a part of those to the GPU.
    pub bytes_ssd_read: u64,
    /// Bytes written to flash.
    pub bytes_ssd_written: u64,
    /// Pages of 4 KiB on which kernels faulted.
    pub faults: u64,
    /// Batches in which the driver serviced the faults.
    pub fault_batches: u64,
    /// Peak GPU memory in use, in blocks of 2 MiB.
    pub peak_bytes: u64,
}

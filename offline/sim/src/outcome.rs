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

impl Outcome {
    /// Mean of iterations, and their largest peak; `None` without any.
    pub(crate) fn mean(outcomes: &[Self]) -> Option<Self> {
        let (first, count) = (outcomes.first()?, outcomes.len() as u64);
        let seconds = |of: fn(&Self) -> f64| outcomes.iter().map(of).sum::<f64>() / count as f64;
        let number = |of: fn(&Self) -> u64| (outcomes.iter().map(of).sum::<u64>() + count / 2) / count;
        let (time_s, ideal_s) = (seconds(|of| of.time_s), first.ideal_s);
        Some(Self {
            time_s,
            ideal_s,
            share_of_ideal: if time_s > 0.0 { ideal_s / time_s } else { 1.0 },
            stall_s: seconds(|of| of.stall_s),
            bytes_htod: number(|of| of.bytes_htod),
            bytes_dtoh: number(|of| of.bytes_dtoh),
            bytes_ssd_read: number(|of| of.bytes_ssd_read),
            bytes_ssd_written: number(|of| of.bytes_ssd_written),
            faults: number(|of| of.faults),
            fault_batches: number(|of| of.fault_batches),
            peak_bytes: outcomes.iter().map(|of| of.peak_bytes).max()?,
        })
    }
}

//! Where in a process's memory it happened: by blocks of 2 MiB, the unit in which the driver keeps residency and evicts.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::{GpuKey, Residency};

/// Bytes of a VA block, and what their addresses are multiples of.
pub const BLOCK_BYTES: u64 = 2 << 20;

/// One VA block of a process. All counts only grow.
///
/// They come from records that are left out when too many come at once: see [`Blocks`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first address.
    pub address: u64,
    /// The GPU that last faulted on it, received it or lost it; `None` while only CPUs touched it.
    pub gpu: Option<GpuKey>,
    /// GPU fault entries.
    pub fault_entries: u64,
    /// CPU faults.
    pub cpu_faults: u64,
    /// Bytes copied from the host to a GPU.
    pub bytes_htod: u64,
    /// Bytes copied from a GPU to the host.
    pub bytes_dtoh: u64,
    /// Bytes copied from one GPU to another.
    pub bytes_dtod: u64,
    /// Bytes that became resident at a GPU with nothing to copy.
    pub populated_bytes: u64,
    /// Bytes pushed out because memory was needed; they are in the copied bytes too.
    pub evicted_bytes: u64,
    /// Times that it, or a part of it, was pushed out because memory was needed.
    pub evictions: u64,
    /// `bytes_htod` by what brought them.
    pub htod_by_cause: CopiedBytes,
    /// `bytes_dtoh` by what brought them.
    pub dtoh_by_cause: CopiedBytes,
    /// Of the bytes copied to a GPU, those that had been pushed out before.
    pub refetched_bytes: u64,
    /// And those that a CPU that faulted had taken.
    pub cpu_reclaimed_bytes: u64,
    /// Times that it changed sides between a CPU that faulted and a GPU.
    pub bounces: u64,
    /// Times that all of it came back to a GPU by a call of the process, and was absent since before the
    /// process had memory moved to the host: no GPU accessed it between the two calls.
    pub idle_returns: u64,
    /// Times that something else, such as a fault, ended an absence from since before the process had memory moved to the host.
    pub interrupted_absences: u64,
    /// What of it is in GPU memory, all GPUs together.
    pub resident: Residency,
    /// When the last of this happened.
    pub last_seen_at: SystemTime,
}

/// Bytes copied one way, by what brought them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CopiedBytes {
    /// A fault; of a CPU's, with what the driver's tree prefetcher brought around it.
    pub fault: u64,
    /// The driver's tree prefetcher, around a GPU's fault.
    pub tree_prefetch: u64,
    /// That memory was needed.
    pub eviction: u64,
    /// The application or a tool asked, or the GPU's access counters.
    pub other: u64,
}

impl Block {
    /// A block to which nothing happened yet.
    #[must_use]
    pub fn new(address: u64, last_seen_at: SystemTime) -> Self {
        Self {
            address,
            gpu: None,
            fault_entries: 0,
            cpu_faults: 0,
            bytes_htod: 0,
            bytes_dtoh: 0,
            bytes_dtod: 0,
            populated_bytes: 0,
            evicted_bytes: 0,
            evictions: 0,
            htod_by_cause: CopiedBytes::default(),
            dtoh_by_cause: CopiedBytes::default(),
            refetched_bytes: 0,
            cpu_reclaimed_bytes: 0,
            bounces: 0,
            idle_returns: 0,
            interrupted_absences: 0,
            resident: Residency::default(),
            last_seen_at,
        }
    }

    /// Whether anything has arrived in it at a GPU from the host or anew.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        self.bytes_htod > 0 || self.populated_bytes > 0
    }
}

/// The blocks of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// The busiest, busiest first.
    pub busiest: Vec<Block>,
    /// How many are known.
    pub known: u64,
    /// How many were forgotten to make room, those not seen for longest; one that is seen again begins at 0.
    pub forgotten: u64,
    /// Records of this process that were left out, as too many came at once; if not 0, the blocks' counts are lower bounds.
    pub sampled_out_records: u64,
    /// Records of this process for which there was no room; lower bounds as well.
    pub dropped_records: u64,
}

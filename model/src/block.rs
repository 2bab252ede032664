//! Where in a process's memory it happened: by blocks of 2 MiB, the unit in which the driver keeps residency and evicts.

use std::time::SystemTime;

use crate::GpuKey;

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
    /// When the last of this happened.
    pub last_seen: SystemTime,
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

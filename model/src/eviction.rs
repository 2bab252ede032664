//! Evictions by victim and evictor.

use serde::{Deserialize, Serialize};

use crate::{GpuKey, OwnerKey, ProcessId};

/// Cause of an eviction: the use for which memory was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EvictionCause {
    /// A GPU fault was served.
    Fault,
    /// The evictor itself asked for memory to be moved to the GPU, as `cudaMemPrefetchAsync` does.
    Api,
    /// Another process, such as uvmd, asked for the evictor's memory to be moved to the GPU.
    Tool,
    /// Memory that is not managed was allocated on the GPU, as `cudaMalloc` does.
    DeviceAllocation,
    /// Something else, or it could not be seen.
    Other,
}

impl EvictionCause {
    /// Every cause.
    pub const ALL: [Self; 5] = [Self::Fault, Self::Api, Self::Tool, Self::DeviceAllocation, Self::Other];

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Api => "api",
            Self::Tool => "tool",
            Self::DeviceAllocation => "device_allocation",
            Self::Other => "other",
        }
    }
}

/// One side of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Party {
    /// A process that is listed.
    Process(ProcessId),
    /// Processes that are listed no more, together; and of those whose VA spaces are gone the smallest pairs, where there are too many.
    Forgotten,
    /// Nobody that the probes could name.
    Unknown,
}

/// Evictions of one party's memory from one GPU for another party. Monotonic, but for counts that move to [`Party::Forgotten`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionPair {
    /// The GPU.
    pub gpu: GpuKey,
    /// Victim: the party whose memory was evicted.
    pub victim: Party,
    /// Evictor: the party for which memory was needed. May be the victim.
    pub evictor: Party,
    /// Cause.
    pub cause: EvictionCause,
    /// Pieces of at most 2 MiB that were pushed out.
    pub evictions: u64,
    /// Bytes copied out. Pages with nothing to copy are not among them.
    pub bytes: u64,
}

/// Evictions by owner. Monotonic while both owners are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerEvictions {
    /// The GPU. Never one that is pending: what is, is not yet in here.
    pub gpu: GpuKey,
    /// Victim; `None` if unknown.
    pub victim: Option<OwnerKey>,
    /// Evictor; `None` if unknown. May be the victim.
    pub evictor: Option<OwnerKey>,
    /// Cause.
    pub cause: EvictionCause,
    /// Pieces of at most 2 MiB that were pushed out.
    pub evictions: u64,
    /// Bytes copied out.
    pub bytes: u64,
}

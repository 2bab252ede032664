//! Who pushed whose memory out of a GPU.

use serde::{Deserialize, Serialize};

use crate::{GpuKey, OwnerKey, ProcessId};

/// What memory was needed for when something was pushed out.
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

/// What was pushed out of one GPU of one party for another. Counts only grow, but for those that move to [`Party::Forgotten`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionPair {
    /// The GPU.
    pub gpu: GpuKey,
    /// Whose memory was pushed out.
    pub victim: Party,
    /// Whom the memory was needed for. May be the victim.
    pub evictor: Party,
    /// What for.
    pub cause: EvictionCause,
    /// Pieces of at most 2 MiB that were pushed out.
    pub evictions: u64,
    /// Bytes copied out. Pages with nothing to copy are not among them.
    pub bytes: u64,
}

/// The same by owner. Counts only grow for as long as both owners are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerEvictions {
    /// The GPU. Never one that is pending: what is, is not yet in here.
    pub gpu: GpuKey,
    /// Whose memory was pushed out; `None` if nobody could be named.
    pub victim: Option<OwnerKey>,
    /// Whom the memory was needed for; likewise. May be the victim.
    pub evictor: Option<OwnerKey>,
    /// What for.
    pub cause: EvictionCause,
    /// Pieces of at most 2 MiB that were pushed out.
    pub evictions: u64,
    /// Bytes copied out.
    pub bytes: u64,
}

//! What was counted lately, second by second.

use std::time::{Duration, SystemTime};

use crate::{GpuKey, OwnerKey, ProcessId};

/// Whose history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HistoryOf {
    /// A process, all GPUs together.
    Process(ProcessId),
    /// A GPU, all processes together.
    Gpu(GpuKey),
    /// An owner, all its processes on all GPUs together, exited ones included.
    Owner(OwnerKey),
}

/// Which history, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRequest {
    /// Whose.
    pub of: HistoryOf,
    /// How far back from now.
    pub back: Duration,
    /// At most so many samples: neighbours are added up until they are.
    pub samples_max: usize,
}

/// What was counted in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// GPU fault entries.
    pub fault_entries: u64,
    /// CPU faults.
    pub cpu_faults: u64,
    /// Bytes copied from host to GPU.
    pub bytes_htod: u64,
    /// Bytes copied from GPU to host.
    pub bytes_dtoh: u64,
    /// Bytes pushed out because memory was needed.
    pub evicted_bytes: u64,
    /// Bytes fetched again.
    pub refetched_bytes: u64,
    /// Bytes in GPU memory at the interval's end.
    pub resident_bytes: u64,
}

/// Samples of equal length, oldest first, without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// When the first interval began.
    pub begin: SystemTime,
    /// How long each is.
    pub interval: Duration,
    /// `None` where nothing was read, as while uvmd waited.
    pub samples: Vec<Option<Sample>>,
}

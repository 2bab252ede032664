//! Recent counts, second by second.

use std::time::{Duration, SystemTime};

use crate::{GpuKey, OwnerKey, ProcessId};

/// Subject of a history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HistoryOf {
    /// A process, all GPUs together.
    Process(ProcessId),
    /// A GPU, all processes together.
    Gpu(GpuKey),
    /// An owner, all its processes on all GPUs together, exited ones included.
    Owner(OwnerKey),
}

/// Subject and period of a requested history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRequest {
    /// Subject.
    pub of: HistoryOf,
    /// Period before now.
    pub back: Duration,
    /// At most so many samples: neighbours are added up until they are.
    pub samples_max: usize,
}

/// Counts of one interval.
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
    /// Begin of the first interval.
    pub begin: SystemTime,
    /// Length of each interval.
    pub interval: Duration,
    /// `None` where nothing was read, as while uvmd waited.
    pub samples: Vec<Option<Sample>>,
}

//! Where in a process's memory it happens, in as many cells as a reader can take.

use crate::{ProcessId, Residency};

/// Memory and resolution of a heat map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeatRequest {
    /// Process.
    pub process: ProcessId,
    /// From this address; 0 for all of it.
    pub begin: u64,
    /// Up to this one, exclusive; `u64::MAX` for all of it.
    pub end: u64,
    /// Cells for each range, at most. A cell is whole 2 MiB blocks.
    pub cells_max: usize,
}

/// Some neighbouring blocks. Counts are since the process began, or since a block was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeatCell {
    /// GPU fault entries.
    pub fault_entries: u64,
    /// CPU faults.
    pub cpu_faults: u64,
    /// Bytes copied to a GPU.
    pub fetched_bytes: u64,
    /// Bytes copied to the host.
    pub bytes_dtoh: u64,
    /// Bytes pushed out because memory was needed.
    pub evicted_bytes: u64,
    /// Bytes fetched again after that.
    pub refetched_bytes: u64,
    /// Bytes in GPU memory.
    pub resident: Residency,
    /// Nanoseconds since anything was last seen of it; `None` where nothing ever was.
    pub idle_ns: Option<u64>,
}

/// Heat of one range, by cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatRange {
    /// First address.
    pub begin: u64,
    /// The address behind the last.
    pub end: u64,
    /// Bytes of a cell; the last one may be cut short.
    pub cell_bytes: u64,
    /// In the order of addresses.
    pub cells: Vec<HeatCell>,
}

/// The memory of one process in cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatMap {
    /// In the order of addresses.
    pub ranges: Vec<HeatRange>,
    /// Ranges beyond the number that is shown at once.
    pub ranges_omitted: u64,
}

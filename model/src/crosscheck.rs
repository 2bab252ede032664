//! Cross-check of the probes by the driver's own counters.

use std::collections::BTreeMap;

use crate::ProcessId;

/// Figure that probes and the driver's tools both count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckedFigure {
    /// GPU faults.
    FaultEntries,
    /// CPU faults.
    CpuFaults,
    /// Bytes from host to GPU.
    BytesHtod,
    /// Bytes from GPU to host.
    BytesDtoh,
}

impl CheckedFigure {
    /// Every figure.
    pub const ALL: [Self; 4] = [Self::FaultEntries, Self::CpuFaults, Self::BytesHtod, Self::BytesDtoh];

    /// Name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FaultEntries => "fault_entries",
            Self::CpuFaults => "cpu_faults",
            Self::BytesHtod => "bytes_htod",
            Self::BytesDtoh => "bytes_dtoh",
        }
    }

    /// Name for people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::FaultEntries => "GPU faults",
            Self::CpuFaults => "CPU faults",
            Self::BytesHtod => "bytes from host to GPU",
            Self::BytesDtoh => "bytes from GPU to host",
        }
    }
}

/// Result of the comparison of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ComparisonResult {
    /// Both sources counted the same, as exactly as their readings permit.
    Agreed,
    /// The sources contradict each other.
    Disagreed,
    /// Unknown: the probes dropped events meanwhile, or a deviation is new.
    Inconclusive,
}

impl ComparisonResult {
    /// Every result.
    pub const ALL: [Self; 3] = [Self::Agreed, Self::Disagreed, Self::Inconclusive];

    /// Name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agreed => "agreed",
            Self::Disagreed => "disagreed",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// Cross-checks since uvmd started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crosschecks {
    /// Checks of a process, the current one included.
    pub checks: u64,
    /// Comparisons of figures, by figure and result.
    pub comparisons: BTreeMap<(CheckedFigure, ComparisonResult), u64>,
    /// Process that was checked last.
    pub last_process: Option<ProcessId>,
}

impl Crosschecks {
    /// Comparisons of a figure with a result.
    #[must_use]
    pub fn of(&self, figure: CheckedFigure, result: ComparisonResult) -> u64 {
        self.comparisons.get(&(figure, result)).copied().unwrap_or_default()
    }

    /// Comparisons of all figures with a result.
    #[must_use]
    pub fn with(&self, result: ComparisonResult) -> u64 {
        CheckedFigure::ALL.into_iter().map(|figure| self.of(figure, result)).sum()
    }
}

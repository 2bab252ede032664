//! Quantities that the running driver lets uvmd count. Others are reported as unknown, not as zero.

use model::Snapshot;

/// Quantity that some drivers, or some configurations of uvmd, do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Memory that became resident without a copy.
    Populated,
    /// Resident memory.
    Resident,
    /// Runs of the fault handler.
    HandlerRuns,
    /// Replays.
    Replays,
    /// Evictions of chunks. Evicted bytes are counted with all migrations.
    Evictions,
    /// Thrashing pages.
    ThrashingPages,
    /// Throttles.
    Throttles,
    /// Duration of throttles.
    ThrottledTime,
    /// Remote mappings.
    RemoteMappings,
}

impl Quantity {
    const ALL: [Self; 9] = [
        Self::Populated,
        Self::Resident,
        Self::HandlerRuns,
        Self::Replays,
        Self::Evictions,
        Self::ThrashingPages,
        Self::Throttles,
        Self::ThrottledTime,
        Self::RemoteMappings,
    ];

    /// Functions of the driver whose probes count it, and nothing else does.
    const fn probes(self) -> &'static [&'static str] {
        match self {
            Self::Populated | Self::Resident => &[],
            Self::HandlerRuns => &["uvm_gpu_service_replayable_faults"],
            Self::Replays => &["uvm_tools_broadcast_replay"],
            Self::Evictions => &["uvm_va_block_evict_chunks"],
            Self::ThrashingPages => &["uvm_tools_record_thrashing"],
            Self::Throttles => &["uvm_tools_record_throttling_start"],
            // A duration takes both ends.
            Self::ThrottledTime => &["uvm_tools_record_throttling_start", "uvm_tools_record_throttling_end"],
            Self::RemoteMappings => &["uvm_tools_record_map_remote"],
        }
    }

    fn is_counted(self, snapshot: &Snapshot) -> bool {
        let source = &snapshot.source;
        let has_types = source.driver.as_ref().is_none_or(|driver| driver.residency_unavailable.is_none());
        let is_missing = |name: &str| source.probes.iter().any(|probe| probe.name == name && probe.missing.is_some());
        match self {
            Self::Populated => has_types,
            // Also by block records.
            Self::Resident => has_types && !source.block_records.is_off,
            _ => !self.probes().iter().any(|name| is_missing(name)),
        }
    }
}

/// Quantities that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities([bool; Quantity::ALL.len()]);

impl Capabilities {
    /// Capabilities of the running driver.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        Self(Quantity::ALL.map(|quantity| quantity.is_counted(snapshot)))
    }

    /// The value, if the quantity is counted.
    #[expect(clippy::indexing_slicing, reason = "the array has one element for each quantity")]
    pub(crate) fn counted<T>(self, quantity: Quantity, value: T) -> Option<T> {
        self.0[quantity as usize].then_some(value)
    }
}

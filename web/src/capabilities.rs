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
    /// Throttles and their duration.
    Throttles,
    /// Remote mappings.
    RemoteMappings,
}

impl Quantity {
    const ALL: [Self; 8] = [
        Self::Populated,
        Self::Resident,
        Self::HandlerRuns,
        Self::Replays,
        Self::Evictions,
        Self::ThrashingPages,
        Self::Throttles,
        Self::RemoteMappings,
    ];

    /// Function of the driver whose probe counts it, and nothing else does.
    const fn probe(self) -> Option<&'static str> {
        match self {
            Self::Populated | Self::Resident => None,
            Self::HandlerRuns => Some("uvm_gpu_service_replayable_faults"),
            Self::Replays => Some("uvm_tools_broadcast_replay"),
            Self::Evictions => Some("uvm_va_block_evict_chunks"),
            Self::ThrashingPages => Some("uvm_tools_record_thrashing"),
            Self::Throttles => Some("uvm_tools_record_throttling_start"),
            Self::RemoteMappings => Some("uvm_tools_record_map_remote"),
        }
    }

    fn is_counted(self, snapshot: &Snapshot) -> bool {
        let source = &snapshot.source;
        let has_types = source.driver.as_ref().is_none_or(|driver| driver.residency_unavailable.is_none());
        match self {
            Self::Populated => has_types,
            // Also by block records.
            Self::Resident => has_types && !source.block_records.is_off,
            _ => {
                !source.probes.iter().any(|probe| Some(probe.name.as_str()) == self.probe() && probe.missing.is_some())
            }
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

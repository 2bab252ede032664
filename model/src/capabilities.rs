//! Quantities that the running driver lets uvmd count. Others are reported as unknown, not as zero.

use crate::Snapshot;

/// Defines [`Quantity`]. A row is a quantity, and the functions of the driver whose probes count it, and nothing else does.
macro_rules! quantities {
    ($($(#[$doc:meta])* $quantity:ident: [$($probe:literal),*];)*) => {
        /// Quantity that some drivers, or some configurations of uvmd, do not count.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Quantity {
            $($(#[$doc])* $quantity,)*
        }

        impl Quantity {
            const ALL: [Self; [$(Self::$quantity),*].len()] = [$(Self::$quantity),*];

            const fn probes(self) -> &'static [&'static str] {
                match self {
                    $(Self::$quantity => &[$($probe),*],)*
                }
            }
        }
    };
}

quantities! {
    /// Faults before the driver merges equal ones.
    FaultInstances: [];
    /// Access types of GPU faults.
    FaultAccess: [];
    /// Access types of CPU faults.
    CpuFaultAccess: [];
    /// Causes of copies, and with them evicted bytes; sizes of copies, and copies between GPUs.
    CopyCauses: [];
    /// Fault batches.
    Batches: [];
    /// Freed blocks.
    FreedBlocks: [];
    /// Calls of the driver.
    ApiCalls: [];
    /// Memory that became resident without a copy.
    Populated: [];
    /// Resident memory.
    Resident: [];
    /// Runs of the fault handler.
    HandlerRuns: ["uvm_gpu_service_replayable_faults"];
    /// Replays.
    Replays: ["uvm_tools_broadcast_replay"];
    /// Evictions of chunks. Evicted bytes are counted with all migrations.
    Evictions: ["uvm_va_block_evict_chunks"];
    /// Thrashing pages.
    ThrashingPages: ["uvm_tools_record_thrashing"];
    /// Throttles.
    Throttles: ["uvm_tools_record_throttling_start"];
    /// Duration of throttles. It takes both ends.
    ThrottledTime: ["uvm_tools_record_throttling_start", "uvm_tools_record_throttling_end"];
    /// Remote mappings.
    RemoteMappings: ["uvm_tools_record_map_remote"];
}

impl Quantity {
    /// Those that the driver's own counters do not have.
    pub const NOT_OF_TOOLS: &'static [Self] = &Self::ALL;

    fn is_counted(self, snapshot: &Snapshot) -> bool {
        let source = &snapshot.source;
        let has_types = source.driver.as_ref().is_none_or(|driver| driver.residency_unavailable.is_none());
        if source.not_counted.contains(&self) {
            return false;
        }
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
pub struct Capabilities([bool; Quantity::ALL.len()]);

impl Capabilities {
    /// Capabilities of a driver that has every function.
    pub const ALL: Self = Self([true; Quantity::ALL.len()]);

    /// Capabilities of the running driver.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        Self(Quantity::ALL.map(|quantity| quantity.is_counted(snapshot)))
    }

    /// The value, if the quantity is counted.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "the array has one element for each quantity")]
    pub fn counted<T>(self, quantity: Quantity, value: T) -> Option<T> {
        self.0[quantity as usize].then_some(value)
    }
}

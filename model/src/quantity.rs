//! Quantities that some sources, drivers or configurations of uvmd do not count.

use serde::Serialize;

/// Defines [`Quantity`]. A row is a quantity, its name in JSON, and the functions of the driver whose probes count it, and nothing else does.
macro_rules! quantities {
    ($($(#[$doc:meta])* $quantity:ident = $name:literal: [$($probe:literal),*];)*) => {
        /// Quantity that some sources, drivers or configurations of uvmd do not count.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Quantity {
            $($(#[$doc])* $quantity,)*
        }

        impl Quantity {
            pub(crate) const ALL: [Self; [$(Self::$quantity),*].len()] = [$(Self::$quantity),*];

            /// Name in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$quantity => $name,)*
                }
            }

            pub(crate) const fn probes(self) -> &'static [&'static str] {
                match self {
                    $(Self::$quantity => &[$($probe),*],)*
                }
            }
        }
    };
}

quantities! {
    /// Faults before the driver merges equal ones.
    FaultInstances = "fault_instances": [];
    /// Access types of GPU faults.
    FaultAccess = "fault_access": [];
    /// Access types of CPU faults.
    CpuFaultAccess = "cpu_fault_access": [];
    /// Causes of copies, and with them evicted bytes; sizes of copies, and copies between GPUs.
    CopyCauses = "copy_causes": [];
    /// Fault batches.
    Batches = "batches": [];
    /// Freed blocks.
    FreedBlocks = "freed_blocks": [];
    /// Calls of the driver.
    ApiCalls = "api_calls": [];
    /// GPU and CPU faults of blocks and ranges.
    BlockFaults = "block_faults": [];
    /// Sites of CPU faults.
    CpuFaultSites = "cpu_fault_sites": [];
    /// Reuse of evicted and reclaimed memory, and figures of blocks, by block records.
    Reuse = "reuse": [];
    /// Memory that became resident without a copy.
    Populated = "populated": [];
    /// Resident memory.
    Resident = "resident": [];
    /// Runs of the fault handler.
    HandlerRuns = "handler_runs": ["uvm_gpu_service_replayable_faults"];
    /// Replays.
    Replays = "replays": ["uvm_tools_broadcast_replay"];
    /// Evictions of chunks. Evicted bytes are counted with all migrations.
    Evictions = "evictions": ["uvm_va_block_evict_chunks"];
    /// Victim and evictor of evictions.
    EvictionPairs = "eviction_pairs": ["uvm_va_block_evict_chunks"];
    /// Thrashing pages.
    ThrashingPages = "thrashing_pages": ["uvm_tools_record_thrashing"];
    /// Throttles.
    Throttles = "throttles": ["uvm_tools_record_throttling_start"];
    /// Duration of throttles. It takes both ends.
    ThrottledTime = "throttled_time": ["uvm_tools_record_throttling_start", "uvm_tools_record_throttling_end"];
    /// Remote mappings.
    RemoteMappings = "remote_mappings": ["uvm_tools_record_map_remote"];
}

/// Level of the driver's tools: what uvmd asks the driver for. Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolsLevel {
    /// Numbers of GPU faults, CPU faults, and bytes between host and GPU.
    Counters,
    /// Numbers of fault instances, thrashing pages and throttles.
    Kinds,
    /// A record of each copy, CPU fault, remote mapping and throttle.
    #[default]
    Moves,
    /// A record of each GPU fault and replay, unless its queue is full.
    Faults,
}

impl ToolsLevel {
    /// Every level.
    pub const ALL: [Self; 4] = [Self::Counters, Self::Kinds, Self::Moves, Self::Faults];

    /// Name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counters => "counters",
            Self::Kinds => "kinds",
            Self::Moves => "moves",
            Self::Faults => "faults",
        }
    }

    /// Quantities that the driver's tools do not count at this level.
    #[must_use]
    pub fn not_counted(self) -> Vec<Quantity> {
        Quantity::ALL.into_iter().filter(|quantity| quantity.tools_level().is_none_or(|level| level > self)).collect()
    }
}

impl Quantity {
    /// Lowest level of the driver's tools that counts it; `None` if none does.
    pub(crate) const fn tools_level(self) -> Option<ToolsLevel> {
        match self {
            Self::FaultInstances | Self::ThrashingPages | Self::Throttles => Some(ToolsLevel::Kinds),
            Self::CpuFaultAccess | Self::CopyCauses | Self::Reuse | Self::ThrottledTime | Self::RemoteMappings => {
                Some(ToolsLevel::Moves)
            }
            Self::FaultAccess | Self::Batches | Self::BlockFaults | Self::Replays | Self::EvictionPairs => {
                Some(ToolsLevel::Faults)
            }
            Self::FreedBlocks
            | Self::ApiCalls
            | Self::CpuFaultSites
            | Self::Populated
            | Self::Resident
            | Self::HandlerRuns
            | Self::Evictions => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_counts_what_those_before_it_count() {
        let names = |level: ToolsLevel| level.not_counted().into_iter().map(Quantity::name).collect::<Vec<_>>();
        let levels = ToolsLevel::ALL.map(names);
        for (higher, lower) in levels[1..].iter().zip(&levels) {
            assert!(higher.len() < lower.len() && higher.iter().all(|name| lower.contains(name)));
        }
        assert_eq!(
            levels[3],
            ["freed_blocks", "api_calls", "cpu_fault_sites", "populated", "resident", "handler_runs", "evictions"]
        );
    }
}

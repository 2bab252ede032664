//! Quantities that some sources, drivers or configurations of uvmd do not count.

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

impl Quantity {
    /// Those that the driver's tools do not count, or not without a record of each fault.
    pub const NOT_OF_TOOLS: &'static [Self] = &[
        Self::FaultAccess,
        Self::CpuFaultAccess,
        Self::Batches,
        Self::FreedBlocks,
        Self::ApiCalls,
        Self::BlockFaults,
        Self::CpuFaultSites,
        Self::Populated,
        Self::Resident,
        Self::HandlerRuns,
        Self::Replays,
        Self::Evictions,
        Self::EvictionPairs,
    ];
}

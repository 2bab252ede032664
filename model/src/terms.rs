//! Dimensions of counts, in the driver's terms.

/// Access type of a fault: the driver's `uvm_fault_access_type_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// A GPU prefetch instruction; not the driver's own prefetcher.
    Prefetch,
    /// A load.
    Read,
    /// A store.
    Write,
    /// An atomic whose effect need only be visible to this GPU.
    AtomicWeak,
    /// An atomic visible to the whole system.
    AtomicStrong,
    /// Any: the source does not know it.
    Unknown,
}

impl Access {
    /// Every access type, in the driver's numbering.
    pub const ALL: [Self; 6] =
        [Self::Prefetch, Self::Read, Self::Write, Self::AtomicWeak, Self::AtomicStrong, Self::Unknown];
    /// Every known access type.
    pub const KNOWN: [Self; 5] = [Self::Prefetch, Self::Read, Self::Write, Self::AtomicWeak, Self::AtomicStrong];

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefetch => "prefetch",
            Self::Read => "read",
            Self::Write => "write",
            Self::AtomicWeak => "atomic_weak",
            Self::AtomicStrong => "atomic_strong",
            Self::Unknown => "unknown",
        }
    }
}

/// Where bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Host to GPU.
    Htod,
    /// GPU to host.
    Dtoh,
    /// From one GPU to another. Counted at the receiving GPU.
    Dtod,
}

impl Direction {
    /// Every direction.
    pub const ALL: [Self; 3] = [Self::Htod, Self::Dtoh, Self::Dtod];

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Htod => "htod",
            Self::Dtoh => "dtoh",
            Self::Dtod => "dtod",
        }
    }
}

/// Cause of a migration. Groups the driver's `uvm_make_resident_cause_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A page fault of a GPU or a CPU.
    Fault,
    /// The driver's own tree prefetcher, working around a fault. Not `cudaMemPrefetchAsync`, which is `Api`.
    TreePrefetch,
    /// Memory was needed for something else.
    Eviction,
    /// The application asked: prefetch, advice, range groups.
    Api,
    /// Another process asked in its name: uvmd itself, a profiler.
    Tool,
    /// The GPU's access counters.
    AccessCounter,
    /// A cause this version does not know.
    Other,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 7] =
        [Self::Fault, Self::TreePrefetch, Self::Eviction, Self::Api, Self::Tool, Self::AccessCounter, Self::Other];

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::TreePrefetch => "tree_prefetch",
            Self::Eviction => "eviction",
            Self::Api => "api",
            Self::Tool => "tool",
            Self::AccessCounter => "access_counter",
            Self::Other => "other",
        }
    }
}

/// Cause of a remote mapping: the driver's `UvmEventMapRemoteCause`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemoteCause {
    /// The memory has to stay where it is for coherence.
    Coherence,
    /// The driver pinned a page that went back and forth.
    Thrashing,
    /// The application's advice.
    Policy,
    /// There was no room at the faulting processor.
    OutOfMemory,
    /// The memory was evicted from the processor, which keeps a mapping.
    Eviction,
    /// A cause this version does not know.
    Other,
}

impl RemoteCause {
    /// Every cause.
    pub const ALL: [Self; 6] =
        [Self::Coherence, Self::Thrashing, Self::Policy, Self::OutOfMemory, Self::Eviction, Self::Other];

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Coherence => "coherence",
            Self::Thrashing => "thrashing",
            Self::Policy => "policy",
            Self::OutOfMemory => "out_of_memory",
            Self::Eviction => "eviction",
            Self::Other => "other",
        }
    }
}

/// Call of a program about its managed memory, by the driver's name: `cudaMemPrefetchAsync` and `cudaMemAdvise` end in these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApiCall {
    /// `UVM_MIGRATE`: a prefetch to a GPU or to the host.
    Prefetch,
    /// `UVM_SET_PREFERRED_LOCATION`.
    SetPreferredLocation,
    /// `UVM_UNSET_PREFERRED_LOCATION`.
    UnsetPreferredLocation,
    /// `UVM_SET_ACCESSED_BY`.
    SetAccessedBy,
    /// `UVM_UNSET_ACCESSED_BY`.
    UnsetAccessedBy,
    /// `UVM_ENABLE_READ_DUPLICATION`.
    EnableReadDuplication,
    /// `UVM_DISABLE_READ_DUPLICATION`.
    DisableReadDuplication,
    /// `UVM_DISCARD`, from 580 on.
    Discard,
}

impl ApiCall {
    /// Every call.
    pub const ALL: [Self; 8] = [
        Self::Prefetch,
        Self::SetPreferredLocation,
        Self::UnsetPreferredLocation,
        Self::SetAccessedBy,
        Self::UnsetAccessedBy,
        Self::EnableReadDuplication,
        Self::DisableReadDuplication,
        Self::Discard,
    ];

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefetch => "prefetch",
            Self::SetPreferredLocation => "set_preferred_location",
            Self::UnsetPreferredLocation => "unset_preferred_location",
            Self::SetAccessedBy => "set_accessed_by",
            Self::UnsetAccessedBy => "unset_accessed_by",
            Self::EnableReadDuplication => "enable_read_duplication",
            Self::DisableReadDuplication => "disable_read_duplication",
            Self::Discard => "discard",
        }
    }
}

//! Keys and values of the counts, and the reasons of dropped events.

use crate::owner::Owner;

indexed! {
    /// Kind of a [`Tally`]. Its documentation defines `detail` of the key and `amount` of the
    /// value.
    Kind {
        /// GPU fault entries by access type; amount: fault instances merged into them.
        GpuFault => "gpu_fault",
        /// GPU fault entries for a page that the same batch has serviced already, by access type;
        /// amount as above.
        GpuFaultDuplicate => "gpu_fault_duplicate",
        /// CPU faults on managed memory; detail 1 for writes. Key's GPU is 0, amount is unused.
        CpuFault => "cpu_fault",
        /// CPU faults for which the sites have no room, or which another process raised; amount: bytes
        /// copied from GPUs for such faults. Key's GPU is 0.
        SitelessCpuFault => "siteless_cpu_fault",
        /// Copies from the host to the key's GPU by cause; amount: bytes.
        CopyHtod => "copy_htod",
        /// Copies from the key's GPU to the host by cause; amount: bytes.
        CopyDtoh => "copy_dtoh",
        /// Copies from another GPU to the key's by cause; amount: bytes.
        CopyDtod => "copy_dtod",
        /// Memory that became resident at the key's GPU without a copy; amount: bytes.
        Populated => "populated",
        /// Chunks of this VA space's memory evicted from the key's GPU.
        Evicted => "evicted",
        /// Chunks of any memory evicted from the key's GPU because this VA space, or its process,
        /// needed memory; amount: bytes copied out. Sum over the [`EvictionKey`]s with it as
        /// evictor.
        InducedEviction => "induced_eviction",
        /// Replays after a batch that held faults of this VA space.
        Replay => "replay",
        /// Pages that the driver found to be thrashing. The key's GPU is the first of those
        /// involved.
        Thrashing => "thrashing",
        /// Throttles of the key's GPU, or of the host for GPU 0, at a thrashing page; amount: ns,
        /// if the end was observed.
        Throttle => "throttle",
        /// Mappings of the key's GPU, or of the host for GPU 0, to memory elsewhere, by cause;
        /// amount: bytes.
        MapRemote => "map_remote",
        /// Calls of the VA space's own process, by [`ApiCall`]; amount: bytes named. Key's GPU
        /// is 0.
        ApiCall => "api_call",
        /// Calls of other processes about this VA space, by [`ApiCall`]; amount as above.
        ToolCall => "tool_call",
        /// Fault entries of this VA space in a batch, by [`bucket`]; amount: their sum.
        BatchEntries => "batch_entries",
        /// Nanoseconds from a batch's first fault entry to its replay, by [`bucket`]; amount: their
        /// sum.
        BatchNs => "batch_ns",
        /// Replays of the key's GPU, for faults of any process. The VA space is one that the GPU
        /// serviced then, or 0; it identifies the GPU that has the id.
        GpuReplay => "gpu_replay",
        /// Fault entries in a batch, of any process, by [`bucket`]. VA space as above.
        GpuBatchEntries => "gpu_batch_entries",
        /// Nanoseconds from a batch's first fault entry to its replay, by [`bucket`]. VA space as
        /// above.
        GpuBatchNs => "gpu_batch_ns",
        /// Nanoseconds of one run of the fault handler, by [`bucket`]. VA space as above.
        HandlerNs => "fault_handler_duration_ns",
        /// Blocks of the VA space that were freed with memory in them, as when the process frees managed
        /// memory or exits. Key's GPU is 0, amount is unused.
        FreedBlock => "freed_block",
        /// Moves of blocks of ordinary memory (HMM) to the key's GPU, or to the host for GPU 0, by any
        /// process. The VA space is 0: where such a block has its own is not in the layout.
        HmmMove => "hmm_move",
        /// Bytes of one copy from the host to the key's GPU, by [`bucket`]; amount: their sum.
        HtodMigrationBytes => "htod_migration_bytes",
        /// Bytes of one copy from the key's GPU to the host, by [`bucket`]; amount: their sum.
        DtohMigrationBytes => "dtoh_migration_bytes",
    }
}

impl Kind {
    /// Whether the kind is in [`names::DISTRIBUTIONS`](crate::names) and not in the counts.
    #[must_use]
    pub const fn is_of_distribution(self) -> bool {
        matches!(
            self,
            Self::BatchEntries
                | Self::BatchNs
                | Self::GpuBatchEntries
                | Self::GpuBatchNs
                | Self::HandlerNs
                | Self::HtodMigrationBytes
                | Self::DtohMigrationBytes
        )
    }

    /// Whether the kind describes a GPU with faults of any process, and not the VA space of the
    /// key.
    #[must_use]
    pub const fn is_of_gpu(self) -> bool {
        matches!(self, Self::GpuReplay | Self::GpuBatchEntries | Self::GpuBatchNs | Self::HandlerNs)
    }
}

/// Access type of faults whose source does not know it, in the key's detail.
pub const UNKNOWN_ACCESS: u16 = 5;
/// Cause of copies whose source does not know it, in the key's detail.
pub const UNKNOWN_CAUSE: u16 = 0xff;

/// Flag in a copy's cause in the key's detail: the call came from another process than the VA
/// space's.
pub const REQUESTED_BY_TOOL: u16 = 0x100;

/// Buckets of distributions for each power of two: values in one bucket differ by less than an
/// eighth.
const BUCKETS_PER_OCTAVE_LOG2: u32 = 3;

/// Bucket of a value. Small values have one each.
#[must_use]
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "there are 496 buckets")]
pub const fn bucket(value: u64) -> u16 {
    if value < 1 << BUCKETS_PER_OCTAVE_LOG2 {
        return value as u16;
    }
    let octave = value.ilog2();
    let place = (value >> (octave - BUCKETS_PER_OCTAVE_LOG2)) & ((1 << BUCKETS_PER_OCTAVE_LOG2) - 1);
    (((octave - BUCKETS_PER_OCTAVE_LOG2 + 1) << BUCKETS_PER_OCTAVE_LOG2) as u64 | place) as u16
}

/// Smallest value of a bucket.
#[must_use]
#[inline]
pub const fn first_of_bucket(bucket: u16) -> u64 {
    let (octave, place) = (bucket >> BUCKETS_PER_OCTAVE_LOG2, bucket & ((1 << BUCKETS_PER_OCTAVE_LOG2) - 1));
    match octave {
        0 => place as u64,
        // No values exist beyond the last bucket.
        62.. => u64::MAX,
        _ => (1 << BUCKETS_PER_OCTAVE_LOG2 | place as u64) << (octave - 1),
    }
}

indexed! {
    /// Call of the driver about managed memory.
    ApiCall {
        /// Migration.
        Migrate => "uvm_api_migrate",
        /// Preferred location of memory.
        SetPreferredLocation => "uvm_api_set_preferred_location",
        /// Removal of the preferred location.
        UnsetPreferredLocation => "uvm_api_unset_preferred_location",
        /// Processor that keeps a mapping of memory.
        SetAccessedBy => "uvm_api_set_accessed_by",
        /// Removal of such a processor.
        UnsetAccessedBy => "uvm_api_unset_accessed_by",
        /// Read duplication allowed.
        EnableReadDuplication => "uvm_api_enable_read_duplication",
        /// Read duplication forbidden.
        DisableReadDuplication => "uvm_api_disable_read_duplication",
        /// Contents of memory discarded.
        Discard => "uvm_api_discard",
    }
}

indexed! {
    /// Reason for which an event was dropped.
    DropReason {
        /// Unknown VA space: created before the probes were attached and not found then, or dropped
        /// for lack of room.
        UnknownVaSpace => "unknown_va_space",
        /// No room for another key in the counts, or the quota of this process or user is reached:
        /// see [`quota`](crate::quota).
        CountsFull => "counts_full",
        /// No room for another VA space, or the quota of this process or user is reached: its
        /// events become `UnknownVaSpace`.
        SpacesFull => "spaces_full",
        /// Full ring: user space missed the creation or destruction of a VA space.
        RingFull => "ring_full",
        /// Unreadable memory of the driver.
        Unreadable => "unreadable",
        /// Contradiction between an event and the layout; see [`SelfTest`].
        SelfTest => "self_test",
    }
}

indexed! {
    /// Contradiction between an event and the layout in use.
    SelfTest {
        /// The fault's VA space differs from that of its events structure.
        VaSpace => "a fault's VA space is not that of its event",
        /// A processor id is beyond the family's range.
        Processor => "a processor id is out of range",
        /// A GPU fault's address is not page aligned.
        FaultAddress => "a fault address is not page aligned",
        /// An access type is unknown, or missing in the mask of merged accesses.
        AccessType => "an access type is not possible",
        /// A fault entry holds no fault.
        Instances => "a fault entry holds no fault",
        /// A flag is neither 0 nor 1.
        Flag => "a flag is neither 0 nor 1",
        /// A migration's address or length is not in whole pages, or exceeds a block.
        MigrationBytes => "a migration is not in whole pages of one block",
        /// A migration's cause is unknown.
        MigrationCause => "a migration's cause is not known",
        /// A migration goes from a GPU to itself.
        MigrationProcessors => "a migration goes from a GPU to itself",
    }
}

indexed! {
    /// Probes.
    Probe {
        /// Faults and migrations.
        Notify => "uvm_perf_event_notify",
        /// Creation of a VA space.
        Register => "uvm_va_space_mm_register",
        /// Start of a VA space's destruction.
        DestroyEntry => "uvm_va_space_destroy",
        /// End of a VA space's destruction.
        DestroyReturn => "uvm_va_space_destroy (return)",
        /// Start of the fault handler.
        Handler => "uvm_gpu_service_replayable_faults",
        /// End of the fault handler.
        HandlerReturn => "uvm_gpu_service_replayable_faults (return)",
        /// Replay of a GPU's faults.
        Replay => "uvm_tools_broadcast_replay",
        /// Detection of a thrashing page.
        Thrashing => "uvm_tools_record_thrashing",
        /// Start of a processor's throttling.
        ThrottleStart => "uvm_tools_record_throttling_start",
        /// End of a processor's throttling.
        ThrottleEnd => "uvm_tools_record_throttling_end",
        /// Remote mapping for a processor.
        MapRemote => "uvm_tools_record_map_remote",
        /// Eviction from a GPU.
        Evict => "uvm_va_block_evict_chunks",
        /// Start of making memory resident.
        Resident => "uvm_va_block_make_resident_copy",
        /// End of making memory resident.
        ResidentReturn => "uvm_va_block_make_resident_copy (return)",
        /// Start of read duplication.
        Duplicate => "uvm_va_block_make_resident_read_duplicate",
        /// End of read duplication.
        DuplicateReturn => "uvm_va_block_make_resident_read_duplicate (return)",
        /// Start of a VA block's split.
        Split => "uvm_va_block_split",
        /// End of a VA block's split.
        SplitReturn => "uvm_va_block_split (return)",
        /// Start of the eviction for an unmanaged allocation.
        AllocPages => "uvm_pmm_gpu_pma_evict_pages_wrapper_entry",
        /// End of the eviction for an unmanaged allocation.
        AllocPagesReturn => "uvm_pmm_gpu_pma_evict_pages_wrapper_entry (return)",
        /// Start of the eviction for an unmanaged allocation in a certain range of memory.
        AllocRange => "uvm_pmm_gpu_pma_evict_range_wrapper_entry",
        /// End of the eviction for an unmanaged allocation in a certain range of memory.
        AllocRangeReturn => "uvm_pmm_gpu_pma_evict_range_wrapper_entry (return)",
        /// Error that the driver cannot recover from.
        FatalError => "uvm_global_set_fatal_error_impl",
        /// End of a migration call.
        MigrateReturn => "uvm_api_migrate (return)",
        /// Start of a migration call; see [`ApiCall`], as for all below.
        Migrate => "uvm_api_migrate",
        /// [`ApiCall::SetPreferredLocation`].
        SetPreferredLocation => "uvm_api_set_preferred_location",
        /// [`ApiCall::UnsetPreferredLocation`].
        UnsetPreferredLocation => "uvm_api_unset_preferred_location",
        /// [`ApiCall::SetAccessedBy`].
        SetAccessedBy => "uvm_api_set_accessed_by",
        /// [`ApiCall::UnsetAccessedBy`].
        UnsetAccessedBy => "uvm_api_unset_accessed_by",
        /// [`ApiCall::EnableReadDuplication`].
        EnableReadDuplication => "uvm_api_enable_read_duplication",
        /// [`ApiCall::DisableReadDuplication`].
        DisableReadDuplication => "uvm_api_disable_read_duplication",
        /// [`ApiCall::Discard`].
        Discard => "uvm_api_discard",
    }
}

/// Key of a [`Tally`]. No padding: the kernel hashes the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct CountKey {
    /// Generation of the VA space: never 0, and unique for one load of the probes.
    pub generation: u64,
    /// The driver's processor id; 0 for the host.
    pub gpu: u32,
    /// A [`Kind`].
    pub kind: u16,
    /// Access type or cause, in the driver's numbering; see [`Kind`].
    pub detail: u16,
}

indexed! {
    /// Cause of an eviction.
    EvictionCause {
        /// Service of a GPU fault.
        Fault => "fault",
        /// The evictor's own call, such as a prefetch.
        Api => "api",
        /// Another process's call about the evictor's memory.
        Tool => "tool",
        /// Unmanaged allocation.
        DeviceAllocation => "device_allocation",
        /// Something else.
        Other => "other",
    }
}

/// Victim and evictor of an eviction, as a map key. The value is a [`Tally`]: chunks of at most 2
/// MiB, and bytes copied out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct EvictionKey {
    /// Generation of the victim, the VA space whose memory was evicted.
    pub victim: u64,
    /// Generation of the evictor, the VA space that needed memory; 0 if unknown.
    pub evictor: u64,
    /// The driver's processor id.
    pub gpu: u32,
    /// An [`EvictionCause`].
    pub cause: u32,
}

/// Instruction of a process that raised CPU faults on its managed memory, as a map key. The value is a
/// [`Tally`]: faults, and bytes that the driver copied from GPUs for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct SiteKey {
    /// Generation of the VA space.
    pub generation: u64,
    /// Program counter in user space: of the access, or of the instruction after the system call in
    /// which the kernel accessed the memory.
    pub pc: u64,
}

/// One CPU's share of a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tally {
    /// Events.
    pub events: u64,
    /// Faults or bytes; see [`Kind`].
    pub amount: u64,
}

impl Tally {
    /// No events.
    pub const NONE: Self = Self { events: 0, amount: 0 };
}

/// State of a live VA space in the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Space {
    /// Generation of its counts: its own, or one shared with others of its process or user.
    pub generation: u64,
    /// Serial number, which distinguishes the VA space from earlier ones at the same address. Equal
    /// to the generation unless that is shared.
    pub serial: u64,
    /// Events of this VA space for which the counts had no room.
    pub dropped_events: u64,
    /// Losses of its block records.
    pub records: RecordLosses,
    /// Process that created it, and that process's user.
    pub owner: Owner,
    /// Block records written in the current window: see [`WINDOW_NS`](crate::block::WINDOW_NS).
    pub window_records: u64,
    /// Start of the current window, in ns since boot.
    pub window_began_ns: u64,
    /// Owner of a shared generation: a [`TenantKind`](crate::TenantKind), or the node's for a
    /// generation that is not shared.
    pub shared_by: u32,
    /// 0.
    pub padding: u32,
}

impl Space {
    /// Whether the VA space has its own generation, whose end is reported.
    #[must_use]
    #[inline]
    pub const fn is_own(&self) -> bool {
        self.serial == self.generation
    }
}

/// Block records of a VA space that were not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RecordLosses {
    /// Sampled out because a limit was reached.
    pub sampled_out: u64,
    /// Dropped because the ring was full.
    pub dropped: u64,
    /// Changes of residency without a record: the ring was full, or a probe could not do its work.
    /// Later records do not correct these at once.
    pub stale: u64,
}

const _: () = assert!(size_of::<CountKey>() == 16);
const _: () = assert!(size_of::<EvictionKey>() == 24);
const _: () = assert!(size_of::<SiteKey>() == 16);
const _: () = assert!(size_of::<Tally>() == 16);
const _: () = assert!(size_of::<Space>() == 80);

#[cfg(feature = "user")]
#[expect(unsafe_code, reason = "aya's marker for plain memory is an unsafe trait")]
mod pod {
    // SAFETY: integers only, no padding.
    unsafe impl aya::Pod for super::CountKey {}
    // SAFETY: integers only, no padding.
    unsafe impl aya::Pod for super::EvictionKey {}
    // SAFETY: integers only, no padding.
    unsafe impl aya::Pod for super::SiteKey {}
    // SAFETY: integers only, no padding.
    unsafe impl aya::Pod for super::Tally {}
    // SAFETY: integers only; padding is a named field.
    unsafe impl aya::Pod for super::Space {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_bucket_differ_by_less_than_an_eighth() {
        assert_eq!([0, 1, 7, 8, 9, 15, 16, 17, 18].map(bucket), [0, 1, 7, 8, 9, 15, 16, 16, 17]);
        let mut earlier = (0, 0);
        for value in
            (0..5000).chain((13..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + (1 << (bits - 3))]))
        {
            let (first, last) = earlier;
            let this = bucket(value);
            assert!(this >= last, "{value}");
            if this == last {
                assert!(value - first < (first / 8).max(1), "{first} {value}");
            } else {
                earlier = (value, this);
            }
        }
        assert_eq!(bucket(u64::MAX), 495);
    }

    #[test]
    fn first_of_bucket_is_its_lower_bound() {
        assert_eq!([0, 7, 16, 17, 495].map(first_of_bucket), [0, 7, 16, 18, 15 << 60]);
        for number in 1..=495 {
            let first = first_of_bucket(number);
            assert_eq!((bucket(first), bucket(first - 1)), (number, number - 1));
        }
        assert_eq!([496, u16::MAX].map(first_of_bucket), [u64::MAX; 2]);
    }

    #[test]
    fn variants_are_ordered_by_map_index() {
        for (at, reason) in (0..).zip(DropReason::ALL) {
            assert_eq!((*reason as u32, DropReason::from_index(at)), (at, Some(*reason)));
        }
        assert_eq!(DropReason::from_index(DropReason::COUNT), None);
    }
}

//! Offsets of fields of the driver and the kernel that the probes read.
//!
//! The driver's structures named here depend on its version alone, not on the kernel's
//! configuration. All versions from 515 to 595 fall into six families; [`FAMILIES_JSON`] is the
//! table. The loader selects one, adds what depends on the kernel, and passes it to the probes as
//! read-only data, so that the verifier sees constants.

/// Constants of the six driver families: name to `{representative, values}`, with offsets in bytes
/// unless the key says bits.
pub const FAMILIES_JSON: &str = include_str!("../uvm-layouts.json");

/// Maximum bytes of `uvm_perf_event_data_t` that the probes copy. The largest family has 72.
pub const EVENT_DATA_MAX: usize = 72;
/// Maximum bytes of `uvm_fault_buffer_entry_t` that the probes copy. The largest family has 96.
pub const FAULT_ENTRY_MAX: usize = 96;

/// Offsets in bytes and values, for one driver family on one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// Event id of a fault.
    pub event_fault: u32,
    /// Event id of a migration.
    pub event_migration: u32,
    /// Offset from `uvm_perf_va_space_events_t`, the first argument, to its pointer to the VA
    /// space. Depends on the kernel's `rw_semaphore`.
    pub events_va_space: u32,

    /// Size of `uvm_perf_event_data_t`.
    pub event_size: u32,
    /// Fault: faulting processor, u32.
    pub fault_processor: u32,
    /// GPU fault: pointer to the fault buffer entry.
    pub fault_entry: u32,
    /// GPU fault: whether the page was serviced already in this batch, u8.
    pub fault_is_duplicate: u32,
    /// GPU fault: number of its batch, u32.
    pub fault_batch: u32,
    /// CPU fault: whether it is a write, u8.
    pub fault_is_write: u32,
    /// CPU fault: address, u64.
    pub fault_cpu_address: u32,
    /// CPU fault: program counter of the thread in user space, u64.
    pub fault_cpu_pc: u32,
    /// Migration: destination processor, u32.
    pub migration_dst: u32,
    /// Migration: source processor, u32.
    pub migration_src: u32,
    /// Migration: first byte, u64.
    pub migration_address: u32,
    /// Migration: length, u64.
    pub migration_bytes: u32,
    /// Migration: `uvm_make_resident_cause_t`, u32.
    pub migration_cause: u32,

    /// Maximum length of a migration: a VA block's 2 MiB, more with pages larger than 4 KiB.
    pub migration_max_bytes: u32,

    /// Size of `uvm_fault_buffer_entry_t`.
    pub entry_size: u32,
    /// Fault entry: page-aligned address, u64.
    pub entry_address: u32,
    /// Fault entry: the u32 that holds the access type.
    pub entry_access: u32,
    /// Fault entry: lowest bit of the access type.
    pub entry_access_shift: u32,
    /// Fault entry: width of the access type in bits.
    pub entry_access_bits: u32,
    /// Fault entry: pointer to the VA space.
    pub entry_va_space: u32,
    /// Fault entry: `1 << access type` of every fault merged into it, u32.
    pub entry_access_mask: u32,
    /// Fault entry: faults merged into it, u16.
    pub entry_instances: u32,

    /// Fault entry: u8 with the replayable flag.
    pub entry_replayable: u32,
    /// Fault entry: bit of the replayable flag.
    pub entry_replayable_bit: u32,

    /// Highest GPU processor id.
    pub gpu_max: u32,
    /// Processor ids of one physical GPU: one each for its MIG instances.
    pub gpu_ids: u32,
    /// `uvm_gpu_t`: its processor id, u32.
    pub gpu_id: u32,

    /// `uvm_va_block_t`: pointer to its range, whose first field is the pointer to the VA space.
    /// Depends on the kernel's `mutex`.
    pub block_range: u32,
    /// `uvm_va_block_t`: first address, u64.
    pub block_start: u32,
    /// `uvm_va_block_t`: a pointer per GPU to the block's state there, which begins with the mask
    /// of resident pages. 0 if unknown: then no probe that needs it may be attached.
    pub block_gpus: u32,
    /// `uvm_va_block_t`: mask of processors at which pages of the block are resident. As above.
    pub block_resident: u32,
    /// Base-2 logarithm of the size of a page.
    pub page_shift: u32,

    /// `task_struct.group_leader`.
    pub task_group_leader: u32,
    /// `task_struct.real_parent`.
    pub task_real_parent: u32,
    /// `task_struct.start_boottime`.
    pub task_start_boottime: u32,

    /// `task_struct.tgid`.
    pub task_tgid: u32,
    /// `task_struct.comm`.
    pub task_comm: u32,
    /// `task_struct.real_cred`.
    pub task_credentials: u32,
    /// `cred.uid`.
    pub credentials_uid: u32,
    /// `file.f_inode`.
    pub file_inode: u32,
    /// `file.private_data`.
    pub file_private_data: u32,
    /// `inode.i_rdev`.
    pub inode_device: u32,
    /// `inode.i_mode`.
    pub inode_mode: u32,

    /// Device /dev/nvidia-uvm in the kernel's encoding, major << 20 | minor. 0 if unknown.
    pub uvm_device: u32,
    /// Value of the lowest three bits of the private data of a file that represents a VA space.
    pub va_space_file_type: u32,

    /// 1 if the driver's structures are in user memory: tests only.
    pub in_user_memory: u32,
}

#[cfg(feature = "user")]
#[expect(unsafe_code, reason = "aya's marker for plain memory is an unsafe trait")]
mod pod {
    // SAFETY: u32 only, no padding.
    unsafe impl aya::Pod for super::Layout {}
}

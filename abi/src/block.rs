//! The record of what happened to one VA block of 2 MiB.
//!
//! Records tell where; how much is told by the counts alone, which lack nothing when records are left out.

/// Size of a VA block, of which its address is a multiple.
pub const BLOCK_BYTES: u64 = 2 << 20;
/// Window in ns over which the number of records of one CPU is limited.
pub const WINDOW_NS: u64 = 100_000_000;

indexed! {
    /// Kind of a block record.
    RecordKind {
        /// Fault entries of a GPU, one after the other in a batch.
        GpuFaults => "gpu_faults",
        /// A fault of a CPU.
        CpuFault => "cpu_fault",
        /// A copy from the host to the GPU.
        CopyHtod => "copy_htod",
        /// A copy from the GPU to the host.
        CopyDtoh => "copy_dtoh",
        /// A copy from another GPU to the GPU.
        CopyDtod => "copy_dtod",
        /// Pages became resident at the GPU with nothing to copy.
        Populated => "populated",
        /// Pages were evicted from the GPU.
        Evicted => "evicted",
        /// The block's residency at the GPU changed: see `resident_pages`.
        Residency => "residency",
        /// The block was freed: nothing of it is anywhere.
        Gone => "gone",
    }
}

/// In `resident_pages`: not known.
pub const RESIDENT_UNKNOWN: u16 = u16::MAX;
/// Number of parts of a block that `slots` distinguishes.
pub const SLOTS: u32 = 32;
/// Bytes of each: the least that the driver moves to a GPU, as a rule.
pub const SLOT_BYTES: u64 = BLOCK_BYTES / SLOTS as u64;

/// The slots in which so many bytes from an address are, of its block. At least the address's own.
#[must_use]
#[inline]
pub const fn slots(address: u64, bytes: u64) -> u32 {
    let first = address % BLOCK_BYTES / SLOT_BYTES;
    let last = (address % BLOCK_BYTES + bytes.saturating_sub(1)) / SLOT_BYTES;
    let upto = if last >= SLOTS as u64 - 1 { u32::MAX } else { (2 << last) - 1 };
    upto & (u32::MAX << first)
}

/// One record of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BlockRecord {
    /// Time of the event, ns since boot, suspended time included.
    pub boottime_ns: u64,
    /// Generation of the VA space.
    pub generation: u64,
    /// First address of the block.
    pub address: u64,
    /// Bytes copied or populated.
    pub bytes: u32,
    /// Number of events.
    pub events: u32,
    /// The driver's processor id; 0 for the host.
    pub gpu: u32,
    /// Faults and copies: which of its [`SLOTS`] they were in, a bit each, the lowest address lowest. 0 where it is not known.
    pub slots: u32,
    /// A [`RecordKind`].
    pub kind: u16,
    /// Cause of a copy, in the driver's numbering; with [`REQUESTED_BY_TOOL`](crate::count::REQUESTED_BY_TOOL). Of a GPU's faults the lower half of their
    /// batch's number: within a batch the driver sorts them by address, so that only the order of batches tells of the order of accesses.
    pub cause: u16,
    /// Residency: pages of it that are resident at the GPU from now on, in the kernel's page size, or [`RESIDENT_UNKNOWN`].
    pub resident_pages: u16,
    /// Residency and Gone: the page of the block at which the piece of it begins that this is about. 0 but where memory was allocated, or
    /// advice was given, for less than whole blocks: the driver keeps each such piece for itself.
    pub first_page: u16,
}

const _: () = assert!(size_of::<BlockRecord>() == 48);

record!(BlockRecord);

indexed! {
    /// Fate of a block record.
    RecordFate {
        /// The record is in the ring.
        Written => "written",
        /// The record was sampled out: this CPU had written enough in this window.
        SampledOut => "sampled_out",
        /// The ring was full.
        Dropped => "dropped",
    }
}

/// Limits on the block records that the probes write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RecordLimit {
    /// Each CPU in each [`WINDOW_NS`]; 0 for none at all.
    pub per_window: u32,
    /// Bytes of the ring in use above which only records of residency are written.
    pub used_bytes: u32,
    /// Each VA space in each [`WINDOW_NS`], on all CPUs: so many that those of one do not fill the ring between two readings.
    pub per_space: u32,
}

#[cfg(feature = "user")]
#[expect(unsafe_code, reason = "aya's marker for plain memory is an unsafe trait")]
mod pod {
    // SAFETY: integers only, no padding.
    unsafe impl aya::Pod for super::RecordLimit {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_cover_all_bytes_of_an_access() {
        let base = 0x7f00_0020_0000;
        assert_eq!(slots(base, 0), 1);
        assert_eq!(slots(base + 4096, 4096), 1);
        assert_eq!(slots(base + 60 * 1024, 8192), 0b11);
        assert_eq!(slots(base + 31 * SLOT_BYTES, SLOT_BYTES), 1 << 31);
        assert_eq!(slots(base, BLOCK_BYTES), u32::MAX);
        // What goes beyond the block is not of it.
        assert_eq!(slots(base + 31 * SLOT_BYTES, BLOCK_BYTES), 1 << 31);
    }
}

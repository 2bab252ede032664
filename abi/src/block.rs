//! Record of an event at one VA block of 2 MiB.
//!
//! Records report addresses. Amounts come from the counts alone, which are complete even when
//! records are sampled out.

/// Size of a VA block, and alignment of its address.
pub const BLOCK_BYTES: u64 = 2 << 20;
/// Window in ns over which the number of records of one CPU is limited.
pub const WINDOW_NS: u64 = 100_000_000;

indexed! {
    /// Kind of a block record.
    RecordKind {
        /// Consecutive fault entries of a GPU in a batch.
        GpuFaults => "gpu_faults",
        /// Fault of a CPU.
        CpuFault => "cpu_fault",
        /// Copy from the host to the GPU.
        CopyHtod => "copy_htod",
        /// Copy from the GPU to the host.
        CopyDtoh => "copy_dtoh",
        /// Copy from another GPU to the GPU.
        CopyDtod => "copy_dtod",
        /// Pages that became resident at the GPU without a copy.
        Populated => "populated",
        /// Eviction from the GPU.
        Evicted => "evicted",
        /// Change of the block's residency at the GPU: see `resident_pages`.
        Residency => "residency",
        /// The block was freed, with all its memory.
        Gone => "gone",
        /// Copy from the GPU to the host, on the way to another GPU that it cannot copy to.
        CopyStaged => "copy_staged",
    }
}

/// Value of `resident_pages` if the number is unknown.
pub const RESIDENT_UNKNOWN: u16 = u16::MAX;
/// Number of parts of a block that `slots` distinguishes.
pub const SLOTS: u32 = 32;
/// Bytes of a slot: a granule, which is what the driver moves to a GPU at least, as a rule.
pub const SLOT_BYTES: u64 = BLOCK_BYTES / SLOTS as u64;

/// Slots of a block that a range of `bytes` from an address covers. At least the slot of the
/// address.
#[must_use]
#[inline]
pub const fn slots(address: u64, bytes: u64) -> u32 {
    let first = address % BLOCK_BYTES / SLOT_BYTES;
    let last = (address % BLOCK_BYTES + bytes.saturating_sub(1)) / SLOT_BYTES;
    let upto = if last >= SLOTS as u64 - 1 { u32::MAX } else { (2 << last) - 1 };
    upto & (u32::MAX << first)
}

/// Block record, as in the ring.
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
    /// Faults and copies: the [`SLOTS`] that they were in, one bit each, the lowest address in the
    /// lowest bit. 0 if unknown.
    pub slots: u32,
    /// A [`RecordKind`].
    pub kind: u16,
    /// Cause of a copy, in the driver's numbering; with
    /// [`REQUESTED_BY_TOOL`](crate::count::REQUESTED_BY_TOOL). For GPU faults, the lower half of
    /// their batch's number: the driver sorts a batch by address, so only the order of batches is
    /// evidence of the order of accesses.
    pub cause: u16,
    /// Residency: pages resident at the GPU from now on, in the kernel's page size, or
    /// [`RESIDENT_UNKNOWN`].
    pub resident_pages: u16,
    /// Residency and Gone: first page, within the block, of the piece that the record describes.
    /// Not 0 only where memory was allocated, or advice was given, for less than whole blocks: the
    /// driver manages each such piece separately.
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
    /// Limit for each CPU in each [`WINDOW_NS`]; 0 for no records at all.
    pub per_window: u32,
    /// Bytes of the ring in use above which only residency records are written.
    pub used_bytes: u32,
    /// Limit for each VA space in each [`WINDOW_NS`], over all CPUs, so that one VA space cannot
    /// fill the ring between two readings.
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
        // Bytes beyond the block do not belong to it.
        assert_eq!(slots(base + 31 * SLOT_BYTES, BLOCK_BYTES), 1 << 31);
    }
}

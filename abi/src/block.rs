//! The record of what happened to one VA block of 2 MiB.
//!
//! Records tell where; how much is told by the counts alone, which lack nothing when records are left out.

/// A VA block's address is a multiple of this.
pub const BLOCK_BYTES: u64 = 2 << 20;
/// Over this long, in ns, the number of records of one CPU is limited.
pub const WINDOW_NS: u64 = 100_000_000;

indexed! {
    /// What happened.
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
        /// It became resident at the GPU with nothing to copy.
        Populated => "populated",
        /// It was pushed out of the GPU.
        Evicted => "evicted",
        /// What of it is resident at the GPU changed: see `resident_pages`.
        Residency => "residency",
        /// Its memory was given back: nothing of it is anywhere.
        Gone => "gone",
    }
}

/// In `resident_pages`: not known.
pub const RESIDENT_UNKNOWN: u16 = u16::MAX;
/// Parts of a block that `slots` tells apart.
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
    /// When, ns since boot, suspended time included.
    pub boottime_ns: u64,
    /// Of the VA space.
    pub generation: u64,
    /// First address of the block.
    pub address: u64,
    /// Bytes copied or populated.
    pub bytes: u32,
    /// How often it happened.
    pub events: u32,
    /// The driver's processor id; 0 for the host.
    pub gpu: u32,
    /// Faults and copies: which of its [`SLOTS`] they were in, a bit each, the lowest address lowest. 0 where it is not known.
    pub slots: u32,
    /// A [`RecordKind`].
    pub kind: u16,
    /// A copy's cause, in the driver's numbering; with [`ASKED_BY_TOOL`](crate::count::ASKED_BY_TOOL). Of a GPU's faults the lower half of their
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
    /// What became of a record.
    RecordFate {
        /// It is in the ring.
        Written => "written",
        /// It was left out, because this CPU had written enough in this window.
        SampledOut => "sampled_out",
        /// The ring was full.
        Dropped => "dropped",
    }
}

/// How many records the probes may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RecordLimit {
    /// Each CPU in each [`WINDOW_NS`]; 0 for none at all.
    pub per_window: u32,
    /// Bytes of the ring in use from which only what tells of what is resident is written.
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
    fn bytes_are_in_the_slots_that_they_touch() {
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

//! What advice is in force on managed memory, by the driver's own word: a test ioctl of its, which needs the module parameter
//! `uvm_enable_builtin_tests=1`. There is no other way to ask.

use anyhow::{Context, bail};

use super::{Request, Uuid, ask, uvm::VaSpace};

/// `UVM_TEST_VA_RANGE_INFO_PARAMS`: the address; of the range that it is in, begin, last byte, read duplication and preferred location; a list of as
/// many processors as the driver can have, and its length; what kind of range it is; and the result. Room for whichever version it is.
#[repr(C, align(8))]
struct RangeInfo([u8; RangeInfo::BYTES]);

impl RangeInfo {
    /// The driver's struct has 4,200 at most.
    const BYTES: usize = 5120;
    const END_AT: usize = 16;
    const READ_DUPLICATION_AT: usize = 24;
    const PREFERRED_AT: usize = 28;
    /// `UVM_TEST_READ_DUPLICATION_ENABLED`.
    const DUPLICATES: u32 = 1;
    /// Of the length of the list of processors, and of the range's kind.
    const COUNT_AND_KIND_BYTES: usize = 8;
    /// What is known of a managed range alone, in front of the result.
    const MANAGED_BYTES: usize = 24;
    /// No result of the driver's.
    const UNANSWERED: u32 = u32::MAX;

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }

    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(found) = self.0.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *found = bytes;
        }
    }

    fn number(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.get(at))
    }
}

// SAFETY: repr(C), larger than the driver's struct and without pointers.
unsafe impl Request for RangeInfo {
    const REQUEST: libc::Ioctl = 204;
    const NAME: &str = "UVM_TEST_VA_RANGE_INFO";
}

/// What is in force on one of the driver's ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InForce {
    /// The address behind the range.
    pub(crate) end: u64,
    pub(crate) has_preferred_location: bool,
    /// By how many processors it is accessed.
    pub(crate) accessed_by: u32,
    pub(crate) duplicates_reads: bool,
}

impl VaSpace {
    /// What is in force at an address of managed memory.
    pub(crate) fn advice_at(&self, address: u64, driver_major: u32) -> anyhow::Result<InForce> {
        // From 550 on, the host's NUMA node follows, and there may be more processors.
        let (list_at, processors) = if driver_major >= 550 { (48, 257) } else { (44, 33) };
        let count_at = list_at + processors * size_of::<Uuid>();
        let status_at = (count_at + RangeInfo::COUNT_AND_KIND_BYTES).next_multiple_of(8) + RangeInfo::MANAGED_BYTES;
        let mut info = Box::new(RangeInfo([0; RangeInfo::BYTES]));
        info.put(0, address.to_ne_bytes());
        info.put(status_at, RangeInfo::UNANSWERED.to_ne_bytes());
        ask(&self.file, &mut *info)
            .with_context(|| format!("{} failed: is uvm_enable_builtin_tests=1 set?", RangeInfo::NAME))?;
        match info.number(status_at) {
            0 => {}
            status => bail!("{} failed at {address:#x}: the driver says {status:#x}", RangeInfo::NAME),
        }
        Ok(InForce {
            end: u64::from_ne_bytes(info.get(RangeInfo::END_AT)).saturating_add(1),
            has_preferred_location: info.get(RangeInfo::PREFERRED_AT) != Uuid::default(),
            accessed_by: info.number(count_at),
            duplicates_reads: info.number(RangeInfo::READ_DUPLICATION_AT) == RangeInfo::DUPLICATES,
        })
    }
}

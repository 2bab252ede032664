//! Advice in force on managed memory, by a test ioctl of the driver. It needs the module parameter
//! `uvm_enable_builtin_tests=1`; the driver has no other query.

use anyhow::{Context, bail};
use gpu::{Request, Uuid, ioctl, uvm::VaSpace};

/// `UVM_TEST_VA_RANGE_INFO_PARAMS`: the address; of its range, the begin, last byte, read
/// duplication and preferred location; a list of the maximum of processors of the driver, and its
/// length; the kind of the range; and the result. The size is sufficient for every version.
#[repr(C, align(8))]
struct RangeInfo([u8; RangeInfo::BYTES]);

impl RangeInfo {
    /// Size; the driver's struct has 4,200 bytes at most.
    const BYTES: usize = 5120;
    const END_AT: usize = 16;
    const READ_DUPLICATION_AT: usize = 24;
    const PREFERRED_AT: usize = 28;
    /// `UVM_TEST_READ_DUPLICATION_ENABLED`.
    const READ_DUPLICATION_ENABLED: u32 = 1;
    /// Bytes of the list's length and the range's kind.
    const COUNT_AND_KIND_BYTES: usize = 8;
    /// Bytes of the fields of managed ranges, in front of the result.
    const MANAGED_BYTES: usize = 24;
    /// Initial value; no result of the driver.
    const NO_RESULT: u32 = u32::MAX;

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

/// Advice in force on a range of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeAdvice {
    /// End of the range, exclusive.
    pub(crate) end: u64,
    pub(crate) has_preferred_location: bool,
    /// Number of its accessed-by processors.
    pub(crate) accessed_by: u32,
    pub(crate) duplicates_reads: bool,
}

/// Advice in force at an address of managed memory.
pub(crate) fn advice_at(va_space: &VaSpace, address: u64, driver_major: u32) -> anyhow::Result<RangeAdvice> {
    // From 550 on, the host's NUMA node follows, and the list has room for more processors.
    let (list_at, processors) = if driver_major >= 550 { (48, 257) } else { (44, 33) };
    let count_at = list_at + processors * size_of::<Uuid>();
    let status_at = (count_at + RangeInfo::COUNT_AND_KIND_BYTES).next_multiple_of(8) + RangeInfo::MANAGED_BYTES;
    let mut info = Box::new(RangeInfo([0; RangeInfo::BYTES]));
    info.put(0, address.to_ne_bytes());
    info.put(status_at, RangeInfo::NO_RESULT.to_ne_bytes());
    ioctl(va_space.file(), &mut *info)
        .with_context(|| format!("{} failed: is uvm_enable_builtin_tests=1 set?", RangeInfo::NAME))?;
    match info.number(status_at) {
        0 => {}
        status => bail!("{} failed at {address:#x}: the driver says {status:#x}", RangeInfo::NAME),
    }
    Ok(RangeAdvice {
        end: u64::from_ne_bytes(info.get(RangeInfo::END_AT)).saturating_add(1),
        has_preferred_location: info.get(RangeInfo::PREFERRED_AT) != Uuid::default(),
        accessed_by: info.number(count_at),
        duplicates_reads: info.number(RangeInfo::READ_DUPLICATION_AT) == RangeInfo::READ_DUPLICATION_ENABLED,
    })
}

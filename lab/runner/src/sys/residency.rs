//! Residency of managed pages, by a test ioctl of the driver, which needs the module parameter
//! `uvm_enable_builtin_tests=1`.

use anyhow::{Context, bail};
use gpu::{Request, Uuid, ioctl, uvm::VaSpace};

/// `UVM_TEST_VA_RESIDENCY_INFO_PARAMS`: the address, a flag, then lists of the maximum of
/// processors of the driver. Only the first list and its length are read here; the rest has room
/// for the output of every version.
#[repr(C, align(8))]
struct ResidencyInfo([u8; ResidencyInfo::BYTES]);

impl ResidencyInfo {
    /// Size; the driver's struct has 19,568 bytes at most.
    const BYTES: usize = 20_480;
    /// Offset of the first list, behind the address and the flag.
    const PROCESSORS_AT: usize = 9;
    /// Initial value; no number of processors.
    const NO_RESULT: u32 = u32::MAX;
}

// SAFETY: repr(C), larger than the driver's struct and without pointers.
unsafe impl Request for ResidencyInfo {
    const REQUEST: libc::Ioctl = 235;
    const NAME: &str = "UVM_TEST_VA_RESIDENCY_INFO";
}

/// Query of residency, page by page.
pub(crate) struct ResidencyQuery<'a> {
    va_space: &'a VaSpace,
    /// Offset of the length of the list of processors.
    count_at: usize,
    request: Box<ResidencyInfo>,
}

impl<'a> ResidencyQuery<'a> {
    #[expect(clippy::large_stack_arrays, reason = "20 KiB, once, on its way to the heap")]
    pub(crate) fn new(va_space: &'a VaSpace, driver_major: u32) -> Self {
        // Maximum of processors of the driver.
        let processors = if driver_major >= 550 { 257 } else { 33 };
        let count_at = (ResidencyInfo::PROCESSORS_AT + processors * size_of::<Uuid>()).next_multiple_of(4);
        Self { va_space, count_at, request: Box::new(ResidencyInfo([0; ResidencyInfo::BYTES])) }
    }

    /// Processors in whose memory the page at an address is; none for a page that is not populated,
    /// several for a duplicated one.
    pub(crate) fn processors(&mut self, address: u64) -> anyhow::Result<Vec<Uuid>> {
        self.put(0, address.to_ne_bytes());
        self.put(self.count_at, ResidencyInfo::NO_RESULT.to_ne_bytes());
        ioctl(self.va_space.file(), &mut *self.request)
            .with_context(|| format!("{} failed: is uvm_enable_builtin_tests=1 set?", ResidencyInfo::NAME))?;
        let count = u32::from_ne_bytes(self.get(self.count_at));
        if count == ResidencyInfo::NO_RESULT {
            bail!("{} failed: {address:#x} is no managed memory to the driver", ResidencyInfo::NAME);
        }
        let at = |index: u32| ResidencyInfo::PROCESSORS_AT + index as usize * size_of::<Uuid>();
        Ok((0..count).map(|index| self.get(at(index))).collect())
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.request.0.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }

    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(found) = self.request.0.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *found = bytes;
        }
    }
}

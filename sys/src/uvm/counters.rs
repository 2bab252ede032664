//! The driver's counters of one VA space, from /dev/nvidia-uvm-tools, as NVIDIA's tools read them.
//! They count from their attachment on, and need neither probes nor the process's cooperation.
//!
//! While counters are attached, each CPU fault of the process waits until the driver has flushed
//! its event queue.

use std::{fs::File, os::fd::AsFd, sync::atomic::AtomicU64};

use serde::{Deserialize, Serialize};

use super::{
    Uuid, UvmError,
    target::VaSpace,
    tracker::{self, DEVICE, Layout},
};

/// Counts of the driver, over all GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// GPU faults, after the driver merged equal ones of a batch.
    pub fault_entries: u64,
    /// CPU faults on managed memory.
    pub cpu_faults: u64,
    /// Bytes copied from host to GPU.
    pub bytes_htod: u64,
    /// Bytes copied from GPU to host.
    pub bytes_dtoh: u64,
}

impl Counted {
    /// Difference from an earlier reading of the same counters.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            fault_entries: self.fault_entries.wrapping_sub(earlier.fault_entries),
            cpu_faults: self.cpu_faults.wrapping_sub(earlier.cpu_faults),
            bytes_htod: self.bytes_htod.wrapping_sub(earlier.bytes_htod),
            bytes_dtoh: self.bytes_dtoh.wrapping_sub(earlier.bytes_dtoh),
        }
    }
}

/// Page that the driver pins and adds to, aligned for any page size.
#[repr(C, align(65536))]
struct Page([AtomicU64; 512]);

/// Counters attached to a VA space. They keep it alive, as the module's documentation explains: to
/// be dropped when the process has exited.
pub struct Counters {
    /// Tracker, declared before `page`: the driver releases the page when it is closed.
    _tracker: File,
    page: Box<Page>,
}

impl Counters {
    /// Attaches to a VA space, on a driver of this version.
    ///
    /// # Errors
    /// If the calls of that version are unknown, the driver's device cannot be opened, or the
    /// driver fails the call.
    #[expect(unsafe_code, reason = "memory that the driver writes")]
    pub fn attach(va_space: &VaSpace<'_>, driver_version: &str) -> Result<Self, UvmError> {
        let layout = Layout::of(driver_version)?;
        let page = Box::new(Page([const { AtomicU64::new(0) }; 512]));
        let tracker = tracker::open(DEVICE)?;
        let Page(words) = &*page;
        // SAFETY: the page has no other use, and is dropped after the tracker.
        unsafe { tracker::count(tracker.as_fd(), layout, words, Uuid::CPU, va_space.as_fd()) }?;
        Ok(Self { _tracker: tracker, page })
    }

    /// Counts since the attachment. Bytes are counted when a copy is scheduled, so this is exact
    /// once the process's GPU work has completed.
    #[must_use]
    pub fn read(&self) -> Counted {
        let Page(words) = &*self.page;
        let tracker::Counters { fault_entries, cpu_faults, bytes_htod, bytes_dtoh } = tracker::Counters::of(words);
        Counted { fault_entries, cpu_faults, bytes_htod, bytes_dtoh }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn counter_page_is_aligned_for_any_page_size() {
        let page = Box::new(Page([const { AtomicU64::new(0) }; 512]));
        assert!(ptr::from_ref(&*page).addr().is_multiple_of(65536));
        // Memory that the driver writes must not be shared with other data.
        assert_eq!(size_of::<Page>(), 65536);
    }

    #[test]
    fn since_is_the_difference_of_two_readings() {
        let earlier = Counted { fault_entries: 1, cpu_faults: 2, bytes_htod: 3, bytes_dtoh: 4 };
        let later = Counted { fault_entries: 11, cpu_faults: 22, bytes_htod: 33, bytes_dtoh: 44 };
        let since = Counted { fault_entries: 10, cpu_faults: 20, bytes_htod: 30, bytes_dtoh: 40 };
        assert_eq!(later.since(earlier), since);
    }
}

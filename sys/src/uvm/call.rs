//! Calls of the driver about another process's memory: migrations, and the advice of
//! `cudaMemAdvise`.
//!
//! Advice stays in force until it is withdrawn, whichever process gave it. The driver stores it by
//! range, and splits a range at each end of an advised part. Many small pieces of advice therefore
//! leave many small ranges, even after they are withdrawn.

use std::os::fd::BorrowedFd;

use super::{
    Status, Uuid, UvmError,
    pages::PageRange,
    request::{
        ANY_NODE, DisableReadDuplication, EnableReadDuplication, Initialize, Migrate, PageableMemAccess, Request,
        SetAccessedBy, SetPreferredLocation, UnsetAccessedBy, UnsetPreferredLocation, call,
    },
};

/// Flags of a VA space, set by its process at creation (`UVM_INIT_FLAGS_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceFlags(pub u64);

impl SpaceFlags {
    /// Flags of VA spaces that belong to the memory of their process, whose cgroup the driver
    /// charges for host memory. For all others it charges the caller's cgroup.
    pub const OF_ONE_PROCESS: [Self; 2] = [Self(0), Self(Self::DISABLE_HMM)];
    const DISABLE_HMM: u64 = 1;
}

/// Call of the driver. It fails with [`Status::INVALID_ADDRESS`] if there is no managed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Migrates pages to a GPU or the CPU, and waits for the copies.
    Migrate(PageRange, Uuid),
    /// Sets the preferred location: faults bring the pages there, or leave them there and map them.
    SetPreferredLocation(PageRange, Uuid),
    /// Removes the preferred location.
    UnsetPreferredLocation(PageRange),
    /// Sets an accessed-by processor: it has mappings to the pages, wherever they are.
    SetAccessedBy(PageRange, Uuid),
    /// Removes an accessed-by processor: it gets no new mappings.
    UnsetAccessedBy(PageRange, Uuid),
    /// Enables read duplication: pages that are read may be in several memories at once.
    EnableReadDuplication(PageRange),
    /// Disables read duplication: each page is in one memory again.
    DisableReadDuplication(PageRange),
    /// Does nothing; it fails with [`Status::INVALID_ARGUMENT`] if the VA space has other flags.
    /// The drivers 515 to 525 take the locks of the caller's memory map and of the VA space for it,
    /// in this order, both for writing: a process whose own memory matters must not call it.
    CompareFlags(SpaceFlags),
}

impl Call {
    /// Name of the call in the driver.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Migrate(..) => Migrate::NAME,
            Self::SetPreferredLocation(..) => SetPreferredLocation::NAME,
            Self::UnsetPreferredLocation(_) => UnsetPreferredLocation::NAME,
            Self::SetAccessedBy(..) => SetAccessedBy::NAME,
            Self::UnsetAccessedBy(..) => UnsetAccessedBy::NAME,
            Self::EnableReadDuplication(_) => EnableReadDuplication::NAME,
            Self::DisableReadDuplication(_) => DisableReadDuplication::NAME,
            Self::CompareFlags(_) => Initialize::NAME,
        }
    }

    /// Numbers of these calls in the driver, and of those made along with them.
    pub(crate) const NUMBERS: [libc::Ioctl; 9] = [
        Migrate::REQUEST,
        SetPreferredLocation::REQUEST,
        UnsetPreferredLocation::REQUEST,
        SetAccessedBy::REQUEST,
        UnsetAccessedBy::REQUEST,
        EnableReadDuplication::REQUEST,
        DisableReadDuplication::REQUEST,
        Initialize::REQUEST,
        PageableMemAccess::REQUEST,
    ];

    /// Makes the call, on the descriptor of a VA space.
    pub(crate) fn make(self, file: BorrowedFd<'_>) -> Result<(), UvmError> {
        let bounds = |pages: PageRange| (pages.begin(), pages.bytes());
        match self {
            Self::Migrate(pages, destination) => {
                let (base, length) = bounds(pages);
                let (flags, cpu_numa_node, status) = (0, ANY_NODE, 0);
                let (semaphore_address, semaphore_payload) = (0, 0);
                let (user_space_start, user_space_length) = (0, 0);
                call(
                    file,
                    &mut Migrate {
                        base,
                        length,
                        destination,
                        flags,
                        semaphore_address,
                        semaphore_payload,
                        cpu_numa_node,
                        user_space_start,
                        user_space_length,
                        status,
                    },
                )
            }
            Self::SetPreferredLocation(pages, location) => {
                // No driver returns this status, so that a missing one is not a success.
                let (base, length) = bounds(pages);
                let (cpu_numa_node, status) = (ANY_NODE, u32::MAX);
                call(file, &mut SetPreferredLocation { base, length, location, cpu_numa_node, status })
            }
            Self::UnsetPreferredLocation(pages) => {
                let (base, length) = bounds(pages);
                call(file, &mut UnsetPreferredLocation { base, length, status: 0 })
            }
            Self::SetAccessedBy(pages, by) => {
                let (base, length) = bounds(pages);
                call(file, &mut SetAccessedBy { base, length, by, status: 0 })
            }
            Self::UnsetAccessedBy(pages, by) => {
                let (base, length) = bounds(pages);
                call(file, &mut UnsetAccessedBy { base, length, by, status: 0 })
            }
            Self::EnableReadDuplication(pages) => {
                let (base, length) = bounds(pages);
                call(file, &mut EnableReadDuplication { base, length, status: 0 })
            }
            Self::DisableReadDuplication(pages) => {
                let (base, length) = bounds(pages);
                call(file, &mut DisableReadDuplication { base, length, status: 0 })
            }
            Self::CompareFlags(SpaceFlags(flags)) => {
                // It would turn another file into a VA space.
                if is_va_space(file)? {
                    call(file, &mut Initialize { flags, status: 0 })
                } else {
                    Err(UvmError::Refused { request: Initialize::NAME, status: Status::ILLEGAL_ACTION })
                }
            }
        }
    }
}

/// Whether a file of the driver represents a VA space; a process has other files too. Once true, it
/// stays true. Waits for no lock.
pub(super) fn is_va_space(file: BorrowedFd<'_>) -> Result<bool, UvmError> {
    match call(file, &mut PageableMemAccess::default()) {
        Ok(()) => Ok(true),
        Err(UvmError::Refused { status: Status::ILLEGAL_ACTION, .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd};

    use super::*;

    #[test]
    fn foreign_file_is_never_initialized_as_va_space() {
        let null = File::open("/dev/null").unwrap();
        let error = Call::CompareFlags(SpaceFlags(0)).make(null.as_fd()).unwrap_err();
        assert!(matches!(error, UvmError::Call { request: "UVM_PAGEABLE_MEM_ACCESS", .. }), "{error}");
    }

    #[test]
    fn failed_ioctl_is_reported_by_name() {
        let null = File::open("/dev/null").unwrap();
        let pages = PageRange::new(0, 1 << 20).unwrap();
        for call in [
            Call::Migrate(pages, Uuid::CPU),
            Call::SetPreferredLocation(pages, Uuid::CPU),
            Call::UnsetPreferredLocation(pages),
            Call::SetAccessedBy(pages, Uuid::CPU),
            Call::UnsetAccessedBy(pages, Uuid::CPU),
            Call::EnableReadDuplication(pages),
            Call::DisableReadDuplication(pages),
        ] {
            let error = call.make(null.as_fd()).unwrap_err();
            assert!(matches!(error, UvmError::Call { request, .. } if request == call.name()), "{error}");
        }
    }
}

//! Calls of the driver about another process's memory: migrations, and what `cudaMemAdvise` does from within.
//!
//! Advice stays in force until it is withdrawn, whoever gave it. The driver keeps it by range, and cuts a range in two at each end of what
//! is advised: so many small pieces of advice stay many small ranges, also when they are withdrawn.

use std::os::fd::BorrowedFd;

use super::{
    Status, Uuid, UvmError,
    pages::PageRange,
    request::{
        ANY_NODE, DisableReadDuplication, EnableReadDuplication, Initialize, Migrate, PageableMemAccess, Request,
        SetAccessedBy, SetPreferredLocation, UnsetAccessedBy, UnsetPreferredLocation, call,
    },
};

/// Flags of a VA space, which its process chose when it made it (`UVM_INIT_FLAGS_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceFlags(pub u64);

impl SpaceFlags {
    /// Flags of VA spaces that belong to the memory of their process, whose cgroup the driver charges for host memory. For every other it charges
    /// that of
    /// whoever calls.
    pub const OF_ONE_PROCESS: [Self; 2] = [Self(0), Self(Self::DISABLE_HMM)];
    const DISABLE_HMM: u64 = 1;
}

/// One call. It fails with [`Status::INVALID_ADDRESS`] where no managed memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Migrates pages to a GPU or to the CPU, and waits until they are there.
    Migrate(PageRange, Uuid),
    /// Faults bring the pages to this processor, or leave them there and map them.
    SetPreferredLocation(PageRange, Uuid),
    /// The pages have no such place any more, whichever it was.
    UnsetPreferredLocation(PageRange),
    /// Sets an accessed-by processor: it keeps mappings to the pages, wherever they are.
    SetAccessedBy(PageRange, Uuid),
    /// Removes an accessed-by processor: it gets no new mappings.
    UnsetAccessedBy(PageRange, Uuid),
    /// Pages that are read may be in several places at once.
    EnableReadDuplication(PageRange),
    /// Each is in one place again.
    DisableReadDuplication(PageRange),
    /// Does nothing; it fails with [`Status::INVALID_ARGUMENT`] if these are not the VA space's flags. The drivers 515 to 525 take the locks of the
    /// caller's
    /// memory map and of the VA space for it, in this order, both for writing: a process whose own memory matters does not ask.
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

    /// The numbers that the driver knows these calls by, and what goes with them.
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
                // No driver gives this answer, so that one it did not write is no success.
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
                // Of a file that is no VA space it would make one.
                if is_va_space(file)? {
                    call(file, &mut Initialize { flags, status: 0 })
                } else {
                    Err(UvmError::Refused { request: Initialize::NAME, status: Status::ILLEGAL_ACTION })
                }
            }
        }
    }
}

/// Whether a file of the driver stands for a VA space; a process has others too. Once it does, it always will. Waits for no lock.
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

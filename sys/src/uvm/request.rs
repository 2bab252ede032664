//! Parameter blocks of the driver, as in its `uvm_ioctl.h`, and the ioctl that passes them.
//!
//! All are the same from 515 to 595, except for the one that attaches a tool, [`TrackerLayout`],
//! and [`SetPreferredLocation`].
#![expect(unsafe_code, reason = "ioctl: only the driver's header says what a request reads and writes")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    thread,
    time::Duration,
};

use super::{Status, Uuid, UvmError};

/// Parameter block of a request.
///
/// # Safety
/// The type is `repr(C)`, has at least the size that the driver copies for `REQUEST`, and its
/// fields are at the driver's offsets. A pointer in it points to memory that outlives the driver's
/// use of it.
pub(super) unsafe trait Request {
    const REQUEST: libc::Ioctl;
    const NAME: &str;
    /// Status from the driver: the ioctl itself succeeds whenever the block could be copied.
    fn status(&self) -> Status;
}

/// Limit on repeats of a request, which the driver demands while the machine suspends.
const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Makes a request to the driver, which fills in `request` even if it fails the call.
pub(super) fn call<R: Request>(file: BorrowedFd<'_>, request: &mut R) -> Result<(), UvmError> {
    for _ in 0..TRIES {
        // SAFETY: by the contract of Request, the driver finds the expected block at this address,
        // and writes nothing beyond it.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), R::REQUEST, std::ptr::from_mut(request)) };
        if result >= 0 {
            return match request.status() {
                Status::OK => Ok(()),
                status => Err(UvmError::Refused { request: R::NAME, status }),
            };
        }
        let source = io::Error::last_os_error();
        match source.kind() {
            io::ErrorKind::WouldBlock => thread::sleep(BETWEEN_TRIES),
            io::ErrorKind::Interrupted => {}
            _ => return Err(UvmError::Call { request: R::NAME, source }),
        }
    }
    Err(UvmError::Call { request: R::NAME, source: io::ErrorKind::WouldBlock.into() })
}

#[repr(C)]
pub(super) struct Migrate {
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) destination: Uuid,
    pub(super) flags: u32,
    pub(super) semaphore_address: u64,
    pub(super) semaphore_payload: u32,
    /// Any node: -1. Up to 545 it is unsigned, and for memory of the system's allocator alone,
    /// which is never requested here.
    pub(super) cpu_numa_node: i32,
    pub(super) user_space_start: u64,
    pub(super) user_space_length: u64,
    pub(super) status: u32,
}

/// Parameter block of a preferred location. Up to 545 its status is where the node is from 550 on,
/// and the block ends there. A driver with a node leaves that field unchanged; an older one writes
/// a status, which is never [`ANY_NODE`]. The result therefore shows which layout applies, even
/// within a branch of versions.
#[repr(C)]
pub(super) struct SetPreferredLocation {
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) location: Uuid,
    pub(super) cpu_numa_node: i32,
    pub(super) status: u32,
}

/// Any node of the host.
pub(super) const ANY_NODE: i32 = -1;

#[repr(C)]
pub(super) struct UnsetPreferredLocation {
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) status: u32,
}

#[repr(C)]
pub(super) struct SetAccessedBy {
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) by: Uuid,
    pub(super) status: u32,
}

#[repr(C)]
pub(super) struct UnsetAccessedBy {
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) by: Uuid,
    pub(super) status: u32,
}

#[repr(C)]
pub(super) struct EnableReadDuplication {
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) status: u32,
}

#[repr(C)]
pub(super) struct DisableReadDuplication {
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) status: u32,
}

/// Parameter block of a query that takes no lock. Only a VA space answers it.
#[repr(C)]
#[derive(Default)]
pub(super) struct PageableMemAccess {
    pub(super) is_supported: u8,
    pub(super) status: u32,
}

/// Parameter block that turns another file into a VA space. On a VA space, it checks the flags of
/// its creation.
#[repr(C)]
pub(super) struct Initialize {
    pub(super) flags: u64,
    pub(super) status: u32,
}

#[repr(C)]
#[derive(Default)]
pub(super) struct EnableCounters {
    pub(super) flags: u64,
    pub(super) status: u32,
}

#[repr(C)]
#[derive(Default)]
pub(super) struct EnableEvents {
    pub(super) kinds: u64,
    pub(super) status: u32,
}

/// Parameter block of a wait until all pending events of the node are recorded.
#[repr(C)]
#[derive(Default)]
pub(super) struct FlushEvents {
    pub(super) status: u32,
}

/// End of the block that attaches a tool, by driver version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackerLayout {
    /// 515 to 545, and from 565 on: the status follows the common fields. Checked up to 595, and
    /// assumed for later versions.
    Plain,
    /// 550 and 555: the requested version of the events follows the status. The block of 550.40.07 is
    /// `Plain`: its status is at the same place, and the driver does not read beyond.
    VersionLast,
    /// 560: the version of the events precedes the status.
    VersionFirst,
}

impl TrackerLayout {
    /// All layouts.
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::VersionLast, Self::VersionFirst];

    /// Layout of a driver version such as `550.163.01`.
    ///
    /// # Errors
    /// If the version is unknown.
    pub fn of(version: &str) -> Result<Self, UvmError> {
        let major = version.trim().split('.').next().and_then(|major| major.parse().ok());
        match major {
            Some(515..=545 | 565..) => Ok(Self::Plain),
            Some(550..=555) => Ok(Self::VersionLast),
            Some(560) => Ok(Self::VersionFirst),
            _ => Err(UvmError::UnknownVersion(version.trim().to_owned())),
        }
    }
}

/// Parameter block that attaches a tool to a VA space, with the size of the largest layout; the
/// driver copies the size of its own.
#[repr(C)]
pub(super) struct InitEventTracker {
    queue_buffer: u64,
    /// 0: counters without a queue of events.
    queue_buffer_size: u64,
    control_buffer: u64,
    processor: Uuid,
    all_processors: u32,
    uvm_fd: u32,
    /// End by [`TrackerLayout`]: the status, or a version and the status, or the status and a
    /// version.
    end: [u32; 4],
    /// Room for a block of a later version, which may be larger.
    beyond: [u64; 32],
    /// Layout, which is not part of the driver's block.
    layout: TrackerLayout,
}

impl InitEventTracker {
    /// Queue of records over all processors, in the ring and the control page at these addresses.
    pub(super) fn queue(
        layout: TrackerLayout,
        (ring, records): (u64, u64),
        control: u64,
        va_space: BorrowedFd<'_>,
    ) -> Self {
        let counters = Self::counters(layout, control, Uuid::CPU, va_space);
        // Version 1 of the records: 0 where a version is requested.
        Self { queue_buffer: ring, queue_buffer_size: records, ..counters }
    }

    /// Counters of a GPU, or over all processors if it is the CPU, in the page at `page`.
    pub(super) fn counters(layout: TrackerLayout, page: u64, processor: Uuid, va_space: BorrowedFd<'_>) -> Self {
        let end = match layout {
            TrackerLayout::Plain => [0; 4],
            TrackerLayout::VersionLast => [0, 1, 0, 0],
            TrackerLayout::VersionFirst => [1, 0, 0, 0],
        };
        Self {
            queue_buffer: 0,
            queue_buffer_size: 0,
            control_buffer: page,
            processor,
            all_processors: (processor == Uuid::CPU).into(),
            uvm_fd: va_space.as_raw_fd().cast_unsigned(),
            end,
            beyond: [0; 32],
            layout,
        }
    }
}

macro_rules! requests {
    ($($params:ty, $number:literal, $name:literal, $size:literal;)*) => {$(
        const _: () = assert!(size_of::<$params>() == $size);
        // SAFETY: repr(C) with the fields of the driver's structure of this name, and no pointers.
        unsafe impl Request for $params {
            const REQUEST: libc::Ioctl = $number;
            const NAME: &str = $name;
            fn status(&self) -> Status {
                Status(self.status)
            }
        }
    )*};
}
requests! {
    UnsetPreferredLocation, 43, "UVM_UNSET_PREFERRED_LOCATION", 24;
    EnableReadDuplication, 44, "UVM_ENABLE_READ_DUPLICATION", 24;
    DisableReadDuplication, 45, "UVM_DISABLE_READ_DUPLICATION", 24;
    SetAccessedBy, 46, "UVM_SET_ACCESSED_BY", 40;
    UnsetAccessedBy, 47, "UVM_UNSET_ACCESSED_BY", 40;
    Migrate, 51, "UVM_MIGRATE", 80;
    PageableMemAccess, 39, "UVM_PAGEABLE_MEM_ACCESS", 8;
    Initialize, 0x3000_0001, "UVM_INITIALIZE", 16;
    EnableEvents, 58, "UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS", 16;
    EnableCounters, 60, "UVM_TOOLS_ENABLE_COUNTERS", 16;
    FlushEvents, 67, "UVM_TOOLS_FLUSH_EVENTS", 4;
}

const _: () = assert!(size_of::<SetPreferredLocation>() == 40);
// SAFETY: repr(C) with the fields of the driver's structure of this name from 550 on, as large as
// the older one, and no pointers.
unsafe impl Request for SetPreferredLocation {
    const REQUEST: libc::Ioctl = 42;
    const NAME: &str = "UVM_SET_PREFERRED_LOCATION";
    fn status(&self) -> Status {
        Status(if self.cpu_numa_node == ANY_NODE { self.status } else { self.cpu_numa_node.cast_unsigned() })
    }
}

const _: () =
    assert!(std::mem::offset_of!(InitEventTracker, end) == 48 && std::mem::offset_of!(InitEventTracker, layout) == 320);
// SAFETY: repr(C) with 64 bytes of the driver's block, the maximum of all versions up to 595, and room
// for 256 more of a later one; the page it points to is pinned by the driver (see tracker::count).
unsafe impl Request for InitEventTracker {
    const REQUEST: libc::Ioctl = 56;
    const NAME: &str = "UVM_TOOLS_INIT_EVENT_TRACKER";
    fn status(&self) -> Status {
        let [first, second, ..] = self.end;
        Status(if self.layout == TrackerLayout::VersionFirst { second } else { first })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd};

    use super::*;

    #[test]
    fn tracker_layout_follows_the_driver_version() {
        for (version, layout) in [
            ("515.105.01", TrackerLayout::Plain),
            ("535.288.01", TrackerLayout::Plain),
            ("550.163.01\n", TrackerLayout::VersionLast),
            ("555.58.02", TrackerLayout::VersionLast),
            ("560.35.03", TrackerLayout::VersionFirst),
            ("565.77", TrackerLayout::Plain),
            ("580.159.04", TrackerLayout::Plain),
            ("595.45.04", TrackerLayout::Plain),
            ("999.1", TrackerLayout::Plain),
        ] {
            assert_eq!(TrackerLayout::of(version).unwrap(), layout, "{version}");
        }
    }

    #[test]
    fn unknown_version_is_rejected_by_name() {
        for version in ["510.108.03", "548.1", "", "abc"] {
            let error = TrackerLayout::of(version).unwrap_err();
            assert!(matches!(&error, UvmError::UnknownVersion(named) if named == version), "{error}");
        }
    }

    #[test]
    fn status_is_read_at_the_versions_offset() {
        let null = File::open("/dev/null").unwrap();
        let status_of =
            |layout, end| InitEventTracker { end, ..InitEventTracker::counters(layout, 0, Uuid::CPU, null.as_fd()) };
        assert_eq!(status_of(TrackerLayout::Plain, [0x16, 0, 0, 0]).status(), Status::ILLEGAL_ACTION);
        assert_eq!(status_of(TrackerLayout::VersionLast, [0x16, 1, 1, 0]).status(), Status::ILLEGAL_ACTION);
        assert_eq!(status_of(TrackerLayout::VersionFirst, [1, 0, 0, 0]).status(), Status::OK);
    }

    #[test]
    fn preferred_location_status_is_read_in_both_layouts() {
        let status_of = |cpu_numa_node, status| {
            SetPreferredLocation { base: 0, length: 0, location: Uuid::CPU, cpu_numa_node, status }.status()
        };
        // Request with any node and a status that no driver returns.
        let unset = u32::MAX;
        assert_eq!(status_of(ANY_NODE, 0), Status::OK);
        assert_eq!(status_of(ANY_NODE, 0x1e), Status::INVALID_ADDRESS);
        assert_eq!(status_of(0, unset), Status::OK);
        assert_eq!(status_of(0x1e, unset), Status::INVALID_ADDRESS);
    }

    #[test]
    fn field_offsets_match_the_drivers_header() {
        use std::mem::offset_of;
        assert_eq!(
            (offset_of!(SetPreferredLocation, cpu_numa_node), offset_of!(SetPreferredLocation, status)),
            (32, 36)
        );
        assert_eq!((offset_of!(SetAccessedBy, by), offset_of!(SetAccessedBy, status)), (16, 32));
        assert_eq!((offset_of!(UnsetAccessedBy, by), offset_of!(UnsetAccessedBy, status)), (16, 32));
        assert_eq!((offset_of!(PageableMemAccess, status), offset_of!(Initialize, status)), (4, 8));
        assert_eq!(offset_of!(UnsetPreferredLocation, status), 16);
        assert_eq!(offset_of!(EnableReadDuplication, status), 16);
        assert_eq!(offset_of!(DisableReadDuplication, status), 16);
    }

    #[test]
    fn request_on_a_foreign_file_is_an_error() {
        let null = File::open("/dev/null").unwrap();
        let error = call(null.as_fd(), &mut PageableMemAccess::default()).unwrap_err();
        assert!(matches!(error, UvmError::Call { request: "UVM_PAGEABLE_MEM_ACCESS", .. }), "{error}");
    }
}

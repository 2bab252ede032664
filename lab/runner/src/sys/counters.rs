//! The driver's own counters of one VA space, from /dev/nvidia-uvm-tools: what NVIDIA's tools read. They count from their attachment on.

use std::{fs::File, os::fd::AsRawFd, sync::atomic::Ordering};

use super::{
    Request, Uuid,
    memory::SharedPages,
    open,
    uvm::{Status, VaSpace, call},
};

/// What the driver counted for one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessCounters {
    pub(crate) fault_entries: u64,
    pub(crate) cpu_faults: u64,
    pub(crate) bytes_htod: u64,
    pub(crate) bytes_dtoh: u64,
}

// The driver's UvmCounterName: the index in the buffer, and the bit that enables it.
const BYTES_HTOD: usize = 0;
const BYTES_DTOH: usize = 1;
const CPU_FAULTS: usize = 2;
const GPU_FAULTS: usize = 9;

/// As the driver has it up to 555; 560 and later want `version` where `status` is.
#[repr(C)]
#[derive(Default)]
struct InitEventTracker {
    queue_buffer: u64,
    /// 0: counters, no queue of events.
    queue_buffer_size: u64,
    control_buffer: u64,
    processor: Uuid,
    /// Sums over all processors. A CPU fault on memory that prefers a GPU is counted at both, but in this sum once.
    all_processors: u32,
    uvm_fd: u32,
    status: u32,
    requested_version: u32,
    granted_version: u32,
}

#[repr(C)]
#[derive(Default)]
struct EnableCounters {
    flags: u64,
    status: u32,
}

const _: () = assert!(size_of::<InitEventTracker>() == 64 && size_of::<EnableCounters>() == 16);

// SAFETY: repr(C) with the driver's fields; the one buffer it points to outlives the tracker (see Tracker::attach).
unsafe impl Request for InitEventTracker {
    const REQUEST: libc::Ioctl = 56;
    const NAME: &str = "UVM_TOOLS_INIT_EVENT_TRACKER";
}
// SAFETY: repr(C) with the driver's fields, and no pointers.
unsafe impl Request for EnableCounters {
    const REQUEST: libc::Ioctl = 60;
    const NAME: &str = "UVM_TOOLS_ENABLE_COUNTERS";
}
impl Status for InitEventTracker {
    fn status(&self) -> u32 {
        self.status
    }
}
impl Status for EnableCounters {
    fn status(&self) -> u32 {
        self.status
    }
}

/// Counters attached to a VA space, as long as this or a duplicate of it is open. They keep the VA space too, even a dead one.
pub(crate) struct Tracker(File);

impl Tracker {
    /// Let the driver count in a page, which must outlive the tracker.
    pub(crate) fn attach(va_space: &VaSpace, pages: &SharedPages) -> anyhow::Result<Self> {
        let tracker = open("/dev/nvidia-uvm-tools")?;
        let request = InitEventTracker {
            control_buffer: std::ptr::from_ref(pages.counters()).addr() as u64,
            all_processors: 1,
            uvm_fd: va_space.file.as_raw_fd().cast_unsigned(),
            requested_version: 1,
            ..InitEventTracker::default()
        };
        call(&tracker, request)?;
        let flags = 1 << BYTES_HTOD | 1 << BYTES_DTOH | 1 << CPU_FAULTS | 1 << GPU_FAULTS;
        call(&tracker, EnableCounters { flags, status: 0 })?;
        Ok(Self(tracker))
    }

    /// The descriptor's number in this process.
    pub(crate) fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl ProcessCounters {
    /// What the driver counted in a page so far.
    pub(crate) fn read(pages: &SharedPages) -> Self {
        let read = |at: usize| pages.counters().get(at).map_or(0, |counter| counter.load(Ordering::Acquire));
        Self {
            fault_entries: read(GPU_FAULTS),
            cpu_faults: read(CPU_FAULTS),
            bytes_htod: read(BYTES_HTOD),
            bytes_dtoh: read(BYTES_DTOH),
        }
    }
}

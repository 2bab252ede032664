//! Driver's counters of one VA space, from /dev/nvidia-uvm-tools, the interface of NVIDIA's tools.
//! They count from their attachment on.
//!
//! Thrashing has no counters, but events in a queue. A queue that is full from the start counts
//! them: the driver counts the dropped events of each kind, so that no event has to be read in time
//! and none is missed.

use std::{fs::File, os::fd::AsRawFd, sync::atomic::Ordering};

use gpu::{
    Request, Uuid, open,
    uvm::{Status, VaSpace, call},
};

use super::memory::{SharedPages, Words};

/// Driver's counts of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessCounters {
    pub(crate) fault_entries: u64,
    pub(crate) cpu_faults: u64,
    pub(crate) bytes_htod: u64,
    pub(crate) bytes_dtoh: u64,
    /// Pages detected as thrashing.
    pub(crate) thrashing_pages: u64,
    /// Times that the driver throttled a processor, a GPU or a thread of a CPU, at such a page.
    pub(crate) throttles: u64,
}

// The driver's UvmCounterName: index in the buffer, and bit that enables it.
const BYTES_HTOD: usize = 0;
const BYTES_DTOH: usize = 1;
const CPU_FAULTS: usize = 2;
const GPU_FAULTS: usize = 9;

// The driver's UvmEventType: bit that enables it, and index among the counts of dropped events.
const THRASHING_DETECTED: usize = 10;
const THROTTLING_START: usize = 11;

/// Minimum size of a queue for the driver. It holds one event, as a queue with as many events as
/// entries would look empty.
const QUEUE_ENTRIES: u64 = 2;
/// `get_ahead` and `get_behind` of the queue's control page, each 32 bits, for a full queue: the
/// next entry to read is the one after the next to write.
const FULL: u64 = 1 | 1 << 32;
/// Index of the counts of dropped events, in words: behind the four pointers of the queue.
const DROPPED: usize = 2;

/// Layout up to 555; 560 and later expect `version` in the place of `status`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct InitEventTracker {
    queue_buffer: u64,
    /// Size of the queue; 0 for counters without a queue.
    queue_buffer_size: u64,
    control_buffer: u64,
    processor: Uuid,
    /// Sums over all processors. A CPU fault on memory that prefers a GPU is counted at both, but
    /// in this sum once.
    all_processors: u32,
    uvm_fd: u32,
    status: u32,
    requested_version: u32,
    granted_version: u32,
}

/// Mask of enabled counters or events; both requests have this layout.
#[repr(C)]
#[derive(Default)]
struct Enable<const REQUEST: libc::Ioctl> {
    flags: u64,
    status: u32,
}
type EnableEvents = Enable<58>;
type EnableCounters = Enable<60>;

const _: () = assert!(size_of::<InitEventTracker>() == 64 && size_of::<EnableCounters>() == 16);

// SAFETY: repr(C) with the driver's fields; the buffers it points to outlive the tracker (see
// Tracker::attach).
unsafe impl Request for InitEventTracker {
    const REQUEST: libc::Ioctl = 56;
    const NAME: &str = "UVM_TOOLS_INIT_EVENT_TRACKER";
}
// SAFETY: repr(C) with the driver's fields, and no pointers.
unsafe impl<const REQUEST: libc::Ioctl> Request for Enable<REQUEST> {
    const REQUEST: libc::Ioctl = REQUEST;
    const NAME: &str = "UVM_TOOLS_ENABLE_COUNTERS or _EVENT_QUEUE_ENABLE_EVENTS";
}
impl Status for InitEventTracker {
    fn status(&self) -> u32 {
        self.status
    }
}
impl<const REQUEST: libc::Ioctl> Status for Enable<REQUEST> {
    fn status(&self) -> u32 {
        self.status
    }
}

/// Counters of a VA space, attached while this or duplicates of its descriptors are open. They hold
/// the VA space too, even a dead one.
pub(crate) struct Tracker([File; 2]);

impl Tracker {
    /// Attaches counters in these pages, which must outlive the tracker.
    pub(crate) fn attach(va_space: &VaSpace, pages: &SharedPages) -> anyhow::Result<Self> {
        let flags = 1 << BYTES_HTOD | 1 << BYTES_DTOH | 1 << CPU_FAULTS | 1 << GPU_FAULTS;
        let counters =
            tracker(va_space, InitEventTracker { control_buffer: address(pages.counters()), ..Default::default() })?;
        call(&counters, EnableCounters { flags, status: 0 })?;
        if let Some(pointers) = pages.event_control().first() {
            pointers.store(FULL, Ordering::Release);
        }
        let queue = InitEventTracker {
            queue_buffer: address(pages.events()),
            queue_buffer_size: QUEUE_ENTRIES,
            control_buffer: address(pages.event_control()),
            ..Default::default()
        };
        let events = tracker(va_space, queue)?;
        call(&events, EnableEvents { flags: 1 << THRASHING_DETECTED | 1 << THROTTLING_START, status: 0 })?;
        Ok(Self([counters, events]))
    }

    /// Numbers of the descriptors in this process.
    pub(crate) fn fds(&self) -> [i32; 2] {
        self.0.each_ref().map(AsRawFd::as_raw_fd)
    }
}

fn address(words: &Words) -> u64 {
    std::ptr::from_ref(words).addr() as u64
}

fn tracker(va_space: &VaSpace, buffers: InitEventTracker) -> anyhow::Result<File> {
    let file = open("/dev/nvidia-uvm-tools")?;
    let uvm_fd = va_space.file().as_raw_fd().cast_unsigned();
    call(&file, InitEventTracker { all_processors: 1, uvm_fd, requested_version: 1, ..buffers })?;
    Ok(file)
}

impl ProcessCounters {
    /// Reads the driver's counts from its pages.
    pub(crate) fn read(pages: &SharedPages) -> Self {
        let word = |words: &Words, at: usize| words.get(at).map_or(0, |word| word.load(Ordering::Acquire));
        let counter = |at| word(pages.counters(), at);
        let events = |kind| word(pages.event_control(), DROPPED + kind);
        Self {
            fault_entries: counter(GPU_FAULTS),
            cpu_faults: counter(CPU_FAULTS),
            bytes_htod: counter(BYTES_HTOD),
            bytes_dtoh: counter(BYTES_DTOH),
            thrashing_pages: events(THRASHING_DETECTED),
            throttles: events(THROTTLING_START),
        }
    }
}

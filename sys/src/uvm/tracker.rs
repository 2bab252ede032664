//! Trackers: open files of /dev/nvidia-uvm-tools, by which the driver counts what happens to one VA
//! space, without probes and without the process's cooperation.
//!
//! A tracker counts from its attachment on, into pages of the process that attached it, until it is
//! closed. It keeps the VA space alive, as the [module](super)'s documentation explains.
//!
//! While a VA space has a tracker, each CPU fault of its process waits until the driver's thread
//! for tools has recorded all pending events, of all VA spaces with trackers of events.

use std::{
    fs::{File, OpenOptions},
    os::fd::BorrowedFd,
    ptr,
    sync::atomic::AtomicU64,
};

pub use super::request::TrackerLayout as Layout;
use super::{
    Status, Uuid, UvmError,
    queue::CONTROL_WORDS,
    records::RECORD_BYTES,
    request::{EnableCounters, EnableEvents, FlushEvents, InitEventTracker, Initialize, Request, call},
};

/// Device of trackers.
pub const DEVICE: &str = "/dev/nvidia-uvm-tools";
/// Device of VA spaces.
pub(crate) const DRIVER: &str = "/dev/nvidia-uvm";
/// Name of the request that fails in most cases.
pub(crate) const REQUEST_NAME: &str = InitEventTracker::NAME;
/// Numbers of all requests of a holder.
pub(crate) const NUMBERS: [u64; 5] = [
    InitEventTracker::REQUEST,
    EnableEvents::REQUEST,
    EnableCounters::REQUEST,
    FlushEvents::REQUEST,
    Initialize::REQUEST,
];
/// Flags of an empty VA space: no HMM, and not bound to the memory of the process that creates it
/// (`UVM_INIT_FLAGS_DISABLE_HMM | UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE`).
const EMPTY: u64 = 1 | 2;
/// Bytes of the counters in a page: more than the driver has.
const COUNTERS_BYTES: usize = 512;

// The driver's UvmCounterName: the index in the page, and the bit that enables it. Others are
// declared but never counted.
const BYTES_HTOD: usize = 0;
const BYTES_DTOH: usize = 1;
const CPU_FAULTS: usize = 2;
const GPU_FAULTS: usize = 9;

/// Opens a device of the driver.
///
/// # Errors
/// If it is missing, or may not be opened.
pub(crate) fn open(path: &'static str) -> Result<File, UvmError> {
    OpenOptions::new().read(true).write(true).open(path).map_err(|source| UvmError::Device { path, source })
}

/// Counts of the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// GPU faults, after the driver merged equal ones of a batch.
    pub fault_entries: u64,
    /// CPU faults on managed memory.
    pub cpu_faults: u64,
    /// Bytes copied from host to GPU.
    pub bytes_htod: u64,
    /// Bytes copied from GPU to host.
    pub bytes_dtoh: u64,
}

impl Counters {
    /// Counters in a page. Bytes are counted when a copy is scheduled, so they are exact once the
    /// process's GPU work has completed.
    #[must_use]
    pub fn of(page: &[AtomicU64]) -> Self {
        let read = |at: usize| page.get(at).map_or(0, |counter| counter.load(std::sync::atomic::Ordering::Acquire));
        Self {
            fault_entries: read(GPU_FAULTS),
            cpu_faults: read(CPU_FAULTS),
            bytes_htod: read(BYTES_HTOD),
            bytes_dtoh: read(BYTES_DTOH),
        }
    }
}

/// Attaches an unused tracker to a VA space: from now on its counters are added to a page of this
/// process. `processor`: the GPU whose faults and copies count, or the CPU for all processors.
///
/// # Errors
/// If the page is no whole page, or the driver fails the call: with [`Status::ILLEGAL_ACTION`] if the
/// file is no VA space, or not one yet.
///
/// # Safety
/// The driver writes to the page until the tracker is closed: the page must be used for nothing else
/// until then.
#[expect(unsafe_code, reason = "the driver writes to the page after the call")]
pub(crate) unsafe fn count(
    tracker: BorrowedFd<'_>,
    layout: Layout,
    page: &[AtomicU64],
    processor: Uuid,
    va_space: BorrowedFd<'_>,
) -> Result<(), UvmError> {
    let address = page_address(page, COUNTERS_BYTES)?;
    call(tracker, &mut InitEventTracker::counters(layout, address, processor, va_space))?;
    let flags = 1 << BYTES_HTOD | 1 << BYTES_DTOH | 1 << CPU_FAULTS | 1 << GPU_FAULTS;
    call(tracker, &mut EnableCounters { flags, status: 0 })
}

/// Attaches an unused tracker to a VA space: from now on records of these kinds, a mask of
/// [`EventKind::mask`](super::records::EventKind::mask), are written to a ring of this process, with
/// this control page.
///
/// # Errors
/// If these are no whole pages, or the driver fails the call.
///
/// # Safety
/// The driver writes to both until the tracker is closed: they must be used for nothing else until
/// then.
#[expect(unsafe_code, reason = "the driver writes to the memory after the call")]
pub(crate) unsafe fn watch(
    tracker: BorrowedFd<'_>,
    layout: Layout,
    control: &[AtomicU64],
    ring: &[AtomicU64],
    kinds: u64,
    va_space: BorrowedFd<'_>,
) -> Result<(), UvmError> {
    let control = page_address(control, CONTROL_WORDS * size_of::<u64>())?;
    let records = (size_of_val(ring) / RECORD_BYTES) as u64;
    let ring = page_address(ring, RECORD_BYTES)?;
    call(tracker, &mut InitEventTracker::queue(layout, (ring, records), control, va_space))?;
    call(tracker, &mut EnableEvents { kinds, status: 0 })
}

/// Makes an unused file of the driver an empty VA space, which has no GPUs and no memory. Its
/// trackers receive the replays of all GPUs.
///
/// # Errors
/// If the driver fails the call.
pub(crate) fn create_space(file: BorrowedFd<'_>) -> Result<(), UvmError> {
    call(file, &mut Initialize { flags: EMPTY, status: 0 })
}

/// Waits until the driver's thread for tools has written the records of all that has completed, of
/// all VA spaces.
///
/// # Errors
/// If the driver fails the call.
pub(crate) fn flush(va_space: BorrowedFd<'_>) -> Result<(), UvmError> {
    call(va_space, &mut FlushEvents::default())
}

/// Address of memory at the begin of a page: the driver writes from there, wherever in the page an
/// address is.
fn page_address(words: &[AtomicU64], bytes_min: usize) -> Result<u64, UvmError> {
    let address = ptr::from_ref(words).cast::<AtomicU64>();
    if size_of_val(words) < bytes_min || !(address.addr() as u64).is_multiple_of(procfs::page_size()) {
        return Err(UvmError::Refused { request: REQUEST_NAME, status: Status::INVALID_ADDRESS });
    }
    Ok(address.expose_provenance() as u64)
}

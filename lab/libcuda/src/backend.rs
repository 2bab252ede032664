//! What a GPU does with memory: one trait, and its implementations.

mod accesses;
pub(crate) mod lab;
mod observed;
mod pages;
mod place;
pub(crate) mod plain;
mod registered;
mod space;
mod update;
mod window;

use ptx::{Counts, Kernel, KernelError, Launch, MemoryFault};

pub(crate) use self::{
    accesses::{Accesses, Origin},
    place::{Place, Staged},
};
use self::{lab::Lab, plain::Plain};
use crate::settings::Settings;

/// Properties of a device, which do not change.
#[derive(Clone, Debug)]
pub(crate) struct Properties {
    /// UUID, as the driver of UVM knows it.
    pub(crate) uuid: [u8; 16],
    /// Name.
    pub(crate) name: String,
    /// Memory.
    pub(crate) total_bytes: u64,
    /// Compute capability, major and minor.
    pub(crate) capability: (i32, i32),
    /// PCI domain, bus and device.
    pub(crate) pci: (u32, u32, u32),
    /// Whether CPU and GPU access managed memory concurrently.
    pub(crate) concurrent: bool,
}

/// Kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Managed memory: migrates.
    Managed,
    /// Memory of a device.
    Device(usize),
    /// Memory of the host that all devices access.
    Host,
}

/// Processor at which managed memory may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// The CPU.
    Host,
    /// A device.
    Device(usize),
}

/// Range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// First address.
    pub(crate) address: u64,
    /// Length.
    pub(crate) bytes: u64,
}

impl Range {
    /// First address behind it.
    pub(crate) const fn end(self) -> u64 {
        self.address.saturating_add(self.bytes)
    }

    /// Range of whole blocks of a power of two that covers it.
    pub(crate) const fn rounded(self, block_bytes: u64) -> Self {
        let begin = self.address & !(block_bytes - 1);
        let end = self.end().saturating_add(block_bytes - 1) & !(block_bytes - 1);
        Self { address: begin, bytes: end - begin }
    }
}

/// Advice about managed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Duplicate on read, or no longer.
    ReadMostly(bool),
    /// Prefer to be at a processor, or at none.
    Preferred(Option<Location>),
    /// Keep mapped by a processor, or no longer.
    AccessedBy(Location, bool),
}

/// Failure of an operation of a backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BackendError {
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    #[error("no memory for {0} bytes")]
    OutOfMemory(u64),
    /// `CUDA_ERROR_OPERATING_SYSTEM`.
    #[error("{call}: {error}")]
    System {
        /// Call that failed.
        call: &'static str,
        /// Its error.
        error: String,
    },
}

/// Memory of devices, and what their engines do with it.
///
/// Managed, device and host memory lies in one window of addresses, which is memory of this
/// process. Operations that access memory go through the permissions of the device that performs
/// them.
pub(crate) trait Backend: Send + Sync {
    /// Devices, in order.
    fn devices(&self) -> &[Properties];

    /// Memory of a device that allocations can have.
    fn free_bytes(&self, device: usize) -> u64;

    /// Whether an address lies in the window of all allocations.
    fn in_window(&self, address: u64) -> bool;

    /// Allocates memory. The address is a multiple of a page.
    ///
    /// # Errors
    /// There is not so much.
    fn allocate(&self, kind: Kind, bytes: u64) -> Result<u64, BackendError>;

    /// Frees an allocation, which no operation uses any more.
    fn release(&self, kind: Kind, range: Range);

    /// Lets devices access ordinary memory.
    fn register(&self, memory: Place, bytes: u64);

    /// Ends what [`Backend::register`] began.
    fn unregister(&self, memory: Place);

    /// Runs a kernel on a device to its end. One at a time on each device. Returns its accesses,
    /// too, if the settings have them logged.
    ///
    /// # Errors
    /// The kernel is refused or fails.
    fn run(&self, device: usize, kernel: &Kernel, launch: Launch) -> Result<(Counts, Accesses), KernelError>;

    /// Copies by an engine of a device. Ranges of ordinary memory may overlap.
    ///
    /// # Errors
    /// An address of the window that is not allocated.
    fn copy(&self, device: usize, to: Place, from: Place, bytes: u64) -> Result<(), MemoryFault>;

    /// Writes `count` times these bytes by an engine of a device.
    ///
    /// # Errors
    /// An address of the window that is not allocated.
    fn fill(&self, device: usize, to: Place, unit: &[u8], count: u64) -> Result<(), MemoryFault>;

    /// Moves managed memory to a processor.
    ///
    /// # Errors
    /// A call of the system fails.
    fn migrate(&self, range: Range, to: Location) -> Result<(), BackendError>;

    /// Gives advice about managed memory.
    ///
    /// # Errors
    /// A call of the system fails.
    fn advise(&self, range: Range, advice: Advice) -> Result<(), BackendError>;
}

/// Backend of this machine: that of the lab where there is a software GPU, else plain memory.
///
/// # Errors
/// The system or the lab's driver refuses.
pub(crate) fn of_machine(settings: &Settings) -> Result<Box<dyn Backend>, BackendError> {
    Ok(if lab::is_here() { Box::new(Lab::new(settings)?) } else { Box::new(Plain::new(settings)?) })
}

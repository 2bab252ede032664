//! Calls of an application about its managed memory: cudaMemPrefetchAsync and cudaMemAdvise.
//! Parameter blocks as in the driver's `uvm_ioctl.h`.

use crate::{
    Error, Request, Uuid,
    uvm::{Status, VaSpace, call, uvm_requests},
};

/// UUID of host memory at the driver.
const CPU: Uuid = [0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73];
const ANY_NUMA_NODE: i32 = -1;

#[repr(C)]
#[derive(Default)]
struct Migrate {
    base: u64,
    length: u64,
    destination: Uuid,
    flags: u32,
    semaphore_address: u64,
    semaphore_payload: u32,
    cpu_numa_node: i32,
    user_space_start: u64,
    user_space_length: u64,
    status: u32,
}

/// Layout from 550 on; before, the status was in the place of the node.
#[repr(C)]
#[derive(Default)]
struct SetPreferredLocation {
    base: u64,
    length: u64,
    location: Uuid,
    cpu_numa_node: i32,
    status: u32,
}

macro_rules! range_requests {
    ($($name:ident { $($field:ident: $type:ty),* })*) => {$(
        #[repr(C)]
        #[derive(Default)]
        struct $name {
            base: u64,
            length: u64,
            $($field: $type,)*
            status: u32,
        }
    )*};
}
range_requests! {
    UnsetPreferredLocation {}
    EnableReadDuplication {}
    DisableReadDuplication {}
    SetAccessedBy { processor: Uuid }
    UnsetAccessedBy { processor: Uuid }
}

uvm_requests! {
    Migrate, 51, "UVM_MIGRATE", 80;
    UnsetPreferredLocation, 43, "UVM_UNSET_PREFERRED_LOCATION", 24;
    EnableReadDuplication, 44, "UVM_ENABLE_READ_DUPLICATION", 24;
    DisableReadDuplication, 45, "UVM_DISABLE_READ_DUPLICATION", 24;
    SetAccessedBy, 46, "UVM_SET_ACCESSED_BY", 40;
    UnsetAccessedBy, 47, "UVM_UNSET_ACCESSED_BY", 40;
}

const _: () = assert!(size_of::<SetPreferredLocation>() == 40);
// SAFETY: repr(C) with the fields of the driver's struct of this name, and no pointers.
unsafe impl Request for SetPreferredLocation {
    const REQUEST: libc::Ioctl = 42;
    const NAME: &str = "UVM_SET_PREFERRED_LOCATION";
}
impl Status for SetPreferredLocation {
    fn status(&self) -> u32 {
        match self.cpu_numa_node {
            ANY_NUMA_NODE => self.status,
            // A driver before 550 wrote its status there.
            status => status.cast_unsigned(),
        }
    }
}

/// Processor's UUID at the driver; `None` is the CPU.
fn uuid(processor: Option<&Uuid>) -> Uuid {
    *processor.unwrap_or(&CPU)
}

/// Calls about whole pages of managed memory, by address and length; a processor is a GPU, or
/// `None`, the CPU.
impl VaSpace {
    /// Migrates pages; returns when they have arrived.
    ///
    /// # Errors
    /// Those of the driver, as of all calls.
    pub fn migrate(&self, base: u64, length: u64, to: Option<&Uuid>) -> Result<(), Error> {
        let destination = uuid(to);
        call(self.file(), Migrate { base, length, destination, cpu_numa_node: ANY_NUMA_NODE, ..Migrate::default() })
    }

    /// Sets the preferred location of pages.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn set_preferred_location(&self, base: u64, length: u64, to: Option<&Uuid>) -> Result<(), Error> {
        let location = uuid(to);
        call(self.file(), SetPreferredLocation { base, length, location, cpu_numa_node: ANY_NUMA_NODE, status: 0 })
    }

    /// Removes the preferred location of pages.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn unset_preferred_location(&self, base: u64, length: u64) -> Result<(), Error> {
        call(self.file(), UnsetPreferredLocation { base, length, status: 0 })
    }

    /// Has pages mapped for a processor.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn set_accessed_by(&self, base: u64, length: u64, by: Option<&Uuid>) -> Result<(), Error> {
        call(self.file(), SetAccessedBy { base, length, processor: uuid(by), status: 0 })
    }

    /// Has pages no longer mapped for a processor.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn unset_accessed_by(&self, base: u64, length: u64, by: Option<&Uuid>) -> Result<(), Error> {
        call(self.file(), UnsetAccessedBy { base, length, processor: uuid(by), status: 0 })
    }

    /// Has pages duplicated where they are read.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn enable_read_duplication(&self, base: u64, length: u64) -> Result<(), Error> {
        call(self.file(), EnableReadDuplication { base, length, status: 0 })
    }

    /// Has pages no longer duplicated.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn disable_read_duplication(&self, base: u64, length: u64) -> Result<(), Error> {
        call(self.file(), DisableReadDuplication { base, length, status: 0 })
    }
}

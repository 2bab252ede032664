//! /dev/nvidia-uvm: VA spaces with GPUs, and managed memory. Parameter blocks as in the driver's
//! `uvm_ioctl.h`, which are the same in all versions from 515 to 595.

use std::{fs::File, io, os::fd::AsRawFd};

use crate::{Error, Request, Uuid, open, request, swgpu, words::Words};

const NV_OK: u32 = 0;
const NV_WARN_NOTHING_TO_DO: u32 = 0x0001_0006;

#[repr(C)]
#[derive(Default)]
struct Initialize {
    flags: u64,
    status: u32,
}

#[repr(C)]
#[derive(Default)]
struct MmInitialize {
    uvm_fd: i32,
    status: u32,
}

#[repr(C)]
#[derive(Default)]
struct RegisterGpu {
    uuid: Uuid,
    numa_enabled: u8,
    numa_node: i32,
    rm_control_fd: i32,
    client: u32,
    partition: u32,
    status: u32,
}

#[repr(C)]
#[derive(Default)]
struct RegisterGpuVaSpace {
    uuid: Uuid,
    rm_control_fd: i32,
    client: u32,
    va_space: u32,
    status: u32,
}

#[repr(C)]
#[derive(Default)]
struct RegisterChannel {
    uuid: Uuid,
    rm_control_fd: i32,
    client: u32,
    channel: u32,
    /// Address of the mapped resources of the channel; the software GPU's channels have none.
    base: u64,
    length: u64,
    status: u32,
}

#[repr(C)]
#[derive(Default)]
struct CreateRangeGroup {
    id: u64,
    status: u32,
}

/// Implements requests. The numbers are not encoded with _IOC; sizes are checked against the
/// driver's below.
macro_rules! uvm_requests {
    ($($params:ty, $number:literal, $name:literal, $size:literal;)*) => {$(
        const _: () = assert!(size_of::<$params>() == $size);
        // SAFETY: repr(C) with the fields of the driver's struct of this name, and no pointers.
        unsafe impl Request for $params {
            const REQUEST: libc::Ioctl = $number;
            const NAME: &str = $name;
        }
        impl Status for $params {
            fn status(&self) -> u32 {
                self.status
            }
        }
    )*};
}
pub(crate) use uvm_requests;
uvm_requests! {
    Initialize, 0x3000_0001, "UVM_INITIALIZE", 16;
    MmInitialize, 75, "UVM_MM_INITIALIZE", 8;
    CreateRangeGroup, 23, "UVM_CREATE_RANGE_GROUP", 16;
    RegisterGpu, 37, "UVM_REGISTER_GPU", 40;
    RegisterGpuVaSpace, 25, "UVM_REGISTER_GPU_VASPACE", 32;
    RegisterChannel, 27, "UVM_REGISTER_CHANNEL", 56;
}

/// Parameter block that contains the driver's result: the ioctl itself succeeds whenever the block
/// could be copied.
pub trait Status {
    /// `NV_STATUS`.
    fn status(&self) -> u32;
}

/// Calls the driver.
///
/// # Errors
/// Those of the system and of the driver.
pub fn call<R: Request + Status>(file: &File, parameters: R) -> Result<(), Error> {
    call_with_result(file, parameters).map(drop)
}

/// Calls the driver, and returns the block with its results.
fn call_with_result<R: Request + Status>(file: &File, mut parameters: R) -> Result<R, Error> {
    request(file, &mut parameters)?;
    match parameters.status() {
        NV_OK => Ok(parameters),
        status => Err(Error::Driver { request: R::NAME, status }),
    }
}

/// VA space of this process with registered GPUs, which it holds in use.
pub struct VaSpace {
    file: File,
    /// Holds the process's address space at the driver; without it no GPU can access memory.
    mm: Option<File>,
}

/// Flag of a VA space without a process's address space, as of MPS
/// (`UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE`).
const MULTI_PROCESS_SHARING_MODE: u64 = 2;

impl VaSpace {
    /// VA space with these GPUs.
    ///
    /// # Errors
    /// Those of the driver, as of all calls.
    pub fn new<'a>(gpus: impl IntoIterator<Item = &'a Uuid>) -> Result<Self, Error> {
        Self::with_flags(gpus, 0)
    }

    /// VA space without a process's address space, as of MPS.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn shared<'a>(gpus: impl IntoIterator<Item = &'a Uuid>) -> Result<Self, Error> {
        Self::with_flags(gpus, MULTI_PROCESS_SHARING_MODE)
    }

    fn with_flags<'a>(gpus: impl IntoIterator<Item = &'a Uuid>, flags: u64) -> Result<Self, Error> {
        let file = open("/dev/nvidia-uvm")?;
        call(&file, Initialize { flags, ..Initialize::default() })?;
        for uuid in gpus {
            call(&file, RegisterGpu { uuid: *uuid, rm_control_fd: -1, ..RegisterGpu::default() })?;
        }
        Ok(Self { file, mm: None })
    }

    /// Its open file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Creates an empty range group, and returns its id.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn create_range_group(&self) -> Result<u64, Error> {
        Ok(call_with_result(&self.file, CreateRangeGroup::default())?.id)
    }

    /// Duplicates of its descriptor.
    ///
    /// # Errors
    /// Those of the system.
    pub fn duplicates(&self, count: usize) -> io::Result<Vec<File>> {
        (0..count).map(|_| self.file.try_clone()).collect()
    }

    /// Detaches the process's address space. Host memory that its pages need from now on is charged
    /// to the process that causes the allocation.
    pub fn detach_address_space(&mut self) {
        self.mm = None;
    }

    /// Attaches the process's address space, so that GPUs can access its managed memory.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn attach_address_space(&mut self) -> Result<(), Error> {
        // On a separate descriptor: on the first one the driver assumes it and rejects the next
        // call.
        let mm = open("/dev/nvidia-uvm")?;
        let mut parameters = MmInitialize { uvm_fd: self.file.as_raw_fd(), status: NV_OK };
        request(&mm, &mut parameters)?;
        if !matches!(parameters.status, NV_OK | NV_WARN_NOTHING_TO_DO) {
            return Err(Error::Driver { request: MmInitialize::NAME, status: parameters.status });
        }
        self.mm = Some(mm);
        Ok(())
    }

    /// Registers a GPU's address space and channel with the VA space.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn attach(&self, gpu: &Uuid, space: &swgpu::Space) -> Result<(), Error> {
        let (uuid, rm_control_fd) = (*gpu, space.rm_control_fd());
        let swgpu::SpaceHandles { client, va_space, channel } = space.handles();
        call(&self.file, RegisterGpuVaSpace { uuid, rm_control_fd, client, va_space, status: NV_OK })?;
        call(&self.file, RegisterChannel { uuid, rm_control_fd, client, channel, ..RegisterChannel::default() })
    }
}

impl Words {
    /// Maps `bytes` of managed memory at `address`: the driver requires the file's offset to equal
    /// the address.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn managed(va_space: &VaSpace, address: u64, bytes: u64) -> Result<Self, Error> {
        Self::map(&va_space.file, address, address, bytes)
    }
}

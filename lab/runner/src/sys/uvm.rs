//! /dev/nvidia-uvm: VA spaces with GPUs, and managed memory. Parameter blocks as in the driver's
//! `uvm_ioctl.h`, which are the same in all versions from 515 to 595.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, bail};

use super::{Request, Uuid, ioctl, open, swgpu};

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
pub(super) use uvm_requests;
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
pub(super) trait Status {
    fn status(&self) -> u32;
}

pub(super) fn call<R: Request + Status>(file: &File, request: R) -> anyhow::Result<()> {
    call_with_result(file, request).map(drop)
}

/// Calls the driver, and returns the block with its results.
fn call_with_result<R: Request + Status>(file: &File, mut request: R) -> anyhow::Result<R> {
    ioctl(file, &mut request).with_context(|| format!("{} failed", R::NAME))?;
    match request.status() {
        NV_OK => Ok(request),
        status => bail!("{} failed: the driver says {status:#x} (nvstatuscodes.h)", R::NAME),
    }
}

/// VA space of this process with registered GPUs, which it holds in use.
pub(crate) struct VaSpace {
    pub(super) file: File,
    /// Holds the process's address space at the driver; without it no GPU can access memory.
    mm: Option<File>,
}

/// Flag of a VA space without a process's address space, as of MPS
/// (`UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE`).
const MULTI_PROCESS_SHARING_MODE: u64 = 2;

impl VaSpace {
    pub(crate) fn new<'a>(gpus: impl IntoIterator<Item = &'a Uuid>) -> anyhow::Result<Self> {
        Self::with_flags(gpus, 0)
    }

    /// VA space without a process's address space, as of MPS.
    pub(crate) fn shared<'a>(gpus: impl IntoIterator<Item = &'a Uuid>) -> anyhow::Result<Self> {
        Self::with_flags(gpus, MULTI_PROCESS_SHARING_MODE)
    }

    fn with_flags<'a>(gpus: impl IntoIterator<Item = &'a Uuid>, flags: u64) -> anyhow::Result<Self> {
        let file = open("/dev/nvidia-uvm")?;
        call(&file, Initialize { flags, ..Initialize::default() })?;
        for uuid in gpus {
            call(&file, RegisterGpu { uuid: *uuid, rm_control_fd: -1, ..RegisterGpu::default() })?;
        }
        Ok(Self { file, mm: None })
    }

    /// Creates an empty range group, and returns its id.
    pub(crate) fn create_range_group(&self) -> anyhow::Result<u64> {
        Ok(call_with_result(&self.file, CreateRangeGroup::default())?.id)
    }

    /// Duplicates of its descriptor.
    pub(crate) fn duplicates(&self, count: usize) -> anyhow::Result<Vec<File>> {
        (0..count).map(|_| self.file.try_clone().context("cannot duplicate a descriptor")).collect()
    }

    /// Detaches the process's address space. Host memory that its pages need from now on is charged
    /// to the process that causes the allocation.
    pub(crate) fn detach_address_space(&mut self) {
        self.mm = None;
    }

    /// Attaches the process's address space, so that GPUs can access its managed memory.
    pub(crate) fn attach_address_space(&mut self) -> anyhow::Result<()> {
        // On a separate descriptor: on the first one the driver assumes it and rejects the next
        // call.
        let mm = open("/dev/nvidia-uvm")?;
        let mut request = MmInitialize { uvm_fd: self.file.as_raw_fd(), status: NV_OK };
        ioctl(&mm, &mut request).context("UVM_MM_INITIALIZE failed")?;
        if !matches!(request.status, NV_OK | NV_WARN_NOTHING_TO_DO) {
            bail!("UVM_MM_INITIALIZE failed: the driver says {:#x}", request.status);
        }
        self.mm = Some(mm);
        Ok(())
    }

    /// Registers a GPU's address space and channel with the VA space.
    pub(crate) fn attach(&self, gpu: &Uuid, space: &swgpu::Space) -> anyhow::Result<()> {
        let (uuid, rm_control_fd) = (*gpu, space.rm_control_fd());
        let swgpu::SpaceHandles { client, va_space, channel } = space.handles();
        call(&self.file, RegisterGpuVaSpace { uuid, rm_control_fd, client, va_space, status: NV_OK })?;
        call(&self.file, RegisterChannel { uuid, rm_control_fd, client, channel, ..RegisterChannel::default() })
    }
}

/// Managed memory, as 8-byte words that other processors may change at any time.
pub(crate) struct Managed {
    base: NonNull<u64>,
    words: usize,
}

impl Managed {
    /// Maps `bytes` of managed memory at `address`, which must be free and page-aligned: the driver
    /// requires the file's offset to equal the address.
    pub(crate) fn map(va_space: &VaSpace, address: u64, bytes: u64) -> anyhow::Result<Self> {
        let about = || format!("cannot map {bytes} bytes of managed memory at {address:#x}");
        let length = usize::try_from(bytes).with_context(about)?;
        let fixed_address = usize::try_from(address).with_context(about)?;
        let offset = libc::off_t::try_from(address).with_context(about)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let fd = va_space.file.as_raw_fd();
        // SAFETY: with MAP_FIXED_NOREPLACE a new mapping never replaces one, so no memory in use
        // changes.
        let base = unsafe {
            libc::mmap(std::ptr::without_provenance_mut(fixed_address), length, protection, flags, fd, offset)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).with_context(about);
        }
        let base = NonNull::new(base.cast::<u64>()).with_context(about)?;
        Ok(Self { base, words: length / size_of::<u64>() })
    }

    /// Unmaps the memory.
    pub(crate) fn unmap(self) -> anyhow::Result<()> {
        // SAFETY: this value alone owns the mapping, and nothing reads or writes through it after
        // this call.
        let result = unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * size_of::<u64>()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot unmap managed memory") }
    }

    /// Word of the memory. Panics beyond the end. GPUs change it while their kernels run, and the
    /// driver migrates it; both in whole words.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.words, "word {at} of {} words", self.words);
        // SAFETY: `at` is within the mapping, which lives as long as `self`, as the reference does.
        let word = unsafe { self.base.add(at) };
        // SAFETY: aligned, mapped, and accessed by this process through atomics only.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }
    }

    pub(crate) fn read(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    pub(crate) fn write(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, at: usize, addend: u64) -> u64 {
        self.word(at).fetch_add(addend, Ordering::Relaxed)
    }
}

// SAFETY: the memory is accessed through atomics only.
unsafe impl Sync for Managed {}

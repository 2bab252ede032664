//! /dev/swgpu: requests that a program would make of the CUDA driver. Layouts as in
//! `lab/swgpu/swgpu_ioctl.h`.

use std::{
    fs::File,
    os::fd::{AsRawFd, RawFd},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::{Error, Kind, Request, Uuid, ioctl, open, request};

/// `_IOWR('G', number, T)`, for [`crate::swgpu_requests`].
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a parameter block is far smaller than the 14 bits of its size")]
pub const fn iowr<T>(number: u32) -> libc::Ioctl {
    (3 << 30 | (size_of::<T>() as u32) << 16 | (b'G' as u32) << 8 | number) as libc::Ioctl
}

/// One 8-byte access of the GPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuAccess {
    /// Address.
    pub va: u64,
    /// Input of a write, output of a read.
    pub value: u64,
}

/// Kernel: execution of a list of accesses by a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Number of the GPU in the machine.
    pub gpu: u32,
    /// Kind of all its accesses.
    pub kind: Kind,
    /// Accesses that wait for a fault at a time.
    pub window: u32,
    /// Thousandths of a byte that an access moves over the bus where the page is not in GPU memory.
    pub access_millibytes: u64,
}

#[repr(C)]
#[derive(Default)]
struct Info {
    gpu: u32,
    gpu_count: u32,
    memory_bytes: u64,
    uuid: Uuid,
    arch: [u8; 16],
    peer_mask: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawSpace {
    gpu: u32,
    client: u32,
    va_space: u32,
    channel: u32,
}

#[repr(C)]
pub(super) struct Run {
    pub(super) channel: u32,
    pub(super) kind: u32,
    pub(super) window: u32,
    pub(super) count: u32,
    pub(super) accesses: u64,
    pub(super) access_millibytes: u64,
    pub(super) done: u32,
    pub(super) flags: u32,
}

#[repr(C)]
struct ChannelCounters {
    channel: u32,
    reserved: u32,
    access: AccessCounters,
}

#[repr(C)]
struct Alloc {
    gpu: u32,
    handle: u32,
    bytes: u64,
}

#[repr(C)]
struct Free {
    handle: u32,
    reserved: u32,
}

/// Accesses of the GPU, and the bytes that they moved over the bus. Fields as in `swgpu_ioctl.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields as in the header")]
pub struct AccessCounters {
    pub accesses: u64,
    pub remote_accesses: u64,
    pub remote_htod_millibytes: u64,
    pub remote_dtoh_millibytes: u64,
    pub remote_from_peer_millibytes: u64,
    pub remote_to_peer_millibytes: u64,
}

impl AccessCounters {
    /// Counts since an earlier reading.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            accesses: self.accesses - before.accesses,
            remote_accesses: self.remote_accesses - before.remote_accesses,
            remote_htod_millibytes: self.remote_htod_millibytes - before.remote_htod_millibytes,
            remote_dtoh_millibytes: self.remote_dtoh_millibytes - before.remote_dtoh_millibytes,
            remote_from_peer_millibytes: self.remote_from_peer_millibytes - before.remote_from_peer_millibytes,
            remote_to_peer_millibytes: self.remote_to_peer_millibytes - before.remote_to_peer_millibytes,
        }
    }
}

/// Counters of the hardware since its module was loaded. Fields as in `swgpu_ioctl.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "fields as in the header")]
pub struct HardwareCounters {
    #[serde(skip)]
    pub gpu: u32,
    #[serde(skip)]
    pub reserved: u32,
    pub fault_packets: u64,
    pub fault_overflows: u64,
    pub replays: u64,
    pub cancels: u64,
    pub copied_htod_bytes: u64,
    pub copied_dtoh_bytes: u64,
    pub copied_dtod_bytes: u64,
    pub copied_from_peer_bytes: u64,
    pub copied_to_peer_bytes: u64,
    pub copied_other_bytes: u64,
    #[serde(flatten)]
    pub access: AccessCounters,
    pub unknown_methods: u64,
    pub errors: u64,
    #[serde(skip)]
    pub free_bytes: u64,
}

impl HardwareCounters {
    /// Counts since an earlier reading. Counters that must be 0 since the module was loaded stay
    /// absolute.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let &Self { gpu, reserved, unknown_methods, errors, free_bytes, .. } = self;
        Self {
            gpu,
            reserved,
            fault_packets: self.fault_packets - before.fault_packets,
            fault_overflows: self.fault_overflows - before.fault_overflows,
            replays: self.replays - before.replays,
            cancels: self.cancels - before.cancels,
            copied_htod_bytes: self.copied_htod_bytes - before.copied_htod_bytes,
            copied_dtoh_bytes: self.copied_dtoh_bytes - before.copied_dtoh_bytes,
            copied_dtod_bytes: self.copied_dtod_bytes - before.copied_dtod_bytes,
            copied_from_peer_bytes: self.copied_from_peer_bytes - before.copied_from_peer_bytes,
            copied_to_peer_bytes: self.copied_to_peer_bytes - before.copied_to_peer_bytes,
            copied_other_bytes: self.copied_other_bytes - before.copied_other_bytes,
            access: self.access.since(&before.access),
            unknown_methods,
            errors,
            free_bytes,
        }
    }
}

/// Implements [`Request`] for parameter blocks of `swgpu_ioctl.h`, whose sizes are checked.
#[macro_export]
macro_rules! swgpu_requests {
    ($($params:ty, $number:literal, $name:literal, $size:literal;)*) => {$(
        const _: () = assert!(size_of::<$params>() == $size);
        // SAFETY: repr(C) with the fields of the header's struct; a pointer in it is to memory that outlives the call.
        unsafe impl $crate::Request for $params {
            const REQUEST: libc::Ioctl = $crate::swgpu::iowr::<$params>($number);
            const NAME: &str = $name;
        }
    )*};
}
swgpu_requests! {
    Info, 1, "SWGPU_IOC_INFO", 56;
    RawSpace, 2, "SWGPU_IOC_SPACE", 16;
    Run, 3, "SWGPU_IOC_RUN", 40;
    HardwareCounters, 4, "SWGPU_IOC_COUNTERS", 160;
    ChannelCounters, 5, "SWGPU_IOC_CHANNEL_COUNTERS", 56;
    Alloc, 6, "SWGPU_IOC_ALLOC", 16;
    Free, 7, "SWGPU_IOC_FREE", 8;
}

/// Number of a kind: `SWGPU_READ` and so on.
#[must_use]
pub const fn kind_number(kind: Kind) -> u32 {
    match kind {
        Kind::Read => 0,
        Kind::Write => 1,
        Kind::Atomic => 2,
    }
}

/// Maximum of accesses per request. A longer kernel is split, which only drains the window between
/// two parts.
pub const MAX_ACCESSES: usize = 1 << 16;

/// GPU of the machine.
pub struct Gpu {
    file: File,
    number: u32,
    /// UUID.
    pub uuid: Uuid,
    /// Memory.
    pub memory_bytes: u64,
    /// Modelled architecture.
    pub arch: String,
    /// Number of GPUs of the machine.
    pub count: u32,
}

impl Gpu {
    /// Opens a GPU by its number, from 0.
    ///
    /// # Errors
    /// There is no such GPU.
    pub fn open(number: u32) -> Result<Self, Error> {
        let file = open("/dev/swgpu")?;
        let mut info = Info { gpu: number, ..Info::default() };
        request(&file, &mut info)?;
        let Info { gpu: _, gpu_count: count, memory_bytes, uuid, arch, peer_mask: _, reserved: _ } = info;
        let arch: Vec<u8> = arch.into_iter().take_while(|byte| *byte != 0).collect();
        let arch = String::from_utf8_lossy(&arch).into_owned();
        Ok(Self { file, number, uuid, memory_bytes, arch, count })
    }

    /// Number in the machine.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Open file of /dev/swgpu.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Counters of the hardware.
    ///
    /// # Errors
    /// Those of the request, as of all calls.
    pub fn counters(&self) -> Result<HardwareCounters, Error> {
        let mut counters = HardwareCounters { gpu: self.number, ..HardwareCounters::default() };
        request(&self.file, &mut counters)?;
        Ok(counters)
    }

    /// Creates an address space and a channel for this process.
    ///
    /// # Errors
    /// Those of the request.
    pub fn space(&self) -> Result<Space, Error> {
        let mut space = RawSpace { gpu: self.number, ..RawSpace::default() };
        request(&self.file, &mut space)?;
        let file = self.file.try_clone().map_err(|source| Error::Request { request: "dup", source })?;
        Ok(Space { file, handles: space, busy: Mutex::new(()) })
    }

    /// Allocates memory that is not managed; it is freed when the descriptor is closed, at the
    /// latest.
    ///
    /// # Errors
    /// There is not so much memory: `ENOMEM`.
    pub fn alloc(&self, bytes: u64) -> Result<DeviceMemory, Error> {
        let mut alloc = Alloc { gpu: self.number, handle: 0, bytes };
        request(&self.file, &mut alloc)?;
        Ok(DeviceMemory { handle: alloc.handle })
    }

    /// Frees memory.
    ///
    /// # Errors
    /// Those of the request.
    pub fn free(&self, memory: &DeviceMemory) -> Result<(), Error> {
        request(&self.file, &mut Free { handle: memory.handle, reserved: 0 })
    }
}

/// GPU memory that is not managed.
pub struct DeviceMemory {
    handle: u32,
}

/// GPU address space with one channel, until it is dropped.
pub struct Space {
    file: File,
    handles: RawSpace,
    /// Lock of the channel, which runs one kernel at a time, as a stream does.
    busy: Mutex<()>,
}

/// Handles of a space, for the registration at nvidia-uvm.
pub(super) struct SpaceHandles {
    pub(super) client: u32,
    pub(super) va_space: u32,
    pub(super) channel: u32,
}

impl Space {
    /// Open file of /dev/swgpu.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn rm_control_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(super) fn handles(&self) -> SpaceHandles {
        let RawSpace { gpu: _, client, va_space, channel } = self.handles;
        SpaceHandles { client, va_space, channel }
    }

    /// Accesses of the channel up to now, with the bytes that they moved.
    ///
    /// # Errors
    /// Those of the request.
    pub fn access_counters(&self) -> Result<AccessCounters, Error> {
        let mut counters =
            ChannelCounters { channel: self.handles.channel, reserved: 0, access: AccessCounters::default() };
        request(&self.file, &mut counters)?;
        Ok(counters.access)
    }

    /// Runs a kernel: the accesses in order, at most `window` of them waiting on a fault. Returns
    /// when all are done.
    ///
    /// # Errors
    /// The driver cancelled an access, or the request failed.
    pub fn run(&self, kernel: &Kernel, accesses: &mut [GpuAccess]) -> Result<(), Error> {
        let _one_at_a_time = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let &Kernel { gpu: _, kind, window, access_millibytes } = kernel;
        let kind = kind_number(kind);
        for part in accesses.chunks_mut(MAX_ACCESSES) {
            let count = u32::try_from(part.len()).unwrap_or(u32::MAX); // of MAX_ACCESSES at most
            let accesses = part.as_mut_ptr().expose_provenance() as u64;
            let channel = self.handles.channel;
            let mut run = Run { channel, kind, window, count, accesses, access_millibytes, done: 0, flags: 0 };
            match ioctl(&self.file, &mut run) {
                Ok(()) if run.done == count => {}
                Ok(()) => return Err(Error::Incomplete { done: run.done, count }),
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                    return Err(Error::Cancelled { done: run.done, count });
                }
                Err(source) => return Err(Error::Request { request: Run::NAME, source }),
            }
        }
        Ok(())
    }
}

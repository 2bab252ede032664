//! /dev/swgpu: requests that a program would make of the CUDA driver. Layouts as in
//! `lab/swgpu/swgpu_ioctl.h`.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, RawFd},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::{Request, Uuid, ioctl, open};
use crate::scenario::steps::access::Kind;

/// `_IOWR('G', number, T)`.
#[expect(clippy::cast_possible_truncation, reason = "a parameter block is far smaller than the 14 bits of its size")]
pub(super) const fn iowr<T>(number: u32) -> libc::Ioctl {
    (3 << 30 | (size_of::<T>() as u32) << 16 | (b'G' as u32) << 8 | number) as libc::Ioctl
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuAccess {
    pub(crate) va: u64,
    /// Input of a write, output of a read.
    pub(crate) value: u64,
}

/// Kernel: execution of a list of accesses by a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// Number of the GPU in the machine.
    pub(crate) gpu: u32,
    pub(crate) kind: Kind,
    pub(crate) window: u32,
    pub(crate) access_millibytes: u64,
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
pub(crate) struct AccessCounters {
    pub(crate) accesses: u64,
    pub(crate) remote_accesses: u64,
    pub(crate) remote_htod_millibytes: u64,
    pub(crate) remote_dtoh_millibytes: u64,
    pub(crate) remote_from_peer_millibytes: u64,
    pub(crate) remote_to_peer_millibytes: u64,
}

impl AccessCounters {
    fn since(&self, before: &Self) -> Self {
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
pub(crate) struct HardwareCounters {
    #[serde(skip)]
    pub(crate) gpu: u32,
    #[serde(skip)]
    pub(crate) reserved: u32,
    pub(crate) fault_packets: u64,
    pub(crate) fault_overflows: u64,
    pub(crate) replays: u64,
    pub(crate) cancels: u64,
    pub(crate) copied_htod_bytes: u64,
    pub(crate) copied_dtoh_bytes: u64,
    pub(crate) copied_dtod_bytes: u64,
    pub(crate) copied_from_peer_bytes: u64,
    pub(crate) copied_to_peer_bytes: u64,
    pub(crate) copied_other_bytes: u64,
    #[serde(flatten)]
    pub(crate) access: AccessCounters,
    pub(crate) unknown_methods: u64,
    pub(crate) errors: u64,
    #[serde(skip)]
    pub(crate) free_bytes: u64,
}

impl HardwareCounters {
    /// Counts since an earlier reading. Counters that must be 0 since the module was loaded stay
    /// absolute.
    pub(crate) fn since(&self, before: &Self) -> Self {
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

macro_rules! swgpu_requests {
    ($($params:ty, $number:literal, $name:literal, $size:literal;)*) => {$(
        const _: () = assert!(size_of::<$params>() == $size);
        // SAFETY: repr(C) with the fields of the header's struct; a pointer in it is to memory that outlives the call.
        unsafe impl Request for $params {
            const REQUEST: libc::Ioctl = crate::sys::swgpu::iowr::<$params>($number);
            const NAME: &str = $name;
        }
    )*};
}
pub(super) use swgpu_requests;
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
pub(super) const fn kind_number(kind: Kind) -> u32 {
    match kind {
        Kind::Read => 0,
        Kind::Write => 1,
        Kind::Atomic => 2,
    }
}

/// Maximum of accesses per request. A longer kernel is split, which only drains the window between
/// two parts.
pub(crate) const MAX_ACCESSES: usize = 1 << 16;

/// GPU of the machine.
pub(crate) struct Gpu {
    file: File,
    number: u32,
    pub(crate) uuid: Uuid,
    pub(crate) memory_bytes: u64,
    /// Modelled architecture.
    pub(crate) arch: String,
    /// Number of GPUs of the machine.
    pub(crate) count: u32,
}

impl Gpu {
    /// Opens a GPU by its number, from 0.
    pub(crate) fn open(number: u32) -> anyhow::Result<Self> {
        let file = open("/dev/swgpu")?;
        let mut info = Info { gpu: number, ..Info::default() };
        ioctl(&file, &mut info).with_context(|| format!("{} of GPU {number} failed", Info::NAME))?;
        let Info { gpu: _, gpu_count: count, memory_bytes, uuid, arch, peer_mask: _, reserved: _ } = info;
        let arch: Vec<u8> = arch.into_iter().take_while(|byte| *byte != 0).collect();
        let arch = String::from_utf8_lossy(&arch).into_owned();
        Ok(Self { file, number, uuid, memory_bytes, arch, count })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn counters(&self) -> anyhow::Result<HardwareCounters> {
        let mut counters = HardwareCounters { gpu: self.number, ..HardwareCounters::default() };
        ioctl(&self.file, &mut counters).with_context(|| format!("{} failed", HardwareCounters::NAME))?;
        Ok(counters)
    }

    /// Creates an address space and a channel for this process.
    pub(crate) fn space(&self) -> anyhow::Result<Space> {
        let mut space = RawSpace { gpu: self.number, ..RawSpace::default() };
        ioctl(&self.file, &mut space).with_context(|| format!("{} failed", RawSpace::NAME))?;
        let file = self.file.try_clone().context("cannot duplicate a descriptor")?;
        Ok(Space { file, handles: space, busy: Mutex::new(()) })
    }

    /// Allocates memory that is not managed; it is freed when the descriptor is closed, at the
    /// latest.
    pub(crate) fn alloc(&self, bytes: u64) -> anyhow::Result<DeviceMemory> {
        let mut alloc = Alloc { gpu: self.number, handle: 0, bytes };
        ioctl(&self.file, &mut alloc).with_context(|| format!("{} of {bytes} bytes failed", Alloc::NAME))?;
        Ok(DeviceMemory { handle: alloc.handle })
    }

    pub(crate) fn free(&self, memory: &DeviceMemory) -> anyhow::Result<()> {
        let mut free = Free { handle: memory.handle, reserved: 0 };
        ioctl(&self.file, &mut free).with_context(|| format!("{} failed", Free::NAME))
    }
}

/// GPU memory that is not managed.
pub(crate) struct DeviceMemory {
    handle: u32,
}

/// GPU address space with one channel, until it is dropped.
pub(crate) struct Space {
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
    pub(super) fn file(&self) -> &File {
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
    pub(crate) fn access_counters(&self) -> anyhow::Result<AccessCounters> {
        let mut counters =
            ChannelCounters { channel: self.handles.channel, reserved: 0, access: AccessCounters::default() };
        ioctl(&self.file, &mut counters).with_context(|| format!("{} failed", ChannelCounters::NAME))?;
        Ok(counters.access)
    }

    /// Runs a kernel: the accesses in order, at most `window` of them waiting on a fault. Returns
    /// when all are done.
    pub(crate) fn run(&self, kernel: &Kernel, accesses: &mut [GpuAccess]) -> anyhow::Result<()> {
        let _one_at_a_time = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let &Kernel { gpu: _, kind, window, access_millibytes } = kernel;
        let kind = kind_number(kind);
        for part in accesses.chunks_mut(MAX_ACCESSES) {
            let count = u32::try_from(part.len()).context("too many accesses")?;
            let accesses = part.as_mut_ptr().expose_provenance() as u64;
            let channel = self.handles.channel;
            let mut run = Run { channel, kind, window, count, accesses, access_millibytes, done: 0, flags: 0 };
            match ioctl(&self.file, &mut run) {
                Ok(()) if run.done == count => {}
                Ok(()) => bail!("the GPU did {} of {count} accesses and reported no error", run.done),
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                    bail!("the driver cancelled an access as fatal, after {} of {count} were done", run.done)
                }
                Err(error) => return Err(io::Error::other(error)).with_context(|| format!("{} failed", Run::NAME)),
            }
        }
        Ok(())
    }
}

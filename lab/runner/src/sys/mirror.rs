//! Mirror of a GPU's address space in this process (`lab/swgpu/mirror.h`): loads and stores are
//! accesses of the GPU.

use std::io;

use anyhow::{Context, bail};

use super::{
    Request, ioctl,
    swgpu::{AccessCounters, Run, Space, iowr},
    words::Words,
};
use crate::scenario::steps::access::Kind;

/// `SWGPU_PERMISSIONS_OFFSET`.
const PERMISSIONS_OFFSET: u64 = 1 << 60;
/// `SWGPU_GRANULE_BYTES`: bytes that one permission covers.
pub(crate) const GRANULE_BYTES: u64 = 1 << 16;
/// `SWGPU_RUN_TOUCH`.
const TOUCH: u32 = 1;

/// `SWGPU_MAY_READ` and so on.
pub(crate) const MAY_READ: u8 = 1;
pub(crate) const MAY_WRITE: u8 = 2;
pub(crate) const MAY_ATOMIC: u8 = 4;

#[repr(C)]
struct Accessed {
    channel: u32,
    reserved: u32,
    access: AccessCounters,
}
const _: () = assert!(size_of::<Accessed>() == 56);
// SAFETY: repr(C) with the fields of the header's struct, and no pointers.
unsafe impl Request for Accessed {
    const REQUEST: libc::Ioctl = iowr::<Self>(11);
    const NAME: &str = "SWGPU_IOC_ACCESSED";
}

/// One page for a touch: an address, and the kind of access.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    va: u64,
    /// Kind as a number, then the place.
    value: u64,
}

impl Touch {
    pub(crate) const fn new(va: u64, kind: Kind) -> Self {
        Self { va, value: super::swgpu::kind_number(kind) as u64 }
    }

    /// Place of the page after the touch.
    pub(crate) const fn place(self) -> Place {
        match self.value {
            0 => Place::Local,
            1 => Place::Host,
            2 => Place::Peer,
            _ => Place::Other,
        }
    }
}

/// Place of a page, from the GPU's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Local,
    Host,
    Peer,
    Other,
}

/// Mirror of a space, and its permissions.
pub(crate) struct Mirror {
    pub(crate) words: Words,
    permissions: Words,
}

impl Mirror {
    /// Mirrors `bytes` of a GPU's address space from `va` on, at `address` of this process.
    /// `permissions_at` is the address of their permissions.
    pub(crate) fn map(space: &Space, va: u64, bytes: u64, address: u64, permissions_at: u64) -> anyhow::Result<Self> {
        let words = Words::map(space.file(), address, va, bytes).context("no mirror")?;
        let granules = (bytes / GRANULE_BYTES).next_multiple_of(4096);
        let permissions = Words::map(space.file(), permissions_at, PERMISSIONS_OFFSET + va / GRANULE_BYTES, granules)
            .context("no permissions")?;
        Ok(Self { words, permissions })
    }

    /// Permission of the granule of a word.
    pub(crate) fn permission(&self, word: usize) -> u8 {
        self.permissions.read_byte(word * size_of::<u64>() / usize::try_from(GRANULE_BYTES).unwrap_or(1))
    }
}

impl Space {
    /// Translates pages, with the faults that this takes, at most `window` of them at a time.
    pub(crate) fn touch(&self, touches: &mut [Touch], window: u32) -> io::Result<()> {
        let channel = self.handles().channel;
        let count = u32::try_from(touches.len()).map_err(io::Error::other)?;
        let accesses = touches.as_mut_ptr().expose_provenance() as u64;
        let mut run = Run { channel, kind: 0, window, count, accesses, access_millibytes: 0, done: 0, flags: TOUCH };
        ioctl(self.file(), &mut run)
    }

    /// Counts accesses by the mirror.
    ///
    /// Returns whether the channel lives.
    pub(crate) fn accessed(&self, access: AccessCounters) -> anyhow::Result<bool> {
        let mut request = Accessed { channel: self.handles().channel, reserved: 0, access };
        match ioctl(self.file(), &mut request) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Ok(false),
            Err(error) => bail!("{} failed: {error}", Accessed::NAME),
        }
    }
}

//! Mirror of a GPU's address space in this process (`lab/swgpu/mirror.h`): loads and stores are
//! accesses of the GPU.

use std::io;

use crate::{
    Error, Kind, Request, ioctl,
    swgpu::{AccessCounters, Run, Space, kind_number},
    swgpu_requests,
    words::Words,
};

/// `SWGPU_PERMISSIONS_OFFSET`.
const PERMISSIONS_OFFSET: u64 = 1 << 60;
/// `SWGPU_GRANULE_BYTES`: bytes that one permission covers.
pub const GRANULE_BYTES: u64 = 1 << 16;
/// `SWGPU_RUN_TOUCH`.
const TOUCH: u32 = 1;

/// `SWGPU_MAY_READ` and so on: the granule can be read.
pub const MAY_READ: u8 = 1;
/// The granule can be written.
pub const MAY_WRITE: u8 = 2;
/// The granule can be accessed by atomics.
pub const MAY_ATOMIC: u8 = 4;

#[repr(C)]
struct Accessed {
    channel: u32,
    reserved: u32,
    access: AccessCounters,
}
swgpu_requests! {
    Accessed, 11, "SWGPU_IOC_ACCESSED", 56;
}

/// One page for a touch: an address, and the kind of access.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    va: u64,
    /// Kind as a number, then the place.
    value: u64,
}

impl Touch {
    /// Page of an address of 8 bytes, for a kind of access.
    #[must_use]
    pub const fn new(va: u64, kind: Kind) -> Self {
        Self { va, value: kind_number(kind) as u64 }
    }

    /// Place of the page after the touch.
    #[must_use]
    pub const fn place(self) -> Place {
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
pub enum Place {
    /// Memory of this GPU.
    Local,
    /// Memory of the host.
    Host,
    /// Memory of another GPU.
    Peer,
    /// No memory.
    Other,
}

/// Mirror of a space, and its permissions.
pub struct Mirror {
    /// Memory, as the GPU sees it.
    pub words: Words,
    permissions: Words,
}

impl Mirror {
    /// Mirrors `bytes` of a GPU's address space from `va` on, at `address` of this process.
    /// `permissions_at` is the address of their permissions.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn map(space: &Space, va: u64, bytes: u64, address: u64, permissions_at: u64) -> Result<Self, Error> {
        let words = Words::map(space.file(), address, va, bytes)?;
        let granules = (bytes / GRANULE_BYTES).next_multiple_of(4096);
        let permissions = Words::map(space.file(), permissions_at, PERMISSIONS_OFFSET + va / GRANULE_BYTES, granules)?;
        Ok(Self { words, permissions })
    }

    /// Permission of the granule of a word.
    #[must_use]
    pub fn permission(&self, word: usize) -> u8 {
        self.permissions.read_byte(word * size_of::<u64>() / usize::try_from(GRANULE_BYTES).unwrap_or(1))
    }
}

impl Space {
    /// Translates pages, with the faults that this takes, at most `window` of them at a time.
    ///
    /// # Errors
    /// `EFAULT`: the driver cancelled an access, and the channel is dead.
    pub fn touch(&self, touches: &mut [Touch], window: u32) -> io::Result<()> {
        let channel = self.handles().channel;
        let count = u32::try_from(touches.len()).map_err(io::Error::other)?;
        let accesses = touches.as_mut_ptr().expose_provenance() as u64;
        let mut run = Run { channel, kind: 0, window, count, accesses, access_millibytes: 0, done: 0, flags: TOUCH };
        ioctl(self.file(), &mut run)
    }

    /// Counts accesses by the mirror.
    ///
    /// Returns whether the channel lives.
    ///
    /// # Errors
    /// Those of the request.
    pub fn accessed(&self, access: AccessCounters) -> Result<bool, Error> {
        let mut request = Accessed { channel: self.handles().channel, reserved: 0, access };
        match ioctl(self.file(), &mut request) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Ok(false),
            Err(source) => Err(Error::Request { request: Accessed::NAME, source }),
        }
    }
}

//! Mirror of a GPU's address space in this process (`lab/swgpu/mirror.h`): loads and stores are
//! accesses of the GPU.

use std::sync::atomic::AtomicU8;

use crate::{
    Error, Kind, Request, ioctl,
    swgpu::{AccessCounters, MAX_ACCESSES, Run, Space, kind_number},
    swgpu_requests,
    words::Words,
};

/// `SWGPU_PERMISSIONS_OFFSET`.
const PERMISSIONS_OFFSET: u64 = 1 << 60;
/// Bytes that one permission covers: a page.
pub const PERMISSION_BYTES: u64 = 4096;
/// `SWGPU_RUN_TOUCH`.
const TOUCH: u32 = 1;

/// `SWGPU_MAY_READ` and so on: the page can be read.
pub const MAY_READ: u8 = 1;
/// The page can be written.
pub const MAY_WRITE: u8 = 2;
/// The page can be accessed by atomics.
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

    /// Address.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.va
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

/// Permissions of a part of a space: [`MAY_READ`] and so on, a byte for each page.
pub struct Permissions(Words);

impl Permissions {
    /// Maps the permissions of `bytes` from `va` on.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn map(space: &Space, va: u64, bytes: u64) -> Result<Self, Error> {
        let pages = (bytes / PERMISSION_BYTES).next_multiple_of(4096);
        Words::map(space.file(), 0, PERMISSIONS_OFFSET + va / PERMISSION_BYTES, pages).map(Self)
    }

    /// Permissions, which the GPU changes at any time. This process may set those of pages at
    /// which it has no managed memory.
    #[must_use]
    pub fn pages(&self) -> &[AtomicU8] {
        self.0.bytes()
    }
}

impl Space {
    /// Mirrors `bytes` of the address space from `va` on, at `address` of this process: memory, as the
    /// GPU sees it.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn mirror(&self, va: u64, bytes: u64, address: u64) -> Result<Words, Error> {
        Words::map(self.file(), address, va, bytes)
    }

    /// Translates pages, with the faults that this takes, at most `window` of them at a time.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: the driver cancelled an access, and the channel is dead.
    pub fn touch(&self, touches: &mut [Touch], window: u32) -> Result<(), Error> {
        let channel = self.handles().channel;
        for part in touches.chunks_mut(MAX_ACCESSES) {
            let count = u32::try_from(part.len()).unwrap_or(u32::MAX); // of MAX_ACCESSES at most
            let accesses = part.as_mut_ptr().expose_provenance() as u64;
            let mut run =
                Run { channel, kind: 0, window, count, accesses, access_millibytes: 0, done: 0, flags: TOUCH };
            match ioctl(self.file(), &mut run) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                    return Err(Error::Cancelled { done: run.done, count });
                }
                Err(source) => return Err(Error::Request { request: "SWGPU_IOC_RUN", source }),
            }
        }
        Ok(())
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

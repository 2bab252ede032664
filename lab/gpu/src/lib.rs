//! Requests of programs to the lab's GPU and its driver, as the CUDA driver makes them of a real one.
//!
//! * [`swgpu`]: /dev/swgpu: the software GPU, its address spaces, kernels and counters
//! * [`mirror`]: accesses of the GPU by loads and stores of this process
//! * [`uvm`]: /dev/nvidia-uvm: VA spaces and managed memory; with the application's calls about it
//! * [`words`]: mapped memory that other processors change
#![expect(unsafe_code, reason = "ioctl and mmap of drivers, behind safe functions")]

mod api;
pub mod mirror;
pub mod swgpu;
pub mod uvm;
pub mod words;

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd,
};

/// UUID of a GPU, by which the driver identifies it.
pub type Uuid = [u8; 16];

/// Kind of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Atomic addition to a word, for all processors at the same time.
    Atomic,
}

/// Failed request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A device node that cannot be opened.
    #[error("cannot open {path}")]
    Open {
        /// Its path.
        path: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// An ioctl that failed.
    #[error("{request} failed")]
    Request {
        /// Name of the request.
        request: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// An ioctl in whose parameters the driver has put an error.
    #[error("{request} failed: the driver says {status:#x} (nvstatuscodes.h)")]
    Driver {
        /// Name of the request.
        request: &'static str,
        /// `NV_STATUS`.
        status: u32,
    },
    /// A kernel of which the driver cancelled an access: the channel is dead.
    #[error("the driver cancelled an access as fatal, after {done} of {count} were done")]
    Cancelled {
        /// Completed accesses.
        done: u32,
        /// Accesses of the kernel.
        count: u32,
    },
    /// A kernel that returned too early.
    #[error("the GPU did {done} of {count} accesses and reported no error")]
    Incomplete {
        /// Completed accesses.
        done: u32,
        /// Accesses of the kernel.
        count: u32,
    },
    /// A mapping that failed.
    #[error("cannot map {bytes} bytes at {address:#x}")]
    Map {
        /// Address asked for.
        address: u64,
        /// Length.
        bytes: u64,
        /// Error of the system.
        source: io::Error,
    },
    /// A mapping that cannot be removed.
    #[error("cannot unmap memory")]
    Unmap(#[source] io::Error),
}

/// Parameter block of one request to a driver.
///
/// # Safety
/// The type is `repr(C)`, has no padding that matters, and has the layout the driver reads and
/// writes for `REQUEST`; and a pointer in it is to memory that outlives the driver's use of it.
pub unsafe trait Request {
    /// Number of the request.
    const REQUEST: libc::Ioctl;
    /// Name of the request, for messages.
    const NAME: &str;
}

/// Opens a device node for reading and writing.
///
/// # Errors
/// [`Error::Open`].
pub fn open(path: &'static str) -> Result<File, Error> {
    OpenOptions::new().read(true).write(true).open(path).map_err(|source| Error::Open { path, source })
}

/// Calls a driver, and retries while it returns `EAGAIN`.
///
/// # Errors
/// Those of the driver.
pub fn ioctl<R: Request>(file: &File, request: &mut R) -> io::Result<()> {
    loop {
        // SAFETY: by the contract of Request, the driver finds at this address the layout it
        // expects, and writes nothing beyond it.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), R::REQUEST, std::ptr::from_mut(request)) };
        if result >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error);
        }
        // nvidia-uvm returns EAGAIN while the machine suspends.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Calls a driver; the error has the request's name.
fn request<R: Request>(file: &File, request: &mut R) -> Result<(), Error> {
    ioctl(file, request).map_err(|source| Error::Request { request: R::NAME, source })
}

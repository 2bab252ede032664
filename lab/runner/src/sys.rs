//! The runner's only unsafe code: calls of the driver, and managed memory. What leaves this module is safe to use.
//!
//! * [`uvm`]: /dev/nvidia-uvm: a VA space, managed memory; [`api`]: the application's calls about it; [`residency`]: where its pages are
//! * [`advice`]: what advice is in force, by the driver
//! * [`counters`]: /dev/nvidia-uvm-tools: the driver's own counters of one process
//! * [`builtin`]: the driver's own tests
//! * [`swgpu`], [`ledger`], [`access_log`]: /dev/swgpu: the software GPU, who got whose frame, and what it did
//! * [`memory`]: memory that outlives a process
//! * [`process`]: names, signals, descriptors
#![expect(unsafe_code, reason = "ioctl and mmap of the driver; every other module of the runner is safe code")]

pub(crate) mod access_log;
pub(crate) mod advice;
pub(crate) mod api;
pub(crate) mod builtin;
pub(crate) mod counters;
pub(crate) mod ledger;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod residency;
pub(crate) mod swgpu;
pub(crate) mod tally;
pub(crate) mod uvm;

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd,
};

use anyhow::Context;

/// Identifies a GPU to the driver.
pub(crate) type Uuid = [u8; 16];

/// The parameter block of one request to a driver.
///
/// # Safety
/// The type is `repr(C)`, has no padding that matters, and has the layout the driver reads and writes for `REQUEST`; and a pointer
/// in it is to memory that outlives the driver's use of it.
unsafe trait Request {
    const REQUEST: libc::Ioctl;
    /// What the request is called, for messages.
    const NAME: &str;
}

fn open(path: &str) -> anyhow::Result<File> {
    OpenOptions::new().read(true).write(true).open(path).with_context(|| format!("cannot open {path}"))
}

/// Ask a driver, again while it asks to be asked again.
fn ask<R: Request>(file: &File, request: &mut R) -> io::Result<()> {
    loop {
        // SAFETY: by the contract of Request, the driver finds at this address what it expects, and writes nothing beyond it.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), R::REQUEST, std::ptr::from_mut(request)) };
        if result >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error);
        }
        // nvidia-uvm refuses for the moment while the machine suspends.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The driver's version, as far as its branch.
pub(crate) fn driver_major() -> anyhow::Result<u32> {
    let path = "/sys/module/nvidia_uvm/version";
    let version = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let major = version.split('.').next().and_then(|major| major.parse().ok());
    major.with_context(|| format!("{path} says {version:?}"))
}

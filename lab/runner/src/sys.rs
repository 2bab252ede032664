//! Driver calls and managed memory: the runner's only unsafe code, behind safe functions.
//!
//! * [`uvm`]: /dev/nvidia-uvm: VA spaces and managed memory; [`api`]: the application's calls about
//!   it; [`residency`]: residency of its pages
//! * [`advice`]: advice in force, by the driver
//! * [`counters`]: /dev/nvidia-uvm-tools: the driver's counters of one process
//! * [`builtin`]: the driver's own tests
//! * [`swgpu`], [`ledger`], [`access_log`]: /dev/swgpu: software GPU, its frame ledger and its
//!   access log
//! * [`mirror`]: accesses of the GPU by loads and stores; [`words`]: mapped memory
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
pub(crate) mod mirror;
pub(crate) mod process;
pub(crate) mod residency;
pub(crate) mod swgpu;
pub(crate) mod tally;
pub(crate) mod uvm;
pub(crate) mod words;

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd,
};

use anyhow::Context;

/// UUID of a GPU, by which the driver identifies it.
pub(crate) type Uuid = [u8; 16];

/// Parameter block of one request to a driver.
///
/// # Safety
/// The type is `repr(C)`, has no padding that matters, and has the layout the driver reads and
/// writes for `REQUEST`; and a pointer in it is to memory that outlives the driver's use of it.
unsafe trait Request {
    const REQUEST: libc::Ioctl;
    /// Name of the request, for messages.
    const NAME: &str;
}

fn open(path: &str) -> anyhow::Result<File> {
    OpenOptions::new().read(true).write(true).open(path).with_context(|| format!("cannot open {path}"))
}

/// Calls a driver, and retries while it returns `EAGAIN`.
fn ioctl<R: Request>(file: &File, request: &mut R) -> io::Result<()> {
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

/// Major version of the driver, which identifies its branch.
pub(crate) fn driver_major() -> anyhow::Result<u32> {
    let path = "/sys/module/nvidia_uvm/version";
    let version = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let major = version.split('.').next().and_then(|major| major.parse().ok());
    major.with_context(|| format!("{path} says {version:?}"))
}

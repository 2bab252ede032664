//! Driver calls: the runner's only unsafe code, behind safe functions. Crate `gpu` has those that
//! programs make.
//!
//! * [`residency`]: residency of managed pages; [`advice`]: advice in force, by the driver
//! * [`counters`]: /dev/nvidia-uvm-tools: the driver's counters of one process
//! * [`builtin`]: the driver's own tests
//! * [`ledger`], [`access_log`]: /dev/swgpu: the software GPU's frame ledger and its access log
//! * [`memory`]: memory that outlives a process
//! * [`process`]: names, signals, descriptors
#![expect(unsafe_code, reason = "ioctl and mmap of the driver; every other module of the runner is safe code")]

pub(crate) mod access_log;
pub(crate) mod advice;
pub(crate) mod builtin;
pub(crate) mod counters;
pub(crate) mod ledger;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod residency;
pub(crate) mod tally;

use anyhow::Context;

/// Major version of the driver, which identifies its branch.
pub(crate) fn driver_major() -> anyhow::Result<u32> {
    let path = "/sys/module/nvidia_uvm/version";
    let version = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let major = version.split('.').next().and_then(|major| major.parse().ok());
    major.with_context(|| format!("{path} says {version:?}"))
}

//! The probes without the driver, for tests on a kernel that has no kprobes.

use std::fs;

use crate::{btf::Btf, families::KernelNumbers};
pub use crate::{
    families::{Families, Family},
    probes::Probes,
};

/// Loads the probes for a family on this machine, to be attached to functions of user programs.
///
/// # Errors
/// A sentence, if they cannot be loaded.
pub fn load(family: &Family, counts_capacity: u32) -> Result<(Probes, abi::Layout), String> {
    let btf = fs::read("/sys/kernel/btf/vmlinux").map_err(|error| error.to_string())?;
    let kernel = Btf::parse(&btf)
        .and_then(|btf| KernelNumbers::from_btf(&btf, procfs::page_size()))
        .map_err(|error| error.to_string())?;
    let layout = abi::Layout { in_user_memory: 1, ..family.layout(&kernel) };
    let probes = Probes::load(&layout, counts_capacity).map_err(|error| error.to_string())?;
    Ok((probes, layout))
}

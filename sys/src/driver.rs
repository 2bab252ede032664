//! State of the loaded nvidia-uvm.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
};

use crate::roots::{Roots, line};

/// The driver's module, as currently loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Version, if the module reports one.
    pub version: Option<String>,
    /// Number that distinguishes one loading of the module from the next.
    pub instance: u64,
}

/// The driver, if it is loaded and ready.
#[must_use]
pub fn module(roots: &Roots) -> Option<Module> {
    let folder = roots.sys.join("module/nvidia_uvm");
    // Sysfs numbers its folders anew each time.
    let instance = fs::metadata(&folder).ok()?.ino();
    // `coming` during its initialization, `going` during its removal.
    if line(&folder.join("initstate")).is_some_and(|state| state != "live") {
        return None;
    }
    // nvidia-uvm has its own version since 525; nvidia, which it needs, has always had one.
    let version = line(&folder.join("version")).or_else(|| line(&roots.sys.join("module/nvidia/version")));
    Some(Module { version, instance })
}

/// Device /dev/nvidia-uvm in the kernel's encoding, if the driver has one.
#[must_use]
pub fn uvm_device(roots: &Roots) -> Option<u32> {
    const MINOR_BITS: u32 = 20;
    let devices = fs::read_to_string(roots.proc.join("devices")).ok()?;
    let characters = devices.split("Block devices:").next()?;
    let major = characters.lines().find_map(|line| {
        let (major, name) = line.trim_start().split_once(' ')?;
        (name.trim() == "nvidia-uvm").then_some(major)
    })?;
    // Minor 0; 1 is /dev/nvidia-uvm-tools.
    Some(major.parse::<u32>().ok()? << MINOR_BITS)
}

/// Whether any process may have the driver open: each open file holds a reference to the module.
/// True unless the count is known to be 0.
#[must_use]
pub fn in_use(roots: &Roots) -> bool {
    line(&roots.sys.join("module/nvidia_uvm/refcnt")).is_none_or(|holders| holders != "0")
}

/// References to the module: each open file of the driver holds one.
#[derive(Debug)]
pub struct References(File);

impl References {
    /// Opens their number, which needs no look-up in /sys after this.
    ///
    /// # Errors
    /// If the driver is not loaded.
    pub fn open(roots: &Roots) -> io::Result<Self> {
        File::open(roots.sys.join("module/nvidia_uvm/refcnt")).map(Self)
    }

    /// Their number; `None` once the driver was unloaded.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        let mut digits = [0; 24];
        let length = self.0.read_at(&mut digits, 0).ok()?;
        str::from_utf8(digits.get(..length)?).ok()?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    fn ready() -> Machine {
        Machine::new()
            .with("sys/module/nvidia_uvm/version", "550.163.01\n")
            .with("sys/module/nvidia_uvm/initstate", "live\n")
    }

    #[test]
    fn device_number_is_that_of_the_character_device() {
        let machine = Machine::new().with(
            "proc/devices",
            "Character devices:\n  1 mem\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n  7 nvidia-uvm\n",
        );
        assert_eq!(uvm_device(&machine.roots), Some(511 << 20));
        machine.write("proc/devices", "Character devices:\n  1 mem\n\nBlock devices:\n  7 nvidia-uvm\n");
        assert_eq!(uvm_device(&machine.roots), None);
    }

    #[test]
    fn driver_is_live_unless_its_state_differs() {
        let machine = ready();
        assert!(in_use(&machine.roots));
        machine.write("sys/module/nvidia_uvm/refcnt", "0\n");
        assert!(!in_use(&machine.roots));
        machine.write("sys/module/nvidia_uvm/refcnt", "2\n");
        assert!(in_use(&machine.roots));
    }

    #[test]
    fn reloaded_driver_is_another_instance() {
        let machine = ready();
        let first = module(&machine.roots).unwrap();
        assert_eq!(module(&machine.roots).unwrap(), first);
        // The old folder stays open, so that its number is not reused: sysfs does not reuse numbers
        // either.
        let _held = File::open(machine.roots.sys.join("module/nvidia_uvm")).unwrap();
        machine.remove("sys/module/nvidia_uvm");
        machine.write("sys/module/nvidia_uvm/version", "550.163.01\n");
        assert_ne!(module(&machine.roots).unwrap().instance, first.instance);
    }

    #[test]
    fn missing_version_falls_back_to_nvidia_ko() {
        let machine = Machine::new()
            .with("sys/module/nvidia_uvm/initstate", "live")
            .with("sys/module/nvidia/version", "515.105.01\n");
        assert_eq!(module(&machine.roots).unwrap().version.as_deref(), Some("515.105.01"));
    }
}

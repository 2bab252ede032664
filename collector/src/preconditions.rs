//! What this machine lacks, and which driver is loaded.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use thiserror::Error;

use crate::{btf::BtfError, families::TableError, roots::Roots};

/// Something without which nothing can be counted, and that may come. Each reads as one sentence that says what to do.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Missing {
    #[error("this kernel has no kprobes: boot one built with CONFIG_KPROBES and CONFIG_KPROBE_EVENTS")]
    Kprobes,
    #[error(
        "this kernel does not show its types in /sys/kernel/btf/vmlinux: boot one built with CONFIG_DEBUG_INFO_BTF"
    )]
    KernelTypes,
    #[error(
        "this kernel is locked down to confidentiality, which forbids probes to read its memory: boot it with lockdown=integrity, or none"
    )]
    Unlocked,
    #[error("the driver nvidia-uvm is not loaded: run `modprobe nvidia-uvm`, or start a CUDA program, which loads it")]
    Driver,
}

/// Why a driver that is there is not counted on.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error(
        "the driver does not tell its version, neither in /sys/module/nvidia_uvm/version nor in /sys/module/nvidia/version, \
         so the layout of its structures is not known"
    )]
    NoVersion,
    #[error(
        "driver {version} is not supported: the layout of its structures is not known; supported are {supported}; update uvmd, or change the driver"
    )]
    UnknownVersion { version: String, supported: String },
    #[error("{0}")]
    Table(#[from] TableError),
    #[error("the kernel's types in /sys/kernel/btf/vmlinux cannot be used: {0}")]
    KernelTypes(#[from] BtfError),
    #[error("/sys/kernel/btf/vmlinux cannot be read: {0}")]
    KernelTypesUnreadable(#[source] io::Error),
    #[error(
        "the kernel does not let uvmd load and attach probes: run it as root, or with the capabilities CAP_BPF and CAP_PERFMON, \
         and let its container make the calls bpf and perf_event_open"
    )]
    NotPermitted,
    #[error("the kernel rejects the probes: {0}")]
    Load(String),
    #[error("the driver has no function {0}, which uvmd must probe: it may have been built in a way that removed it")]
    NoFunction(&'static str),
    #[error("cannot attach a probe to the driver's {function}: {reason}")]
    Attach { function: &'static str, reason: String },
    #[error(
        "the driver's events do not look as those of {family} should: {failures}; counting has stopped, as the figures would be wrong"
    )]
    SelfTest { family: String, failures: String },
}

impl Refusal {
    /// Whether trying again may help: what is short now (memory, descriptors, permission) may be there later. What the driver is does not
    /// change until it is loaded again.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::KernelTypesUnreadable(_) | Self::NotPermitted | Self::Load(_) | Self::Attach { .. } => true,
            Self::NoVersion
            | Self::UnknownVersion { .. }
            | Self::Table(_)
            | Self::KernelTypes(_)
            | Self::NoFunction(_)
            | Self::SelfTest { .. } => false,
        }
    }
}

/// The driver's module, as it is loaded now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// Where it says so.
    pub(crate) version: Option<String>,
    /// Tells one loading of the module from the next.
    pub(crate) instance: u64,
}

/// The driver, if it is loaded and ready.
pub(crate) fn module(roots: &Roots) -> Option<Module> {
    let folder = roots.sys.join("module/nvidia_uvm");
    // Sysfs numbers its folders afresh each time.
    let instance = fs::metadata(&folder).ok()?.ino();
    // `coming` while its start-up code runs, `going` while it is removed.
    if line(&folder.join("initstate")).is_some_and(|state| state != "live") {
        return None;
    }
    // nvidia-uvm has a version of its own since 525; nvidia, without which it does not load, has always had one.
    let version = line(&folder.join("version")).or_else(|| line(&roots.sys.join("module/nvidia/version")));
    Some(Module { version, instance })
}

/// The device /dev/nvidia-uvm as the kernel writes it, if the driver has one.
pub(crate) fn uvm_device(roots: &Roots) -> Option<u32> {
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

/// Whether anyone may have the driver open: each open file holds the module. Unless it says that nobody does, somebody may.
pub(crate) fn in_use(roots: &Roots) -> bool {
    line(&roots.sys.join("module/nvidia_uvm/refcnt")).is_none_or(|holders| holders != "0")
}

/// What is missing on this machine; empty where probes can be attached.
pub(crate) fn missing(roots: &Roots, module: Option<&Module>) -> Vec<Missing> {
    let has = |path: &str| roots.sys.join(path).exists();
    let locked =
        line(&roots.sys.join("kernel/security/lockdown")).is_some_and(|modes| modes.contains("[confidentiality]"));
    [
        (!has("bus/event_source/devices/kprobe"), Missing::Kprobes),
        (!has("kernel/btf/vmlinux"), Missing::KernelTypes),
        (locked, Missing::Unlocked),
        (module.is_none(), Missing::Driver),
    ]
    .into_iter()
    .filter_map(|(is_missing, what)| is_missing.then_some(what))
    .collect()
}

fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::fake::Machine;

    fn ready() -> Machine {
        Machine::new()
            .with("sys/bus/event_source/devices/kprobe/type", "6\n")
            .with("sys/kernel/btf/vmlinux", "")
            .with("sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
            .with("sys/module/nvidia_uvm/version", "550.163.01\n")
            .with("sys/module/nvidia_uvm/initstate", "live\n")
    }

    fn missing_on(machine: &Machine) -> Vec<Missing> {
        missing(&machine.roots, module(&machine.roots).as_ref())
    }

    #[test]
    fn nothing_is_missing_on_a_machine_with_the_driver() {
        let machine = ready();
        assert_eq!(missing_on(&machine), []);
        assert_eq!(module(&machine.roots).unwrap().version.as_deref(), Some("550.163.01"));
    }

    #[test]
    fn everything_that_is_missing_is_named_at_once() {
        assert_eq!(missing_on(&Machine::new()), [Missing::Kprobes, Missing::KernelTypes, Missing::Driver]);
    }

    #[test]
    fn confidentiality_is_the_only_lockdown_that_forbids_reading() {
        let machine = ready();
        machine.write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        assert_eq!(missing_on(&machine), []);
        machine.write("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
        assert_eq!(missing_on(&machine), [Missing::Unlocked]);
    }

    #[test]
    fn a_driver_that_is_coming_or_going_is_not_there() {
        let machine = ready();
        for state in ["coming", "going"] {
            machine.write("sys/module/nvidia_uvm/initstate", state);
            assert_eq!(missing_on(&machine), [Missing::Driver], "{state}");
        }
    }

    #[test]
    fn the_device_is_the_character_device_of_that_name() {
        let machine = Machine::new().with(
            "proc/devices",
            "Character devices:\n  1 mem\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n  7 nvidia-uvm\n",
        );
        assert_eq!(uvm_device(&machine.roots), Some(511 << 20));
        machine.write("proc/devices", "Character devices:\n  1 mem\n\nBlock devices:\n  7 nvidia-uvm\n");
        assert_eq!(uvm_device(&machine.roots), None);
    }

    #[test]
    fn a_driver_is_in_use_unless_it_says_otherwise() {
        let machine = ready();
        assert!(in_use(&machine.roots));
        machine.write("sys/module/nvidia_uvm/refcnt", "0\n");
        assert!(!in_use(&machine.roots));
        machine.write("sys/module/nvidia_uvm/refcnt", "2\n");
        assert!(in_use(&machine.roots));
    }

    #[test]
    fn a_driver_that_is_loaded_again_is_another_instance() {
        let machine = ready();
        let first = module(&machine.roots).unwrap();
        assert_eq!(module(&machine.roots).unwrap(), first);
        // The old folder stays open, so that its number is not given again: sysfs does not reuse them either.
        let _held = fs::File::open(machine.roots.sys.join("module/nvidia_uvm")).unwrap();
        machine.remove("sys/module/nvidia_uvm");
        machine.write("sys/module/nvidia_uvm/version", "550.163.01\n");
        assert_ne!(module(&machine.roots).unwrap().instance, first.instance);
    }

    #[test]
    fn a_driver_without_a_version_of_its_own_has_that_of_nvidia() {
        let machine = Machine::new()
            .with("sys/module/nvidia_uvm/initstate", "live")
            .with("sys/module/nvidia/version", "515.105.01\n");
        assert_eq!(module(&machine.roots).unwrap().version.as_deref(), Some("515.105.01"));
    }
}

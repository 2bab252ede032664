//! Missing preconditions of probing on this machine.

use abi::attachment::KERNEL_FUNCTIONS;
use thiserror::Error;

use crate::{
    btf::Btf,
    driver::Module,
    roots::{Roots, line},
};

/// Mechanism by which the kernel runs the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// Breakpoints and their like, at any function.
    Kprobe,
    /// Direct calls from the functions of a module whose types the kernel has: fentry and fexit.
    Fentry,
}

impl Attachment {
    /// Name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe",
            Self::Fentry => "fentry",
        }
    }
}

/// Missing precondition of all counts that may still be met. Each reads as one sentence with a
/// remedy.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Missing {
    /// Probes on functions of the kernel and its modules.
    #[error(
        "this kernel has no kprobes, and does not show the driver's types in /sys/kernel/btf/nvidia_uvm, which fentry needs: \
         boot one built with CONFIG_KPROBES and CONFIG_KPROBE_EVENTS, or build the driver with BTF"
    )]
    Kprobes,
    /// Enabled kprobes; disabled ones would attach and never run.
    #[error(
        "kprobes are switched off on this machine: write 1 to /sys/kernel/debug/kprobes/enabled, as probes would attach and never run"
    )]
    KprobesOn,
    /// BTF of the kernel.
    #[error(
        "this kernel does not show its types in /sys/kernel/btf/vmlinux: boot one built with CONFIG_DEBUG_INFO_BTF"
    )]
    KernelTypes,
    /// Permission to read kernel memory, which lockdown denies.
    #[error(
        "this kernel is locked down to confidentiality, which forbids probes to read its memory: boot it with lockdown=integrity, or none"
    )]
    Unlocked,
    /// nvidia-uvm.
    #[error("the driver nvidia-uvm is not loaded: run `modprobe nvidia-uvm`, or start a CUDA program, which loads it")]
    Driver,
}

/// Missing preconditions on this machine; empty if probes can be attached.
#[must_use]
pub fn missing(roots: &Roots, module: Option<&Module>) -> Vec<Missing> {
    let has = |path: &str| roots.sys.join(path).exists();
    let attachment = attachment(roots);
    let locked =
        line(&roots.sys.join("kernel/security/lockdown")).is_some_and(|modes| modes.contains("[confidentiality]"));
    let others = [
        (!has("kernel/btf/vmlinux"), Missing::KernelTypes),
        (locked, Missing::Unlocked),
        (module.is_none(), Missing::Driver),
    ];
    let others = others.into_iter().filter_map(|(is_missing, what)| is_missing.then_some(what));
    attachment.err().into_iter().chain(others).collect()
}

/// How probes are attached on this machine: by kprobes, or without them by fentry.
///
/// # Errors
/// Missing precondition, if by neither.
pub fn attachment(roots: &Roots) -> Result<Attachment, Missing> {
    let has = |path: &str| roots.sys.join(path).exists();
    if !has("bus/event_source/devices/kprobe") {
        return if has("kernel/btf/nvidia_uvm") { Ok(Attachment::Fentry) } else { Err(Missing::Kprobes) };
    }
    let is_off = line(&roots.sys.join("kernel/debug/kprobes/enabled")).is_some_and(|enabled| enabled == "0");
    if is_off { Err(Missing::KprobesOn) } else { Ok(Attachment::Kprobe) }
}

/// Function that probes attached by fentry call, and this kernel lacks; `None` if it has all.
#[must_use]
pub fn lacking_for_fentry(kernel: &Btf<'_>) -> Option<&'static str> {
    KERNEL_FUNCTIONS.map(|(_, name)| name).into_iter().find(|name| kernel.id_of_function(name).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::module, fake::Machine};

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
    fn machine_with_the_driver_meets_all_preconditions() {
        let machine = ready();
        assert_eq!(missing_on(&machine), []);
        assert_eq!(module(&machine.roots).unwrap().version.as_deref(), Some("550.163.01"));
    }

    #[test]
    fn all_missing_preconditions_are_reported_together() {
        assert_eq!(missing_on(&Machine::new()), [Missing::Kprobes, Missing::KernelTypes, Missing::Driver]);
    }

    #[test]
    fn only_confidentiality_lockdown_forbids_probes() {
        let machine = ready();
        machine.write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        assert_eq!(missing_on(&machine), []);
        machine.write("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
        assert_eq!(missing_on(&machine), [Missing::Unlocked]);
    }

    #[test]
    fn kernel_without_kprobes_needs_the_types_of_the_driver() {
        let machine = ready().with("sys/kernel/btf/nvidia_uvm", "");
        assert_eq!(attachment(&machine.roots), Ok(Attachment::Kprobe));
        machine.remove("sys/bus");
        assert_eq!(attachment(&machine.roots), Ok(Attachment::Fentry));
        assert_eq!(missing_on(&machine), []);
        let machine = ready();
        machine.remove("sys/bus");
        assert_eq!(attachment(&machine.roots), Err(Missing::Kprobes));
        assert_eq!(missing_on(&machine), [Missing::Kprobes]);
    }

    #[test]
    fn fentry_does_not_replace_kprobes_that_are_switched_off() {
        let machine = ready().with("sys/kernel/btf/nvidia_uvm", "").with("sys/kernel/debug/kprobes/enabled", "0\n");
        assert_eq!(missing_on(&machine), [Missing::KprobesOn]);
    }

    #[test]
    fn disabled_kprobes_are_missing() {
        let machine = ready();
        machine.write("sys/kernel/debug/kprobes/enabled", "1\n");
        assert_eq!(missing_on(&machine), []);
        machine.write("sys/kernel/debug/kprobes/enabled", "0\n");
        assert_eq!(missing_on(&machine), [Missing::KprobesOn]);
    }

    #[test]
    fn loading_or_unloading_driver_is_absent() {
        let machine = ready();
        for state in ["coming", "going"] {
            machine.write("sys/module/nvidia_uvm/initstate", state);
            assert_eq!(missing_on(&machine), [Missing::Driver], "{state}");
        }
    }
}

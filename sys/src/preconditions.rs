//! Missing preconditions of probing on this machine.

use thiserror::Error;

use crate::{
    driver::Module,
    roots::{Roots, line},
};

/// Missing precondition of all counts that may still be met. Each reads as one sentence with a
/// remedy.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Missing {
    /// Probes on functions of the kernel and its modules.
    #[error("this kernel has no kprobes: boot one built with CONFIG_KPROBES and CONFIG_KPROBE_EVENTS")]
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
    let locked =
        line(&roots.sys.join("kernel/security/lockdown")).is_some_and(|modes| modes.contains("[confidentiality]"));
    [
        (!has("bus/event_source/devices/kprobe"), Missing::Kprobes),
        (
            line(&roots.sys.join("kernel/debug/kprobes/enabled")).is_some_and(|enabled| enabled == "0"),
            Missing::KprobesOn,
        ),
        (!has("kernel/btf/vmlinux"), Missing::KernelTypes),
        (locked, Missing::Unlocked),
        (module.is_none(), Missing::Driver),
    ]
    .into_iter()
    .filter_map(|(is_missing, what)| is_missing.then_some(what))
    .collect()
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

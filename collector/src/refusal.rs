//! Reasons why a driver is refused.

use std::io;

use sys::{
    btf::BtfError,
    driver_types::{Disagreement, Unfit},
    families::TableError,
};
use thiserror::Error;

/// Reason why a present driver is refused.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error(
        "the driver's version is neither in /sys/module/nvidia_uvm/version nor in /sys/module/nvidia/version, \
         so the layout of its structures is unknown"
    )]
    NoVersion,
    #[error(
        "driver {version} is not supported: the table of layouts has {supported}, and the kernel exposes no types in \
         /sys/kernel/btf/nvidia_uvm; update uvmd, or build the driver with BTF"
    )]
    UnknownVersion { version: String, supported: String },
    #[error(
        "driver {version} is not supported: the table of layouts lacks it, and its types cannot be used: {unfit}; update uvmd"
    )]
    UnknownTypes { version: String, unfit: Unfit },
    #[error(
        "driver {version} is not supported: its tools interface is unknown; uvmd knows 515 to 555, 560, and 565 or later"
    )]
    UnknownTools { version: String },
    #[error("{probes}; the driver's tools cannot be used either: {tools}")]
    Both { probes: Box<Self>, tools: Box<Self> },
    #[error("{0}")]
    Table(#[from] TableError),
    #[error("the kernel's types in /sys/kernel/btf/vmlinux cannot be used: {0}")]
    KernelTypes(#[from] BtfError),
    #[error("/sys/kernel/btf/vmlinux cannot be read: {0}")]
    KernelTypesUnreadable(#[source] io::Error),
    #[error(
        "driver {version} is not as {family} should be: {disagreement}; it may have been changed, or uvmd's table is wrong: figures would be too"
    )]
    DriverTypes { version: String, family: String, disagreement: Disagreement },
    #[error(
        "the kernel does not let uvmd load and attach probes: run it as root, or with the capabilities CAP_BPF and CAP_PERFMON, \
         and let its container make the calls bpf and perf_event_open; if kernel.perf_event_paranoid is above 2, kernels of Debian \
         and Ubuntu want CAP_SYS_ADMIN instead"
    )]
    NotPermitted,
    #[error(
        "/proc/devices does not list nvidia-uvm, so that uvmd cannot find the processes that use it: load the driver again"
    )]
    NoDevice,
    #[error("uvmd cannot start the process that holds trackers of the driver's tools: {0}")]
    NoHolder(String),
    #[error(
        "this kernel has no kprobes, and fentry needs bpf_preempt_disable: boot Linux 6.10 or later, \
         or a kernel built with CONFIG_KPROBES and CONFIG_KPROBE_EVENTS"
    )]
    FentryKernel,
    #[error(
        "this kernel has no kprobes, and shows no usable types of the driver in /sys/kernel/btf/nvidia_uvm, which fentry needs: \
         boot one built with CONFIG_KPROBES and CONFIG_KPROBE_EVENTS, or build the driver with BTF"
    )]
    FentryTypes,
    #[error(
        "this kernel has no kprobes, and does not let uvmd take the driver's types for fentry: run it as root, or with CAP_SYS_ADMIN \
         beside CAP_BPF and CAP_PERFMON"
    )]
    FentryNotPermitted,
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
    /// Whether the kernel failed to load or attach a probe, for memory or descriptors for example.
    pub(crate) const fn is_of_attachment(&self) -> bool {
        matches!(self, Self::Load(_) | Self::Attach { .. })
    }

    /// Whether a retry may help: a shortage (memory, descriptors, permission) may pass. Properties
    /// of the driver do not change until it is reloaded.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Both { probes, tools } => probes.may_pass() || tools.may_pass(),
            Self::KernelTypesUnreadable(_)
            | Self::NotPermitted
            | Self::NoDevice
            | Self::NoHolder(_)
            | Self::FentryNotPermitted
            | Self::Load(_)
            | Self::Attach { .. } => true,
            Self::NoVersion
            | Self::UnknownVersion { .. }
            | Self::UnknownTypes { .. }
            | Self::UnknownTools { .. }
            | Self::Table(_)
            | Self::KernelTypes(_)
            | Self::DriverTypes { .. }
            | Self::FentryKernel
            | Self::FentryTypes
            | Self::NoFunction(_)
            | Self::SelfTest { .. } => false,
        }
    }
}

//! Actions denied for certain drivers or GPUs because machines hung. One row per public report.

/// A public report.
#[derive(Clone, Copy, Debug)]
pub struct Denied {
    /// First driver version known to be affected.
    pub driver_from: &'static str,
    /// Last affected driver version; `None` if current versions are affected.
    pub driver_until: Option<&'static str>,
    /// Parts of the GPU's name, case-insensitive. One of them has to match.
    pub gpus: &'static [&'static str],
    /// Denied actions.
    pub actions: DeniedActions,
    /// Reason, as a sentence.
    pub why: &'static str,
    /// Address of the report.
    pub url: &'static str,
}

/// Kinds of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedActions {
    /// All actions.
    Everything,
    /// Actions that allocate GPU memory, and so may evict.
    ToGpu,
}

/// Product names of the Blackwell architecture. Few contain its name, as
/// `NVIDIA RTX PRO 4500 Blackwell` does. `RTX 50` would match the RTX 5000 of three other
/// architectures.
const BLACKWELL: &[&str] =
    &["blackwell", "B100", "B200", "B300", "RTX 5050", "RTX 5060", "RTX 5070", "RTX 5080", "RTX 5090"];

/// All reports. An unknown GPU or driver counts as affected.
pub const DENIED: &[Denied] = &[
    Denied {
        driver_from: "595",
        driver_until: None,
        gpus: BLACKWELL,
        actions: DeniedActions::ToGpu,
        why: "evicting while the GPU is full can leave the driver's thread spinning until the next boot",
        url: "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1223",
    },
    Denied {
        driver_from: "580",
        driver_until: None,
        gpus: &["GB10"],
        actions: DeniedActions::Everything,
        why: "the GPU's memory is the host's, and the whole host stops when it runs short",
        url: "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1358",
    },
    Denied {
        driver_from: "515",
        driver_until: Some("525.78.01"),
        gpus: &["P100"],
        actions: DeniedActions::Everything,
        why: "processes hang in uvm_spin_loop and cannot be killed",
        url: "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/456",
    },
];

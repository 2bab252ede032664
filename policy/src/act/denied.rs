//! What is not done with which driver and GPU, as somebody's machine stood still. Data: a row for each public report.

/// One report.
#[derive(Clone, Copy, Debug)]
pub struct Denied {
    /// The first driver version it holds for, as far as is known.
    pub driver_from: &'static str,
    /// The last one; `None` if none is known to be without it.
    pub driver_until: Option<&'static str>,
    /// What the GPU's name contains, whatever the case; empty for all.
    pub gpu: &'static str,
    /// What is refused.
    pub what: What,
    /// Why, as a sentence.
    pub why: &'static str,
    /// The report.
    pub url: &'static str,
}

/// Kinds of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// All.
    Everything,
    /// Whatever makes the driver find room on the GPU, and so evict.
    ToGpu,
}

/// All reports. A GPU whose name is not known is taken for one that is meant.
pub const DENIED: &[Denied] = &[
    Denied {
        driver_from: "595",
        driver_until: None,
        gpu: "blackwell",
        what: What::ToGpu,
        why: "evicting while the GPU is full can leave the driver's thread spinning until the next boot",
        url: "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1223",
    },
    Denied {
        driver_from: "580",
        driver_until: None,
        gpu: "GB10",
        what: What::Everything,
        why: "the GPU's memory is the host's, and the whole host stops when it runs short",
        url: "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1358",
    },
    Denied {
        driver_from: "515",
        driver_until: Some("515.48.07"),
        gpu: "P100",
        what: What::Everything,
        why: "processes hang in uvm_spin_loop and cannot be killed",
        url: "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/456",
    },
];

//! Capabilities of a process: capabilities(7).
//!
//! `CAP_BPF` loads the probes and `CAP_PERFMON` attaches them; both exist since Linux 5.8. Two others are of use only on some nodes, and what
//! lacks them shows there: `CAP_SYS_PTRACE`, where /proc hides the processes of others (`hidepid`), and `CAP_SYS_RESOURCE` before Linux 5.11,
//! where the probes' maps count against the limit of locked memory.

use procfs::{ProcError, process::Process};
use thiserror::Error;

/// In words, here and in the README.
const NEEDED: &str = "as root, or with the capabilities CAP_BPF and CAP_PERFMON";

/// Reason for which a process may not probe.
#[derive(Debug, Error)]
pub enum CapabilityError {
    /// The capabilities cannot be read.
    #[error("cannot read this process's capabilities from /proc/self/status: {0}")]
    Unreadable(#[from] ProcError),
    /// A capability is missing.
    #[error(
        "not allowed to probe the driver: run uvmd {NEEDED} (in a systemd unit: AmbientCapabilities=CAP_BPF CAP_PERFMON)"
    )]
    NotAllowed,
}

/// One capability; its value is its bit in /proc/PID/status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Permission to inspect processes of others.
    SysPtrace = 19,
    /// Everything that had no capability of its own when capabilities were made.
    SysAdmin = 21,
    /// Go beyond limits.
    SysResource = 24,
    /// Permission to attach probes.
    Perfmon = 38,
    /// Load probes.
    Bpf = 39,
}

/// The effective capabilities of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Capabilities of the calling process.
    ///
    /// # Errors
    /// Where /proc cannot be read.
    pub fn of_this_process() -> Result<Self, CapabilityError> {
        Ok(Self(Process::myself()?.status()?.capeff))
    }

    /// Capabilities of the bits of /proc/PID/status.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether it has this one.
    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & (1 << capability as u8) != 0
    }

    /// Fails unless the process may load probes and attach them. `CAP_SYS_ADMIN` implies both.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub const fn may_probe(self) -> Result<(), CapabilityError> {
        let both = self.has(Capability::Bpf) && self.has(Capability::Perfmon);
        if both || self.has(Capability::SysAdmin) { Ok(()) } else { Err(CapabilityError::NotAllowed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_capabilities_or_sys_admin_are_enough() {
        use Capability::{Bpf, Perfmon, SysAdmin};
        let may_probe = |capabilities: &[Capability]| {
            let bits = capabilities.iter().map(|capability| 1 << *capability as u8).sum();
            Capabilities(bits).may_probe().is_ok()
        };
        assert!(may_probe(&[Bpf, Perfmon]));
        assert!(may_probe(&[SysAdmin]));
        assert!(!may_probe(&[Bpf]));
        assert!(!may_probe(&[Perfmon]));
        assert!(!may_probe(&[]));
    }

    #[test]
    fn readme_states_the_same_requirement() {
        assert!(include_str!("../../README.md").contains(NEEDED));
    }
}

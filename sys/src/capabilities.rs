//! Capabilities of a process: capabilities(7).
//!
//! `CAP_BPF` loads the probes and `CAP_PERFMON` attaches them; both exist since Linux 5.8. Two
//! others matter on some nodes only, and the parts that lack them report it: `CAP_SYS_PTRACE`,
//! where /proc hides the processes of other users (`hidepid`), and `CAP_SYS_RESOURCE` before Linux
//! 5.11, where the probes' maps count against the limit of locked memory.

use procfs::{ProcError, process::Process};
use thiserror::Error;

/// Requirement in words, here and in the README.
const NEEDED: &str = "as root, or with the capabilities CAP_BPF and CAP_PERFMON";

/// Reason why a process may not probe.
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

/// Capability; its value is its bit in /proc/PID/status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Permission to list open files of other users.
    DacReadSearch = 2,
    /// Permission to inspect processes of other users.
    SysPtrace = 19,
    /// Permission for everything that had no separate capability when capabilities were introduced.
    SysAdmin = 21,
    /// Permission to exceed limits.
    SysResource = 24,
    /// Permission to attach probes.
    Perfmon = 38,
    /// Permission to load probes.
    Bpf = 39,
}

/// Effective capabilities of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Capabilities of the calling process.
    ///
    /// # Errors
    /// If /proc cannot be read.
    pub fn of_this_process() -> Result<Self, CapabilityError> {
        Ok(Self(Process::myself()?.status()?.capeff))
    }

    /// Capabilities of the bits of /proc/PID/status.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether the capability is included.
    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & (1 << capability as u8) != 0
    }

    /// Fails unless the process may load probes and attach them. `CAP_SYS_ADMIN` implies both.
    ///
    /// # Errors
    /// Remedy, as a sentence.
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

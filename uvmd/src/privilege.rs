//! What uvmd must be allowed to do before it starts.
//!
//! `CAP_BPF` loads the probes and `CAP_PERFMON` attaches them; both exist since Linux 5.8. Two others are of use only on some nodes, and what
//! lacks them shows there: `CAP_SYS_PTRACE`, where /proc hides the processes of others (`hidepid`), and `CAP_SYS_RESOURCE` before Linux 5.11,
//! where the probes' maps count against the limit of locked memory.

use anyhow::{Context, bail};
use procfs::process::Process;

/// Bits of capabilities(7) in /proc/self/status.
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

/// In words, here and in the README.
const NEEDED: &str = "as root, or with the capabilities CAP_BPF and CAP_PERFMON";

/// Fails unless this process may load probes and attach them.
pub(crate) fn check() -> anyhow::Result<()> {
    let effective = Process::myself()
        .and_then(|process| process.status())
        .context("cannot read this process's capabilities from /proc/self/status")?
        .capeff;
    if may_probe(effective) {
        return Ok(());
    }
    bail!(
        "not allowed to probe the driver: run uvmd {NEEDED} (in a systemd unit: AmbientCapabilities=CAP_BPF CAP_PERFMON)"
    )
}

/// `CAP_SYS_ADMIN` implies both of the others.
const fn may_probe(effective: u64) -> bool {
    let both = CAP_BPF | CAP_PERFMON;
    effective & both == both || effective & CAP_SYS_ADMIN != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_capabilities_or_sys_admin_are_enough() {
        assert!(may_probe(CAP_BPF | CAP_PERFMON));
        assert!(may_probe(CAP_SYS_ADMIN));
        assert!(!may_probe(CAP_BPF));
        assert!(!may_probe(CAP_PERFMON));
        assert!(!may_probe(0));
    }

    #[test]
    fn the_readme_asks_for_the_same() {
        assert!(include_str!("../../README.md").contains(NEEDED));
    }
}

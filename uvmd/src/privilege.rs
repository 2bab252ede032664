//! What uvmd must be allowed to do before it starts.

use anyhow::{Context, bail};
use procfs::process::Process;

/// Bits of capabilities(7) in /proc/self/status.
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

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
        "not allowed to probe the driver: run uvmd as root, or with the capabilities CAP_BPF and CAP_PERFMON \
         (in a systemd unit: AmbientCapabilities=CAP_BPF CAP_PERFMON)"
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
}

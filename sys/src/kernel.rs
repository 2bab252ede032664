//! Kernel versions that uvmd runs on.

use std::{fmt, fs, io};

use thiserror::Error;

use crate::roots::Roots;

const RELEASE: &str = "sys/kernel/osrelease";

/// First version with all that the probes use: ring buffers and `CAP_BPF` came with 5.8, per-CPU
/// values without leftovers of a removed entry with 5.10. Distributions that carry newer probes in
/// an older kernel (RHEL 8) are not supported.
const OLDEST: Version = Version { major: 5, minor: 10 };

/// Reason why uvmd does not run on this kernel.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The version cannot be read.
    #[error("cannot read the kernel's version from /proc/{RELEASE}: {}", crate::reason(.0))]
    Unreadable(#[source] io::Error),
    /// Text without a version.
    #[error("/proc/{RELEASE} has no version of Linux: {0:?}")]
    NoVersion(String),
    /// The kernel is too old for the probes.
    #[error("this kernel is too old: it is Linux {0}, and uvmd needs {OLDEST} or later")]
    TooOld(String),
}

/// Version of a kernel, as far as it determines its features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    fn of_release(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some(Self { major: numbers.next()?.ok()?, minor: numbers.next()?.ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Kernel that uvmd runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Release, such as `6.12.107+deb13-amd64`.
    pub release: String,
    version: Version,
}

impl Kernel {
    /// Whether memory of the probes' maps counts against the memory cgroup, and not against the
    /// limit of locked memory: from 5.11 on.
    #[must_use]
    pub fn charges_maps_to_cgroup(&self) -> bool {
        self.version >= Version { major: 5, minor: 11 }
    }
}

/// Checks that uvmd runs on this node's kernel.
///
/// # Errors
/// If it is too old, or its version is unknown.
pub fn supported(roots: &Roots) -> Result<Kernel, KernelError> {
    let release = fs::read_to_string(roots.proc.join(RELEASE)).map_err(KernelError::Unreadable)?;
    check(release.trim())
}

fn check(release: &str) -> Result<Kernel, KernelError> {
    let release = release.to_owned();
    match Version::of_release(&release) {
        None => Err(KernelError::NoVersion(release)),
        Some(version) if version < OLDEST => Err(KernelError::TooOld(release)),
        Some(version) => Ok(Kernel { release, version }),
    }
}

/// Id of this boot of the machine.
///
/// # Errors
/// If /proc lacks it.
pub fn boot_id(roots: &Roots) -> io::Result<String> {
    Ok(fs::read_to_string(roots.proc.join("sys/kernel/random/boot_id"))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    #[test]
    fn kernels_from_5_10_are_accepted() {
        for release in
            ["5.10.0", "5.10.0-28-amd64", "5.15.0-91-generic", "6.1-rc1", "6.6.87.2-microsoft-standard-WSL2", "7.0"]
        {
            let machine = Machine::new().with("proc/sys/kernel/osrelease", format!("{release}\n"));
            assert_eq!(supported(&machine.roots).unwrap().release, release);
        }
    }

    #[test]
    fn maps_are_charged_to_the_cgroup_from_5_11() {
        for (release, is_charged) in [("5.10.0-28-amd64", false), ("5.11.0", true), ("6.1.0", true)] {
            assert_eq!(check(release).unwrap().charges_maps_to_cgroup(), is_charged, "{release}");
        }
    }

    #[test]
    fn older_kernel_is_rejected_by_name() {
        assert_eq!(
            check("5.4.0-150-generic").unwrap_err().to_string(),
            "this kernel is too old: it is Linux 5.4.0-150-generic, and uvmd needs 5.10 or later"
        );
        for release in ["5.7.19", "4.18.0-553.el8_10.x86_64", "3.10.0-1160.el7.x86_64"] {
            assert!(check(release).is_err(), "{release}");
        }
    }

    #[test]
    fn malformed_kernel_version_is_an_error() {
        for release in ["", "linux", "5", "5.x"] {
            assert!(check(release).unwrap_err().to_string().contains("has no version"), "{release}");
        }
        let error = supported(&Machine::new().roots).unwrap_err().to_string();
        assert!(error.contains("/proc/sys/kernel/osrelease"), "{error}");
    }

    #[test]
    fn readme_states_the_same_requirement() {
        assert!(include_str!("../../README.md").contains(&format!("Linux {OLDEST} or later")));
    }
}

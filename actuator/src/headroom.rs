//! Host memory that a process may still take without a shortage: the smaller of the node's
//! available memory and the rest up to the limit of each cgroup above the process.
//!
//! The driver charges the host memory of managed pages to their process, and at a cgroup's limit
//! the kernel does not fail the call, it kills. In a cgroup, file cache without recent use
//! (`inactive_file`) counts as free, as for the kubelet: the kernel drops it before it kills.

use std::path::Path;

use sys::{Roots, host_memory::HostMemory, process_reads};

use crate::cgroup::{Cgroup, Version, read_optional};

/// Headroom of the process with this id.
pub(crate) fn of(roots: &Roots, pid: u32) -> Option<u64> {
    Some(HostMemory::read(roots)?.available_bytes.min(of_cgroups(roots, pid)?))
}

/// Headroom up to the limits of its cgroups alone. `None` if it is unknown: the process has exited, its
/// cgroups are not visible, or its user has used up the time for such reads.
#[must_use]
pub fn of_cgroups(roots: &Roots, pid: u32) -> Option<u64> {
    let own = roots.clone();
    let read = move || Ok(Cgroup::of(&own, pid)?.and_then(|cgroups| min_headroom(&cgroups)));
    process_reads::read_cgroups(roots, pid, read).ok()?
}

/// Minimum left in these cgroups and in those above them.
pub(crate) fn min_headroom(cgroups: &[Cgroup]) -> Option<u64> {
    cgroups.iter().try_fold(u64::MAX, |least, cgroup| Some(least.min(cgroup_headroom(cgroup)?)))
}

/// Names of the same files in the two versions.
struct Names {
    limits: &'static [&'static str],
    used: &'static str,
    /// Key in memory.stat.
    unused_files: &'static str,
}

const VERSION_2: Names =
    Names { limits: &["memory.max", "memory.high"], used: "memory.current", unused_files: "inactive_file" };
const VERSION_1: Names =
    Names { limits: &["memory.limit_in_bytes"], used: "memory.usage_in_bytes", unused_files: "total_inactive_file" };

/// Minimum left in a cgroup and in those above it.
fn cgroup_headroom(cgroup: &Cgroup) -> Option<u64> {
    let names = match cgroup.version {
        Version::One => &VERSION_1,
        Version::Two => &VERSION_2,
    };
    let mut least = u64::MAX;
    for folder in cgroup.upwards() {
        if !folder.is_dir() {
            // The tree's root is missing if it is not mounted, and then has no limit.
            return cgroup.is_root(&folder).then_some(least);
        }
        least = least.min(headroom_in(names, &folder)?);
    }
    Some(least)
}

fn headroom_in(names: &Names, folder: &Path) -> Option<u64> {
    let mut limit = u64::MAX;
    for name in names.limits {
        // A root has no limit, and neither has a cgroup without the memory controller.
        if let Some(text) = read_optional(&folder.join(name))? {
            limit = limit.min(if text.trim() == "max" { u64::MAX } else { text.trim().parse().ok()? });
        }
    }
    // In version 1, the largest number of whole pages means no limit.
    if limit >= i64::MAX.unsigned_abs() - u64::from(u16::MAX) {
        return Some(u64::MAX);
    }
    let used: u64 = read_optional(&folder.join(names.used))??.trim().parse().ok()?;
    let unused_files = read_optional(&folder.join("memory.stat"))?
        .and_then(|stat| field(&stat, names.unused_files))
        .unwrap_or_default();
    Some(limit.saturating_sub(used.saturating_sub(unused_files)))
}

/// Number that follows a name, in a text of such lines.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use sys::fake::Machine;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn machine(cgroup: &str) -> Machine {
        Machine::new()
            .with("proc/meminfo", format!("MemTotal: 999999 kB\nMemAvailable: {} kB\n", 1000 * MIB / 1024))
            .with("proc/42/cgroup", cgroup)
    }

    fn limited(machine: &Machine, folder: &str, max: &str, high: &str, used_mib: u64) {
        let write = |name: &str, text: String| machine.write(&format!("sys/fs/cgroup/{folder}/{name}"), text);
        write("memory.max", format!("{max}\n"));
        write("memory.high", format!("{high}\n"));
        write("memory.current", format!("{}\n", used_mib * MIB));
    }

    fn headroom_mib(machine: &Machine) -> Option<u64> {
        of(&machine.roots, 42).map(|bytes| bytes / MIB)
    }

    fn mib(count: u64) -> String {
        (count * MIB).to_string()
    }

    #[test]
    fn unlimited_headroom_is_the_nodes_available_memory() {
        let machine = machine("0::/a/b\n");
        limited(&machine, "a", "max", "max", 10);
        // A cgroup without the memory controller has no such files.
        machine.write("sys/fs/cgroup/a/b/cgroup.procs", "42\n");
        assert_eq!(headroom_mib(&machine), Some(1000));
    }

    #[test]
    fn headroom_is_the_minimum_over_ancestor_cgroups() {
        let machine = machine("0::/pods/pod1/app\n");
        limited(&machine, "pods", &mib(500), "max", 100);
        limited(&machine, "pods/pod1", &mib(300), "max", 50);
        limited(&machine, "pods/pod1/app", "max", "max", 50);
        assert_eq!(headroom_mib(&machine), Some(250));
        limited(&machine, "pods/pod1/app", "max", &mib(60), 50);
        assert_eq!(headroom_mib(&machine), Some(10), "where it would be slowed down it is too much already");
        limited(&machine, "pods", &mib(500), "max", 501);
        assert_eq!(headroom_mib(&machine), Some(0));
    }

    #[test]
    fn inactive_file_cache_counts_as_free() {
        let machine = machine("0::/a\n");
        limited(&machine, "a", &mib(100), "max", 95);
        assert_eq!(headroom_mib(&machine), Some(5));
        machine.write("sys/fs/cgroup/a/memory.stat", format!("anon 1\nactive_file 7\ninactive_file {}\n", 60 * MIB));
        assert_eq!(headroom_mib(&machine), Some(65));
    }

    #[test]
    fn cgroup_v1_headroom_is_read() {
        let machine = machine("5:cpu,cpuacct:/other\n4:hugetlb,memory:/docker/abc\n0::/system.slice\n");
        let write = |name: &str, text: String| machine.write(&format!("sys/fs/cgroup/memory/{name}"), text);
        machine.write("sys/fs/cgroup/unified/system.slice/cgroup.procs", "");
        write("memory.limit_in_bytes", "9223372036854771712\n".to_owned());
        write("memory.usage_in_bytes", mib(1));
        write("docker/memory.limit_in_bytes", mib(400));
        write("docker/memory.usage_in_bytes", mib(100));
        write("docker/memory.stat", format!("inactive_file 0\ntotal_inactive_file {}\n", 20 * MIB));
        write("docker/abc/memory.limit_in_bytes", "9223372036854771712\n".to_owned());
        assert_eq!(headroom_mib(&machine), Some(320));
        // With large pages, the largest number of whole ones differs.
        write("docker/memory.limit_in_bytes", (i64::MAX / 65536 * 65536).to_string());
        assert_eq!(headroom_mib(&machine), Some(1000));
    }

    #[test]
    fn unreadable_limits_yield_no_headroom() {
        // Cgroups of a process outside this one's namespace, of one in a removed cgroup, and of none.
        for cgroup in ["0::/../../other\n", "0::/gone\n", "nonsense\n"] {
            let machine = machine(cgroup);
            machine.write("sys/fs/cgroup/cgroup.procs", "");
            assert_eq!(headroom_mib(&machine), None, "{cgroup}");
        }
        assert_eq!(of(&machine("0::/\n").roots, 43), None);
        assert_eq!(of(&Machine::new().with("proc/42/cgroup", "0::/\n").roots, 42), None);
        let broken = machine("0::/a\n");
        limited(&broken, "a", "many", "max", 0);
        assert_eq!(headroom_mib(&broken), None);
    }
}

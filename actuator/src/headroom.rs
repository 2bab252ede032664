//! How much host memory a process may still take before anybody runs out of it: the smaller of what the node has available and what is left up to the
//! limit of each cgroup above the process.
//!
//! The driver charges the host memory of managed pages to their process, and where a cgroup is at its limit the kernel does not refuse, it kills. In
//! a cgroup, files that nobody used lately (`inactive_file`) count as free, as they do for the kubelet: the kernel drops them before it kills.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use model::ProcessId;
use sys::Roots;

use crate::process::is_alive;

/// Bytes it may still take; `None` if that cannot be told, as of a process that has ended, or of one whose cgroups this process does not see.
#[must_use]
pub fn bytes(roots: &Roots, process: ProcessId) -> Option<u64> {
    is_alive(roots, process).unwrap_or(false).then(|| of(roots, process.pid)).flatten()
}

/// Bytes that all processes of the node together may still take.
#[must_use]
pub fn of_node(roots: &Roots) -> Option<u64> {
    let meminfo = fs::read_to_string(roots.proc.join("meminfo")).ok()?;
    field(&meminfo, "MemAvailable:")?.checked_mul(1024)
}

/// Of whichever process has this id.
pub(crate) fn of(roots: &Roots, pid: u32) -> Option<u64> {
    let available = of_node(roots)?;
    let cgroups = fs::read(roots.proc.join(pid.to_string()).join("cgroup")).ok()?;
    let cgroups = String::from_utf8(cgroups).ok()?;
    hierarchies(roots, &cgroups)?
        .into_iter()
        .try_fold(available, |least, hierarchy| Some(least.min(hierarchy.headroom()?)))
}

/// Where a process is in the tree of one version.
#[derive(Debug)]
struct Hierarchy {
    root: PathBuf,
    /// Relative to the root.
    path: PathBuf,
    names: &'static Names,
}

/// What the two versions call the same things.
#[derive(Debug)]
struct Names {
    limits: &'static [&'static str],
    used: &'static str,
    /// In memory.stat.
    unused_files: &'static str,
}

const VERSION_2: Names =
    Names { limits: &["memory.max", "memory.high"], used: "memory.current", unused_files: "inactive_file" };
const VERSION_1: Names =
    Names { limits: &["memory.limit_in_bytes"], used: "memory.usage_in_bytes", unused_files: "total_inactive_file" };

/// By a text such as /proc/PID/cgroup. `None` where the process is in a cgroup that is not to be seen from here: of a namespace beside this one.
fn hierarchies(roots: &Roots, cgroups: &str) -> Option<Vec<Hierarchy>> {
    let mount = roots.sys.join("fs/cgroup");
    let mut found = Vec::new();
    for line in cgroups.lines() {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (root, names) = match controllers {
            // Where version 1 has the place itself, version 2 is in a folder of its own.
            "" if mount.join("unified").is_dir() => (mount.join("unified"), &VERSION_2),
            "" => (mount.clone(), &VERSION_2),
            list if list.split(',').any(|name| name == "memory") => (mount.join("memory"), &VERSION_1),
            _ => continue,
        };
        let path = Path::new(path).strip_prefix("/").ok()?;
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        found.push(Hierarchy { root, path: path.to_owned(), names });
    }
    Some(found)
}

impl Hierarchy {
    /// The least that is left in the process's cgroup and in those above it.
    fn headroom(&self) -> Option<u64> {
        let mut least = u64::MAX;
        for above in self.path.ancestors() {
            let folder = self.root.join(above);
            if !folder.is_dir() {
                // The tree's root is not there where nothing is mounted, and then there is no limit in it either.
                return above.as_os_str().is_empty().then_some(least);
            }
            least = least.min(self.headroom_in(&folder)?);
        }
        Some(least)
    }

    fn headroom_in(&self, folder: &Path) -> Option<u64> {
        let mut limit = u64::MAX;
        for name in self.names.limits {
            // A root has none, and a cgroup that leaves memory alone.
            if let Some(text) = if_there(&folder.join(name))? {
                limit = limit.min(if text.trim() == "max" { u64::MAX } else { text.trim().parse().ok()? });
            }
        }
        // Version 1 writes the largest number of whole pages for none.
        if limit >= i64::MAX.unsigned_abs() - u64::from(u16::MAX) {
            return Some(u64::MAX);
        }
        let used: u64 = if_there(&folder.join(self.names.used))??.trim().parse().ok()?;
        let unused_files = if_there(&folder.join("memory.stat"))?
            .and_then(|stat| field(&stat, self.names.unused_files))
            .unwrap_or_default();
        Some(limit.saturating_sub(used.saturating_sub(unused_files)))
    }
}

/// What a file says; `Some(None)` where there is none.
#[expect(clippy::option_option, reason = "a file that is not there and one that cannot be read are two things")]
fn if_there(path: &Path) -> Option<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Some(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(None),
        Err(_) => None,
    }
}

/// The number behind a name, in a text of a line for each.
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
    fn without_limits_it_is_what_the_node_has_available() {
        let machine = machine("0::/a/b\n");
        limited(&machine, "a", "max", "max", 10);
        // One that leaves memory alone has no such files.
        machine.write("sys/fs/cgroup/a/b/cgroup.procs", "42\n");
        assert_eq!(headroom_mib(&machine), Some(1000));
    }

    #[test]
    fn the_smallest_of_all_cgroups_above_counts() {
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
    fn files_that_nobody_used_lately_count_as_free() {
        let machine = machine("0::/a\n");
        limited(&machine, "a", &mib(100), "max", 95);
        assert_eq!(headroom_mib(&machine), Some(5));
        machine.write("sys/fs/cgroup/a/memory.stat", format!("anon 1\nactive_file 7\ninactive_file {}\n", 60 * MIB));
        assert_eq!(headroom_mib(&machine), Some(65));
    }

    #[test]
    fn version_1_is_read_too() {
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
        // Where large pages are, the largest number of whole ones is another.
        write("docker/memory.limit_in_bytes", (i64::MAX / 65536 * 65536).to_string());
        assert_eq!(headroom_mib(&machine), Some(1000));
    }

    #[test]
    fn where_the_limits_cannot_be_seen_there_is_no_figure() {
        // Of a process beside this one's namespace, of one in a cgroup that is gone, and of no process.
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

    #[test]
    fn this_process_has_some() {
        let stat = procfs::process::Process::myself().unwrap().stat().unwrap();
        let own = ProcessId { pid: std::process::id(), start_ticks: stat.starttime };
        let roots = Roots::default();
        assert!(bytes(&roots, own).is_none_or(|bytes| bytes > 0));
        assert_eq!(bytes(&roots, ProcessId { start_ticks: own.start_ticks + 1, ..own }), None);
    }
}

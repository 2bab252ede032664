//! Who a process is, from /proc.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use abi::Lifecycle;
use model::ProcessId;
use procfs::process::Process;

use crate::roots::Roots;

/// What is shown of a process beside its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) cgroup: Option<PathBuf>,
    pub(crate) started: Option<SystemTime>,
}

/// Who made a VA space. The record is enough to name the process, but /proc knows more, if the process is still there.
pub(crate) fn of_record(roots: &Roots, record: &Lifecycle) -> (ProcessId, Identity) {
    let start_ticks = match record.start_boottime_ns {
        // The probe could not tell; whoever has the pid now is most likely it.
        0 => open(roots, record.tgid).and_then(|process| process.stat().ok()).map_or(0, |stat| stat.starttime),
        ns => ns / (1_000_000_000 / procfs::ticks_per_second().max(1)),
    };
    let id = ProcessId { pid: record.tgid, start_ticks };
    let identity = read(roots, id).unwrap_or_else(|| Identity {
        name: comm(&record.comm),
        uid: record.uid,
        cgroup: None,
        started: started(roots, start_ticks),
    });
    (id, identity)
}

/// What /proc says of a process now; `None` if it is gone, or if another process has its pid.
pub(crate) fn read(roots: &Roots, id: ProcessId) -> Option<Identity> {
    // Opened once, so that all that follows is read of the same process.
    let process = open(roots, id.pid)?;
    let stat = process.stat().ok()?;
    // A zombie has given back all that it had, and waits for its parent; but its other threads may outlive the first.
    let is_dead = matches!(stat.state, 'Z' | 'X') && stat.num_threads <= 1;
    if is_dead || stat.starttime != id.start_ticks {
        return None;
    }
    Some(Identity {
        name: stat.comm,
        uid: process.status().ok()?.ruid,
        cgroup: cgroup(&process),
        started: started(roots, id.start_ticks),
    })
}

fn open(roots: &Roots, pid: u32) -> Option<Process> {
    Process::new_with_root(roots.proc.join(pid.to_string())).ok()
}

/// The memory controller's path of version 1 where that is in use, or else the unified hierarchy's.
fn cgroup(process: &Process) -> Option<PathBuf> {
    let groups = process.cgroups().ok()?.0;
    let unified = groups.iter().find(|group| group.hierarchy == 0);
    let memory = groups.iter().find(|group| group.controllers.iter().any(|controller| controller == "memory"));
    memory.or(unified).map(|group| PathBuf::from(&group.pathname))
}

/// The time that a number of ticks since boot was.
fn started(roots: &Roots, start_ticks: u64) -> Option<SystemTime> {
    if start_ticks == 0 {
        return None;
    }
    let ticks_per_second = procfs::ticks_per_second().max(1);
    let since_boot = Duration::from_millis(start_ticks.saturating_mul(1000) / ticks_per_second);
    boot_time(&roots.proc.join("stat"))?.checked_add(since_boot)
}

/// `btime` of /proc/stat. (The crate's reader wants all of that file, which grows with the machine.)
fn boot_time(path: &Path) -> Option<SystemTime> {
    let text = fs::read_to_string(path).ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn comm(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::fake::Machine;

    const BOOT_SECONDS: u64 = 1_700_000_000;

    fn stat(pid: u32, state: char, start_ticks: u64) -> String {
        let zeros = "0 ".repeat(18);
        format!("{pid} (my app) {state} {zeros}{start_ticks} {}\n", "0 ".repeat(30))
    }

    fn machine() -> Machine {
        Machine::new()
            .with("proc/stat", format!("cpu  1 2 3\nbtime {BOOT_SECONDS}\nprocesses 4\n"))
            .with("proc/42/stat", stat(42, 'S', 500))
            .with(
                "proc/42/status",
                fs::read_to_string("/proc/self/status").unwrap().replace(
                    fs::read_to_string("/proc/self/status")
                        .unwrap()
                        .lines()
                        .find(|line| line.starts_with("Uid:"))
                        .unwrap(),
                    "Uid:\t1000\t0\t0\t0",
                ),
            )
            .with("proc/42/cgroup", "0::/kubepods/pod1\n")
    }

    fn record(pid: u32, start_ticks: u64) -> Lifecycle {
        Lifecycle {
            tgid: pid,
            start_boottime_ns: start_ticks * 1_000_000_000 / procfs::ticks_per_second() + 1,
            uid: 7,
            comm: *b"worker\0\0\0\0\0\0\0\0\0\0",
            ..Lifecycle::default()
        }
    }

    #[test]
    fn a_running_process_is_what_proc_says() {
        let (id, identity) = of_record(&machine().roots, &record(42, 500));
        assert_eq!(id, ProcessId { pid: 42, start_ticks: 500 });
        let since_boot = Duration::from_secs(500 / procfs::ticks_per_second());
        let expected = Identity {
            name: "my app".to_owned(),
            uid: 1000,
            cgroup: Some("/kubepods/pod1".into()),
            started: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(BOOT_SECONDS) + since_boot),
        };
        assert_eq!(identity, expected);
    }

    #[test]
    fn a_process_that_is_gone_is_what_its_record_says() {
        let machine = machine();
        let gone = of_record(&machine.roots, &record(43, 600));
        assert_eq!(gone.0, ProcessId { pid: 43, start_ticks: 600 });
        assert_eq!((gone.1.name.as_str(), gone.1.uid, gone.1.cgroup), ("worker", 7, None));
        assert!(gone.1.started.is_some());
    }

    #[test]
    fn another_process_with_the_same_pid_is_not_it() {
        let (id, identity) = of_record(&machine().roots, &record(42, 499));
        assert_eq!(id.start_ticks, 499);
        assert_eq!(identity.name, "worker");
        assert_eq!(read(&machine().roots, ProcessId { pid: 42, start_ticks: 499 }), None);
    }

    #[test]
    fn a_zombie_is_gone() {
        let machine = machine().with("proc/42/stat", stat(42, 'Z', 500));
        assert_eq!(read(&machine.roots, ProcessId { pid: 42, start_ticks: 500 }), None);
    }

    #[test]
    fn a_process_that_vanishes_while_it_is_read_is_gone() {
        let machine = machine();
        fs::remove_file(machine.roots.proc.join("42/status")).unwrap();
        assert_eq!(read(&machine.roots, ProcessId { pid: 42, start_ticks: 500 }), None);
    }

    #[test]
    fn with_version_1_the_memory_controllers_cgroup_counts() {
        let machine = machine()
            .with("proc/42/cgroup", "5:cpu,cpuacct:/other\n4:memory:/docker/abc\n0::/system.slice/containerd\n");
        let identity = read(&machine.roots, ProcessId { pid: 42, start_ticks: 500 }).unwrap();
        assert_eq!(identity.cgroup, Some("/docker/abc".into()));
    }

    #[test]
    fn without_a_start_time_in_the_record_the_pids_owner_is_taken() {
        let without = Lifecycle { start_boottime_ns: 0, ..record(42, 0) };
        assert_eq!(of_record(&machine().roots, &without).0.start_ticks, 500);
        let gone = Lifecycle { tgid: 43, ..without };
        assert_eq!(of_record(&machine().roots, &gone).0, ProcessId { pid: 43, start_ticks: 0 });
    }

    #[test]
    fn a_comm_need_not_be_utf_8() {
        assert_eq!(comm(b"a\xffb\0c"), "a\u{fffd}b");
        assert_eq!(comm(b"sixteen bytes ..."), "sixteen bytes ...");
    }
}

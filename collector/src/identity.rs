//! Identity of processes, from /proc.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use abi::Lifecycle;
use model::{Degradation, DegradedReason, Owner, ProcessId};
use procfs::{ProcError, ProcResult, ProcessCGroups, prelude::FromRead, process::Process};
use sys::{
    Roots, cgroup_namespace, private_proc,
    process_reads::{self, Hung},
    processes,
};

use crate::{id_list, owner};

/// Initial pid namespace, as in /proc/self/ns/pid (`PROC_PID_INIT_INO` of the kernel).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Interval of reads of the boot time, as the clock may be set.
const BOOT_READ_EVERY: Duration = Duration::from_secs(1);
/// Limit of a cgroup file: a path has at most 4 KiB, and there is a line per hierarchy.
const CGROUPS_MAX_BYTES: u64 = 256 << 10;

/// Facts about a process beside its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) cgroup: Option<PathBuf>,
    pub(crate) owner: Owner,
    /// Start by the clock when the process was first seen; `None` when it is read later.
    pub(crate) started: Option<SystemTime>,
}

/// Current state of a process in /proc.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and taken apart at once")]
pub(crate) enum Sighting {
    Here(Identity),
    /// Ended, or another process has its pid.
    Gone,
    /// /proc could not be read, or hides such processes from uvmd.
    Unknown,
}

/// Reader of the identities of processes.
#[derive(Debug)]
pub(crate) struct Processes {
    roots: Roots,
    /// Whether uvmd is in the initial pid namespace, as the probes' pids are; in another one the
    /// same pid is another process.
    pids_are_global: bool,
    /// Whether uvmd is in another cgroup namespace than that of the node, where paths of cgroups are incomplete.
    cgroups_are_foreign: bool,
    /// Whether users can lock folders of /proc; `None` if that is unknown.
    proc_is_shared: Option<bool>,
    /// Time of boot, and the time of its reading: /proc/stat grows with the machine.
    boot: Option<(Instant, SystemTime)>,
}

impl Processes {
    pub(crate) fn new(roots: &Roots) -> Self {
        let namespace = fs::read_link(roots.proc.join("self/ns/pid"));
        // A missing file is no evidence against it.
        let pids_are_global = namespace.map_or(true, |namespace| namespace == Path::new(INITIAL_PID_NAMESPACE));
        let proc_is_shared = private_proc::is_shared(roots);
        let cgroups_are_foreign = cgroup_namespace::is_foreign(roots);
        let processes = Self { roots: roots.clone(), pids_are_global, cgroups_are_foreign, proc_is_shared, boot: None };
        let degradation = processes.degradation().map(|degradation| degradation.description);
        for warning in processes.warnings().chain(degradation) {
            tracing::warn!("{warning}");
        }
        processes
    }

    /// Reasons why its information is limited, or in the hands of others.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let namespace = "uvmd runs in a pid namespace of its own, so the end of processes, their cgroups and later names are not known: \
             run it in the host's (hostPID: true, or --pid=host)";
        let shared = "/proc is that of all users, who can lock its folders, and then uvmd hangs: run it as root or by its unit, with Linux 5.8 or \
             later";
        let unknown = "it is unknown whether /proc is that of all users, who can lock its folders, so that uvmd hangs: run it with the \
             capability CAP_SYS_PTRACE";
        let of_proc = match self.proc_is_shared {
            Some(true) => Some(shared),
            Some(false) => None,
            None => Some(unknown),
        };
        let reasons = [(!self.pids_are_global).then_some(namespace), of_proc];
        reasons.into_iter().flatten().map(str::to_owned)
    }

    /// Reason why owners may be wrong.
    pub(crate) fn degradation(&self) -> Option<Degradation> {
        self.cgroups_are_foreign.then(|| Degradation {
            reason: DegradedReason::CgroupNamespace,
            uid: None,
            user: None,
            pid: None,
            description: "uvmd runs in a cgroup namespace of its own, so pods, jobs, containers and units may be unknown or wrong: run it with \
                          CAP_SYS_ADMIN and the host's pid namespace, or in the host's cgroup namespace (--cgroupns=host)"
                .to_owned(),
        })
    }

    /// Reason why the state of some processes is not known.
    pub(crate) fn hung_reads() -> Option<String> {
        hung_reads(&process_reads::hung())
    }

    /// Process that made a VA space.
    pub(crate) fn id(&self, record: &Lifecycle) -> ProcessId {
        let start_ticks = match record.start_boottime_ns {
            // The probe did not know; the process that has the pid now is most likely the one.
            0 => self.start_ticks(record.tgid).unwrap_or(0),
            ns => ns / (1_000_000_000 / procfs::ticks_per_second().max(1)),
        };
        ProcessId { pid: record.tgid, start_ticks }
    }

    /// Identity of that process. The record names it, and /proc has more while it lives.
    pub(crate) fn of_record(&mut self, id: ProcessId, record: &Lifecycle) -> Identity {
        match self.read(id) {
            Sighting::Here(identity) => Identity { started: self.started(id), ..identity },
            Sighting::Gone | Sighting::Unknown => self.named_by(id, record),
        }
    }

    /// Identity of that process, by the record alone.
    pub(crate) fn named_by(&mut self, id: ProcessId, record: &Lifecycle) -> Identity {
        let started = self.started(id);
        Identity { name: comm(&record.comm), uid: record.uid, cgroup: None, owner: Owner::default(), started }
    }

    /// Start time of a process, by the clock as it is set now, or was a moment ago.
    fn started(&mut self, id: ProcessId) -> Option<SystemTime> {
        if id.start_ticks == 0 {
            return None;
        }
        let now = Instant::now();
        let read = self.boot.filter(|(at, _)| now.duration_since(*at) < BOOT_READ_EVERY);
        let (_, boot) = read.or_else(|| Some((now, boot_time(&self.roots.proc.join("stat"))?)))?;
        self.boot = read.or(Some((now, boot)));
        boot.checked_add(since_boot(id.start_ticks))
    }

    /// Reads the current state of a process.
    pub(crate) fn read(&self, id: ProcessId) -> Sighting {
        if !self.pids_are_global {
            return Sighting::Unknown;
        }
        match self.try_read(id) {
            Ok(Some(identity)) => Sighting::Here(identity),
            Ok(None) => Sighting::Gone,
            // With hidepid=2 live processes give this error too; process 1 exists as long as the
            // machine is up.
            Err(ProcError::NotFound(_)) if self.roots.proc.join("1").exists() => Sighting::Gone,
            Err(error) => {
                tracing::debug!(pid = id.pid, "cannot look at a process: {error}");
                Sighting::Unknown
            }
        }
    }

    /// Identity of a process; `None` if it has exited.
    fn try_read(&self, id: ProcessId) -> ProcResult<Option<Identity>> {
        // Opened once, so that all further reads are of the same process. The read after that of its user fails
        // if it has ended, so the user is not that of a later process with its pid.
        let process = Arc::new(self.open(id.pid)?);
        let uid = processes::user(&self.roots, id.pid);
        let reader = Arc::clone(&process);
        let stat = process_reads::read(&self.roots, id.pid, move || Ok(reader.stat()))??;
        // A zombie has released its resources, and waits for its parent; but its other threads may
        // outlive the first.
        let is_dead = matches!(stat.state, 'Z' | 'X') && stat.num_threads <= 1;
        // A process of unknown start time cannot be distinguished from another one.
        let is_another = id.start_ticks != 0 && stat.starttime != id.start_ticks;
        if is_dead || is_another {
            return Ok(None);
        }
        let Some(uid) = uid else {
            // It has ended, or its user is not readable.
            process.open_relative("status")?;
            return Err(ProcError::Other("its user is unknown".to_owned()));
        };
        let read = move || Ok(cgroup(&process).unwrap_or_default());
        let (cgroup, owner) = process_reads::read_cgroup_path(&self.roots, id.pid, read)?;
        Ok(Some(Identity { name: stat.comm, uid, cgroup, owner, started: None }))
    }

    fn start_ticks(&self, pid: u32) -> Option<u64> {
        self.pids_are_global.then(|| processes::start_ticks(&self.roots, pid).ok().flatten()).flatten()
    }

    fn open(&self, pid: u32) -> ProcResult<Process> {
        Process::new_with_root(self.roots.proc.join(pid.to_string()))
    }
}

fn hung_reads(hung: &Hung) -> Option<String> {
    let of = match hung.pids.len() + hung.ended {
        0 => return None,
        1 => "a process".to_owned(),
        count => format!("{count} processes"),
    };
    let named = match (id_list::of(hung.pids.iter().copied()), hung.ended) {
        (pids, 0) => format!("pid {pids}"),
        (pids, ended) if pids.is_empty() => format!("{ended} ended"),
        (pids, ended) => format!("pid {pids}; {ended} ended"),
    };
    Some(format!(
        "reads of files of {of} in /proc, or of cgroups, hang ({named}): one that has not ended counts as alive, and its new name or program is not known; so it \
         is with other processes of the same user while too many hang"
    ))
}

/// Path of the memory controller in version 1 if it is in use, otherwise of the unified hierarchy;
/// and the owner by the paths of all hierarchies.
fn cgroup(process: &Process) -> ProcResult<(Option<PathBuf>, Owner)> {
    let mut text = Vec::new();
    process.open_relative("cgroup")?.take(CGROUPS_MAX_BYTES).read_to_end(&mut text)?;
    // A cgroup's name may not be UTF-8; such a one does not hide others.
    let mut groups = ProcessCGroups::from_read(String::from_utf8_lossy(&text).as_bytes())?.0;
    groups.sort_by_key(|group| (!group.controllers.iter().any(|controller| controller == "memory"), group.hierarchy));
    let owner = owner::of_paths(groups.iter().map(|group| group.pathname.as_str()));
    let first = groups.first().filter(|group| group.hierarchy == 0 || group.controllers.iter().any(|c| c == "memory"));
    Ok((first.map(|group| PathBuf::from(&group.pathname)), owner))
}

/// Calendar time of a number of ticks since boot, by the current clock.
fn since_boot(start_ticks: u64) -> Duration {
    Duration::from_millis(start_ticks.saturating_mul(1000) / procfs::ticks_per_second().max(1))
}

/// Boot time from `btime` of /proc/stat. (The crate's reader parses the whole file, which grows
/// with the machine.)
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
    use model::OwnerKey;
    use sys::fake::Machine;

    use super::*;

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

    const ID: ProcessId = ProcessId { pid: 42, start_ticks: 500 };

    fn of_record(machine: &Machine, record: &Lifecycle) -> (ProcessId, Identity) {
        let mut processes = Processes::new(&machine.roots);
        let id = processes.id(record);
        (id, processes.of_record(id, record))
    }

    fn read(machine: &Machine, id: ProcessId) -> Sighting {
        Processes::new(&machine.roots).read(id)
    }

    #[test]
    fn running_process_is_identified_by_proc() {
        let (id, identity) = of_record(&machine(), &record(42, 500));
        assert_eq!(id, ID);
        let since_boot = Duration::from_secs(500 / procfs::ticks_per_second());
        let expected = Identity {
            name: "my app".to_owned(),
            uid: 1000,
            cgroup: Some("/kubepods/pod1".into()),
            owner: Owner::default(),
            started: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(BOOT_SECONDS) + since_boot),
        };
        assert_eq!(identity, expected);
        assert_eq!(read(&machine(), ID), Sighting::Here(Identity { started: None, ..expected }));
    }

    #[test]
    fn exited_process_is_identified_by_its_record() {
        let machine = machine();
        let exited = of_record(&machine, &record(43, 600));
        assert_eq!(exited.0, ProcessId { pid: 43, start_ticks: 600 });
        assert_eq!((exited.1.name.as_str(), exited.1.uid, exited.1.cgroup), ("worker", 7, None));
        assert!(exited.1.started.is_some());
        assert_eq!(read(&machine, exited.0), Sighting::Gone);
    }

    #[test]
    fn reused_pid_means_that_the_process_has_exited() {
        let (id, identity) = of_record(&machine(), &record(42, 499));
        assert_eq!(id.start_ticks, 499);
        assert_eq!(identity.name, "worker");
        assert_eq!(read(&machine(), id), Sighting::Gone);
    }

    #[test]
    fn zombie_has_exited() {
        let machine = machine().with("proc/42/stat", stat(42, 'Z', 500));
        assert_eq!(read(&machine, ID), Sighting::Gone);
    }

    #[test]
    fn process_that_vanishes_during_the_read_has_exited() {
        let machine = machine();
        fs::remove_file(machine.roots.proc.join("42/status")).unwrap();
        assert_eq!(read(&machine, ID), Sighting::Gone);
    }

    #[test]
    fn name_that_is_no_text_hides_no_cgroup() {
        let name = b"Name:\ta\xffb\nUid:\t1000\t0\t0\t0\n";
        let Sighting::Here(identity) = read(&machine().with("proc/42/status", name), ID) else { panic!() };
        assert_eq!((identity.uid, identity.cgroup), (1000, Some("/kubepods/pod1".into())));
    }

    #[test]
    fn process_with_an_unreadable_stat_is_unknown() {
        // A malformed file; and a folder in the place of a file, which fails as EACCES and EMFILE
        // do.
        let machine = machine().with("proc/42/stat", "42 (my app");
        assert_eq!(read(&machine, ID), Sighting::Unknown);
        fs::remove_file(machine.roots.proc.join("42/stat")).unwrap();
        machine.write("proc/42/stat/x", "");
        assert_eq!(read(&machine, ID), Sighting::Unknown);
    }

    #[test]
    fn hidden_process_is_unknown() {
        let machine = machine();
        machine.remove("proc/1");
        assert_eq!(read(&machine, ProcessId { pid: 43, start_ticks: 600 }), Sighting::Unknown);
    }

    #[test]
    fn other_pid_namespace_is_reported_and_its_proc_is_not_read() {
        let machine = machine();
        machine.link("proc/1/root/proc", "/proc");
        assert_eq!(Processes::new(&machine.roots).warnings().next(), None);
        machine.link("proc/self/ns/pid", INITIAL_PID_NAMESPACE);
        assert_eq!(Processes::new(&machine.roots).warnings().next(), None);
        fs::remove_file(machine.roots.proc.join("self/ns/pid")).unwrap();
        machine.link("proc/self/ns/pid", "pid:[4026532447]");
        let mut processes = Processes::new(&machine.roots);
        assert!(processes.warnings().next().unwrap().contains("hostPID"));
        assert_eq!(processes.read(ID), Sighting::Unknown);
        assert_eq!(processes.of_record(ID, &record(42, 500)).name, "worker");
    }

    #[test]
    fn cgroup_namespace_of_its_own_is_a_degradation() {
        let machine = machine();
        assert_eq!(Processes::new(&machine.roots).degradation(), None);
        machine.link("proc/self/ns/cgroup", "cgroup:[4026532999]");
        let degradation = Processes::new(&machine.roots).degradation().unwrap();
        assert_eq!(degradation.reason, DegradedReason::CgroupNamespace);
        assert!(degradation.description.contains("--cgroupns=host"), "{}", degradation.description);
    }

    #[test]
    fn proc_that_users_can_lock_is_reported() {
        let machine = machine();
        let warning = || Processes::new(&machine.roots).warnings().next();
        assert!(warning().unwrap().contains("it is unknown whether /proc is that of all users"));
        fs::create_dir_all(machine.roots.proc.join("1/root/proc")).unwrap();
        assert!(warning().unwrap().starts_with("/proc is that of all users"));
        fs::remove_dir(machine.roots.proc.join("1/root/proc")).unwrap();
        machine.link("proc/1/root/proc", "/proc");
        assert_eq!(warning(), None);
    }

    #[test]
    fn processes_with_hung_reads_are_named() {
        let hung_reads = |pids: &[u32], ended| hung_reads(&Hung { pids: pids.to_vec(), ended });
        assert_eq!(hung_reads(&[], 0), None);
        let warning = hung_reads(&[7], 0).unwrap();
        assert!(warning.contains("of a process in /proc, or of cgroups, hang (pid 7)"), "{warning}");
        let warning = hung_reads(&[7, 8, 9, 10, 11], 0).unwrap();
        assert!(warning.contains("of 5 processes in /proc, or of cgroups, hang (pid 7, 8, 9, 10, ...)"), "{warning}");
        assert!(hung_reads(&[7], 2).unwrap().contains("of 3 processes in /proc, or of cgroups, hang (pid 7; 2 ended)"));
        assert!(hung_reads(&[], 1).unwrap().contains("of a process in /proc, or of cgroups, hang (1 ended)"));
    }

    #[test]
    fn cgroup_v1_path_is_that_of_the_memory_controller() {
        let machine = machine()
            .with("proc/42/cgroup", "5:cpu,cpuacct:/other\n4:memory:/docker/abc\n0::/system.slice/containerd\n");
        let Sighting::Here(identity) = read(&machine, ID) else { panic!() };
        assert_eq!(identity.cgroup, Some("/docker/abc".into()));
    }

    #[test]
    fn owner_comes_from_the_most_specific_cgroup() {
        let job = "/slurm/uid_1000/job_7/step_0/task_0";
        let machine = machine().with("proc/42/cgroup", format!("9:devices:{job}\n4:memory:/\n0::/user.slice\n"));
        let Sighting::Here(identity) = read(&machine, ID) else { panic!() };
        assert_eq!(identity.cgroup, Some("/".into()));
        assert_eq!(identity.owner.key(), OwnerKey::Job("7".to_owned()));
    }

    #[test]
    fn non_utf_8_cgroup_name_hides_no_other() {
        let machine = machine();
        fs::write(machine.roots.proc.join("42/cgroup"), b"0::/system.slice/app.service/a\xffb\n").unwrap();
        let Sighting::Here(identity) = read(&machine, ID) else { panic!() };
        assert_eq!(identity.cgroup, Some("/system.slice/app.service/a\u{fffd}b".into()));
        assert_eq!(identity.owner.key(), OwnerKey::Unit("app.service".to_owned()));
    }

    #[test]
    fn record_without_a_start_time_takes_that_of_its_pid() {
        let without = Lifecycle { start_boottime_ns: 0, ..record(42, 0) };
        assert_eq!(of_record(&machine(), &without).0.start_ticks, 500);
        let exited = Lifecycle { tgid: 43, ..without };
        assert_eq!(of_record(&machine(), &exited).0, ProcessId { pid: 43, start_ticks: 0 });
    }

    #[test]
    fn comm_may_be_invalid_utf_8() {
        assert_eq!(comm(b"a\xffb\0c"), "a\u{fffd}b");
        assert_eq!(comm(b"sixteen bytes ..."), "sixteen bytes ...");
    }
}

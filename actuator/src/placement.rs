//! Placement of actors: whether one may be started in a target's cgroup without harm to the target.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use sys::{Roots, process_reads};
use thiserror::Error;

use crate::{
    cgroup::{Cgroup, DEPTH_MAX, Version, read_optional},
    headroom,
};

/// Memory of an actor in its cgroup: some 100 KiB (docs/acting.md), and a batch of 64 pages on each
/// of two processors, as the kernel charges in advance.
pub(crate) const FOOTPRINT_BYTES: u64 = 1 << 20;
/// Processes of the cgroup's limit that are left to the target.
const PIDS_RESERVE: u64 = 8;

/// Reason why no actor may be placed.
#[derive(Debug, Error)]
pub(crate) enum PlacementError {
    #[error("its cgroup is not visible to uvmd, or more than {DEPTH_MAX} levels deep")]
    Hidden,
    #[error("its cgroup cannot be read: {}", sys::reason(.0))]
    Unread(#[source] io::Error),
    #[error("its memory is accounted by cgroups of version 1")]
    VersionOne,
    #[error("{} cannot be read", .0.display())]
    Unreadable(PathBuf),
    #[error("{} is frozen", .0.display())]
    Frozen(PathBuf),
    #[error("memory.oom.group of {} is set: at a shortage of memory, of the node too, the whole cgroup would be killed", .0.display())]
    OomGroup(PathBuf),
    #[error("pids.max of {} leaves less than {PIDS_RESERVE} processes to it", .0.display())]
    Pids(PathBuf),
    #[error("less than {} KiB are left up to its memory limit", FOOTPRINT_BYTES >> 10)]
    Memory,
    #[error("its cgroup cannot be opened: {}", sys::reason(.0))]
    NotOpened(#[source] io::Error),
    #[error("it moved to another cgroup")]
    Moved,
    /// Term for an actor's state.
    #[error("{0}")]
    NotConfined(String),
    /// Term of the kernel.
    #[error("{0}")]
    Kernel(String),
}

/// Cgroup of a target, in which a process may be started.
#[derive(Debug)]
pub(crate) struct Placement {
    /// The target.
    pid: u32,
    cgroup: Cgroup,
    folder: File,
}

impl Placement {
    /// Placement in the cgroup of this process.
    pub(crate) fn of(roots: &Roots, pid: u32) -> Result<Self, PlacementError> {
        let own = roots.clone();
        let read = move || Ok(Self::read(pid, Cgroup::of(&own, pid).ok().flatten()));
        process_reads::read_cgroups(roots, pid, read).map_err(PlacementError::Unread)?
    }

    fn read(pid: u32, cgroups: Option<Vec<Cgroup>>) -> Result<Self, PlacementError> {
        let cgroups = cgroups.ok_or(PlacementError::Hidden)?;
        let headroom = headroom::min_headroom(&cgroups);
        let cgroup = memory_cgroup(cgroups)?;
        for folder in cgroup.upwards().filter(|folder| !cgroup.is_root(folder)) {
            if is_frozen(&folder)? {
                return Err(PlacementError::Frozen(folder));
            }
            // An actor is the first OOM victim, and the whole group is killed with it: also if the
            // node is out of memory, so that no limit is needed.
            if value(&folder, "memory.oom.group")? == Some(1) {
                return Err(PlacementError::OomGroup(folder));
            }
            if let (Some(most), Some(now)) = (value(&folder, "pids.max")?, value(&folder, "pids.current")?)
                && most.saturating_sub(now) <= PIDS_RESERVE
            {
                return Err(PlacementError::Pids(folder));
            }
        }
        if headroom.ok_or(PlacementError::Hidden)? < FOOTPRINT_BYTES {
            return Err(PlacementError::Memory);
        }
        let folder = File::open(cgroup.folder()).map_err(PlacementError::NotOpened)?;
        Ok(Self { pid, cgroup, folder })
    }

    /// Whether this process is in it.
    pub(crate) fn contains(&self, roots: &Roots, pid: u32) -> bool {
        let own = roots.clone();
        let cgroups = process_reads::read_cgroups(roots, pid, move || Cgroup::of(&own, pid));
        let cgroup = cgroups.ok().flatten().and_then(|cgroups| memory_cgroup(cgroups).ok());
        cgroup.is_some_and(|cgroup| cgroup == self.cgroup)
    }

    /// Frozen cgroup on the path, if any is known.
    pub(crate) fn frozen(&self, roots: &Roots) -> Option<PlacementError> {
        let cgroup = self.cgroup.clone();
        let read = move || {
            let mut folders = cgroup.upwards().filter(|folder| !cgroup.is_root(folder));
            Ok(folders.find(|folder| is_frozen(folder).unwrap_or(false)))
        };
        let frozen = process_reads::read_cgroups(roots, self.pid, read);
        frozen.ok().flatten().map(PlacementError::Frozen)
    }
}

impl AsFd for Placement {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// Cgroup to which a process's memory is charged, if it is of version 2. Processes can be started only in
/// one of version 2.
fn memory_cgroup(cgroups: Vec<Cgroup>) -> Result<Cgroup, PlacementError> {
    if cgroups.iter().any(|cgroup| cgroup.version == Version::One) {
        return Err(PlacementError::VersionOne);
    }
    cgroups.into_iter().next().ok_or(PlacementError::Hidden)
}

fn is_frozen(folder: &Path) -> Result<bool, PlacementError> {
    Ok(value(folder, "cgroup.freeze")? == Some(1))
}

/// Number in a file; `None` if there is no such file, or no limit.
fn value(folder: &Path, name: &str) -> Result<Option<u64>, PlacementError> {
    let path = folder.join(name);
    let text = read_optional(&path).ok_or_else(|| PlacementError::Unreadable(path.clone()))?;
    match text.as_deref().map(str::trim) {
        None | Some("max") => Ok(None),
        Some(number) => number.parse().map(Some).map_err(|_| PlacementError::Unreadable(path)),
    }
}

#[cfg(test)]
mod tests {
    use sys::fake::Machine;

    use super::*;

    /// Machine with process 42 in cgroup a/b.
    fn machine() -> Machine {
        Machine::new().with("proc/42/cgroup", "0::/a/b\n").with("sys/fs/cgroup/a/b/cgroup.procs", "42\n")
    }

    fn refusal(machine: &Machine) -> String {
        let message = Placement::of(&machine.roots, 42).unwrap_err().to_string();
        message.replace(&format!("{}/fs/cgroup/", machine.roots.sys.display()), "")
    }

    #[test]
    fn ordinary_cgroup_is_a_placement() {
        let machine = machine();
        for (name, text) in [
            ("memory.max", "max\n"),
            ("memory.oom.group", "0\n"),
            ("pids.max", "max\n"),
            ("pids.current", "3\n"),
            ("cgroup.freeze", "0\n"),
        ] {
            machine.write(&format!("sys/fs/cgroup/a/b/{name}"), text);
        }
        let place = Placement::of(&machine.roots, 42).unwrap();
        assert!(place.frozen(&machine.roots).is_none());
        machine.write("proc/43/cgroup", "0::/a/b\n");
        machine.write("proc/44/cgroup", "0::/a\n");
        assert!(
            [(42, true), (43, true), (44, false), (45, false)]
                .into_iter()
                .all(|(pid, is_in)| place.contains(&machine.roots, pid) == is_in)
        );
        machine.write("sys/fs/cgroup/a/cgroup.freeze", "1\n");
        assert!(place.frozen(&machine.roots).is_some());
    }

    #[test]
    fn root_cgroup_is_a_placement() {
        let machine = Machine::new().with("proc/42/cgroup", "0::/\n").with("sys/fs/cgroup/cgroup.procs", "42\n");
        assert!(Placement::of(&machine.roots, 42).is_ok());
    }

    #[test]
    fn frozen_ancestor_cgroup_freezes_its_members() {
        for folder in ["a/b", "a"] {
            let machine = machine();
            machine.write(&format!("sys/fs/cgroup/{folder}/cgroup.freeze"), "1\n");
            assert_eq!(refusal(&machine), format!("{folder} is frozen"));
        }
    }

    #[test]
    fn oom_group_at_any_height_prevents_placement() {
        for folder in ["a/b", "a"] {
            let machine = machine();
            machine.write(&format!("sys/fs/cgroup/{folder}/memory.oom.group"), "1\n");
            let killed = "is set: at a shortage of memory, of the node too, the whole cgroup would be killed";
            assert_eq!(refusal(&machine), format!("memory.oom.group of {folder} {killed}"));
            // Above a cgroup with a limit, too: the node may be out of memory.
            machine.write("sys/fs/cgroup/a/b/memory.current", "0\n");
            machine.write("sys/fs/cgroup/a/b/memory.max", "1073741824\n");
            assert_eq!(refusal(&machine), format!("memory.oom.group of {folder} {killed}"));
            machine.write(&format!("sys/fs/cgroup/{folder}/memory.oom.group"), "0\n");
            assert!(Placement::of(&machine.roots, 42).is_ok());
        }
    }

    #[test]
    fn process_slots_are_left_to_the_target() {
        for folder in ["a/b", "a"] {
            let machine = machine();
            machine.write(&format!("sys/fs/cgroup/{folder}/pids.max"), "100\n");
            machine.write(&format!("sys/fs/cgroup/{folder}/pids.current"), "92\n");
            assert_eq!(refusal(&machine), format!("pids.max of {folder} leaves less than 8 processes to it"));
            machine.write(&format!("sys/fs/cgroup/{folder}/pids.current"), "91\n");
            assert!(Placement::of(&machine.roots, 42).is_ok());
        }
    }

    #[test]
    fn actor_needs_room_below_the_memory_limit() {
        let machine = machine();
        machine.write("sys/fs/cgroup/a/memory.max", "2097152\n");
        machine.write("sys/fs/cgroup/a/memory.current", "1048577\n");
        assert_eq!(refusal(&machine), "less than 1024 KiB are left up to its memory limit");
        machine.write("sys/fs/cgroup/a/memory.current", "1048576\n");
        assert!(Placement::of(&machine.roots, 42).is_ok());
    }

    #[test]
    fn cgroup_v1_memory_prevents_placement() {
        let machine = Machine::new().with("proc/42/cgroup", "4:memory:/a\n0::/a\n");
        assert_eq!(refusal(&machine), "its memory is accounted by cgroups of version 1");
        // Other controllers do not matter.
        let machine = Machine::new().with("proc/42/cgroup", "1:name=systemd:/a\n0::/a\n");
        machine.write("sys/fs/cgroup/unified/a/cgroup.procs", "42\n");
        assert!(Placement::of(&machine.roots, 42).is_ok());
    }

    #[test]
    fn cgroup_locked_by_a_user_prevents_placement_and_blocks_no_other() {
        let machine = machine().with("proc/7/cgroup", "0::/c\n").with("sys/fs/cgroup/c/cgroup.procs", "7\n");
        let place = Placement::of(&machine.roots, 42).unwrap();
        machine.hang("sys/fs/cgroup/a/b/cgroup.freeze");
        for _ in 0..2 {
            assert_eq!(refusal(&machine), "its cgroup cannot be read: reads of its files hang");
        }
        assert!(!place.contains(&machine.roots, 42) && place.frozen(&machine.roots).is_none());
        assert_eq!(process_reads::hung().pids, [42]);
        assert!(sys::processes::start_ticks(&machine.roots, 42).is_ok(), "its other files are read");
        assert!(Placement::of(&machine.roots, 7).is_ok());
        machine.write("sys/fs/cgroup/a/b/cgroup.freeze", "0\n");
        while !place.contains(&machine.roots, 42) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn unreadable_cgroup_prevents_placement() {
        let deep = format!("0::{}\n", "/a".repeat(DEPTH_MAX + 1));
        for text in ["0::/../other\n", "nonsense\n", "", &deep] {
            let machine = Machine::new().with("proc/42/cgroup", text);
            machine.write(&format!("sys/fs/cgroup/{}/cgroup.procs", "a/".repeat(DEPTH_MAX + 1)), "42\n");
            assert_eq!(refusal(&machine), "its cgroup is not visible to uvmd, or more than 32 levels deep", "{text}");
        }
        let machine = machine();
        machine.write("sys/fs/cgroup/a/pids.max", "many\n");
        assert_eq!(refusal(&machine), "a/pids.max cannot be read");
        let gone = Machine::new().with("proc/42/cgroup", "0::/gone\n").with("sys/fs/cgroup/cgroup.procs", "");
        assert_eq!(refusal(&gone), "its cgroup is not visible to uvmd, or more than 32 levels deep");
    }
}

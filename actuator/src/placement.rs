//! Placement of actors: whether one may be started in a target's cgroup without harm to the target.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use sys::Roots;
use thiserror::Error;

use crate::{
    cgroup::{Cgroup, Version, if_there},
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
    #[error("its cgroup is not visible to uvmd")]
    Hidden,
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
    cgroup: Cgroup,
    folder: File,
}

impl Placement {
    /// The placement of this process.
    pub(crate) fn of(roots: &Roots, pid: u32) -> Result<Self, PlacementError> {
        let cgroup = accounted(roots, pid)?;
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
        if headroom::of_cgroups(roots, pid).ok_or(PlacementError::Hidden)? < FOOTPRINT_BYTES {
            return Err(PlacementError::Memory);
        }
        let folder = File::open(cgroup.folder()).map_err(PlacementError::NotOpened)?;
        Ok(Self { cgroup, folder })
    }

    /// Whether this process is in it.
    pub(crate) fn holds(&self, roots: &Roots, pid: u32) -> bool {
        accounted(roots, pid).is_ok_and(|cgroup| cgroup == self.cgroup)
    }

    /// Frozen cgroup on the path, if any.
    pub(crate) fn frozen(&self) -> Option<PlacementError> {
        let mut folders = self.cgroup.upwards().filter(|folder| !self.cgroup.is_root(folder));
        folders.find(|folder| is_frozen(folder).unwrap_or(false)).map(PlacementError::Frozen)
    }
}

impl AsFd for Placement {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// Cgroup that a process's memory is charged to, if it is of version 2, in which processes can be
/// started.
fn accounted(roots: &Roots, pid: u32) -> Result<Cgroup, PlacementError> {
    let cgroups = Cgroup::of(roots, pid).ok_or(PlacementError::Hidden)?;
    if cgroups.iter().any(|cgroup| cgroup.version == Version::One) {
        return Err(PlacementError::VersionOne);
    }
    cgroups.into_iter().next().ok_or(PlacementError::Hidden)
}

fn is_frozen(folder: &Path) -> Result<bool, PlacementError> {
    Ok(value(folder, "cgroup.freeze")? == Some(1))
}

/// Number in a file; `None` if there is none, or no limit.
fn value(folder: &Path, name: &str) -> Result<Option<u64>, PlacementError> {
    let path = folder.join(name);
    let text = if_there(&path).ok_or_else(|| PlacementError::Unreadable(path.clone()))?;
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
        assert!(place.frozen().is_none());
        machine.write("proc/43/cgroup", "0::/a/b\n");
        machine.write("proc/44/cgroup", "0::/a\n");
        assert!(
            [(42, true), (43, true), (44, false), (45, false)]
                .into_iter()
                .all(|(pid, is_in)| place.holds(&machine.roots, pid) == is_in)
        );
        machine.write("sys/fs/cgroup/a/cgroup.freeze", "1\n");
        assert!(place.frozen().is_some());
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
            // Above a limit too: the node's memory is above both.
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
    fn unreadable_cgroup_prevents_placement() {
        for text in ["0::/../other\n", "nonsense\n", ""] {
            let machine = Machine::new().with("proc/42/cgroup", text);
            assert_eq!(refusal(&machine), "its cgroup is not visible to uvmd", "{text}");
        }
        let machine = machine();
        machine.write("sys/fs/cgroup/a/pids.max", "many\n");
        assert_eq!(refusal(&machine), "a/pids.max cannot be read");
        let gone = Machine::new().with("proc/42/cgroup", "0::/gone\n").with("sys/fs/cgroup/cgroup.procs", "");
        assert_eq!(refusal(&gone), "its cgroup is not visible to uvmd");
    }
}

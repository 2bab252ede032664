//! Cgroups of a process in which memory is accounted: of version 2, and of version 1's memory
//! controller.
//!
//! Users can lock folders of cgroups, so all this is read by [`process_reads`](sys::process_reads).

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use sys::{Roots, processes};

/// Levels of cgroups that are walked. A user to whom a cgroup is delegated can nest them, and files of each level
/// are read by their path.
pub(crate) const DEPTH_MAX: usize = 32;

/// Version of the cgroup tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Version 1: the tree of the memory controller.
    One,
    /// Version 2, if version 1 does not have the memory controller.
    Two,
}

/// Cgroup of one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cgroup {
    pub(crate) version: Version,
    root: PathBuf,
    /// Path relative to the root.
    path: PathBuf,
}

impl Cgroup {
    /// Cgroups of a process, by /proc/PID/cgroup. `None` if one is more than [`DEPTH_MAX`] levels deep or outside
    /// this process's cgroup namespace.
    ///
    /// # Errors
    /// If the file is unreadable.
    pub(crate) fn of(roots: &Roots, pid: u32) -> io::Result<Option<Vec<Self>>> {
        let text = fs::read(processes::find_live_folder(roots, pid)?.join("cgroup"))?;
        Ok(Self::of_text(roots, text))
    }

    fn of_text(roots: &Roots, text: Vec<u8>) -> Option<Vec<Self>> {
        let mount = roots.sys.join("fs/cgroup");
        let mut found = Vec::new();
        for line in String::from_utf8(text).ok()?.lines() {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let (root, version) = match controllers {
                // If version 1 is mounted there, version 2 is in a subfolder.
                "" if mount.join("unified").is_dir() => (mount.join("unified"), Version::Two),
                "" => (mount.clone(), Version::Two),
                list if list.split(',').any(|name| name == "memory") => (mount.join("memory"), Version::One),
                _ => continue,
            };
            let path = Path::new(path).strip_prefix("/").ok()?;
            let is_visible = path.components().all(|part| matches!(part, Component::Normal(_)));
            if !is_visible || path.components().count() > DEPTH_MAX {
                return None;
            }
            found.push(Self { version, root, path: path.to_owned() });
        }
        Some(found)
    }

    /// Folder of the cgroup.
    pub(crate) fn folder(&self) -> PathBuf {
        self.root.join(&self.path)
    }

    /// Folders of this cgroup and of all cgroups above it; the root's is the last.
    pub(crate) fn upwards(&self) -> impl Iterator<Item = PathBuf> {
        self.path.ancestors().map(|above| self.root.join(above))
    }

    /// Whether this is the tree's root.
    pub(crate) fn is_root(&self, folder: &Path) -> bool {
        folder == self.root
    }
}

/// Content of a file; `Some(None)` if there is none.
#[expect(clippy::option_option, reason = "a file that is not there and one that cannot be read are two things")]
pub(crate) fn read_optional(path: &Path) -> Option<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Some(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(None),
        Err(_) => None,
    }
}

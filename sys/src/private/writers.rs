//! Users who may change a file.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use rustix::fs::{StatVfsMountFlags, statvfs};

use super::own_uid;

const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Users who may change a file, in addition to root and this process's user.
#[derive(Clone, Copy, Debug)]
pub struct Writers {
    owner: u32,
    /// Group with write permission.
    group: Option<u32>,
    is_everyone: bool,
}

impl Writers {
    /// No other users.
    #[must_use]
    pub fn own() -> Self {
        Self { owner: own_uid(), group: None, is_everyone: false }
    }

    /// Users who may change this file or folder; no other users if there is none.
    ///
    /// # Errors
    /// If it cannot be inspected.
    pub fn of(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::own()),
            found => Ok(Self::of_metadata(&found?)),
        }
    }

    fn of_metadata(found: &Metadata) -> Self {
        let mode = found.mode();
        Self {
            owner: found.uid(),
            group: (mode & GROUP_WRITE != 0).then(|| found.gid()),
            is_everyone: mode & OTHERS_WRITE != 0,
        }
    }

    /// Checks that only these may change this file or folder. No user may on a read-only file
    /// system, as which Kubernetes mounts configuration.
    ///
    /// # Errors
    /// If other users may, or if it cannot be inspected.
    pub fn check(self, path: &Path) -> io::Result<()> {
        let found = fs::metadata(path)?;
        let Self { owner, group, is_everyone } = Self::of_metadata(&found);
        if owner != 0 && owner != own_uid() && owner != self.owner {
            return Err(io::Error::other(format!(
                "it must belong to root or to uid {}, and belongs to uid {owner}",
                self.owner
            )));
        }
        let is_too_open = (group.is_some() && group != self.group || is_everyone) && !self.is_everyone;
        if is_too_open && !statvfs(path)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
            let mode = found.mode() & 0o7777;
            return Err(io::Error::other(format!("others may change it: chmod go-w, it has mode {mode:o}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn what_more_users_may_change_than_the_other_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [main, part] = ["main", "part"].map(|name| folder.path().join(name));
        for file in [&main, &part] {
            fs::write(file, "").unwrap();
        }
        let set = |file: &Path, mode| fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
        for (main_mode, part_mode, is_fit) in [
            (0o644, 0o644, true),
            (0o600, 0o644, true),
            (0o644, 0o664, false),
            (0o644, 0o646, false),
            (0o664, 0o664, true),
            (0o664, 0o666, false),
            (0o666, 0o666, true),
        ] {
            set(&main, main_mode);
            set(&part, part_mode);
            let checked = Writers::of(&main).unwrap().check(&part);
            assert_eq!(checked.is_ok(), is_fit, "{main_mode:o} {part_mode:o} {checked:?}");
        }
        set(&part, 0o664);
        let error = Writers::of(&folder.path().join("none")).unwrap().check(&part).unwrap_err().to_string();
        assert_eq!(error, "others may change it: chmod go-w, it has mode 664");
    }

    #[test]
    fn what_belongs_to_another_user_than_the_other_file_is_refused() {
        const SOMEBODY: u32 = 64_001;
        let folder = tempfile::tempdir().unwrap();
        let [main, part] = ["main", "part"].map(|name| folder.path().join(name));
        for file in [&main, &part] {
            fs::write(file, "").unwrap();
        }
        // Needs root.
        if std::os::unix::fs::chown(&part, Some(SOMEBODY), None).is_err() {
            return;
        }
        let error = Writers::of(&main).unwrap().check(&part).unwrap_err().to_string();
        assert_eq!(error, "it must belong to root or to uid 0, and belongs to uid 64001");
        std::os::unix::fs::chown(&main, Some(SOMEBODY), None).unwrap();
        assert!(Writers::of(&main).unwrap().check(&part).is_ok());
    }
}

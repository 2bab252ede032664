//! Folders and links on the way to a folder: a user who may change one of them decides what is
//! found at its end.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

use super::{OTHERS_WRITE, is_trusted, own_uid};

/// Maximum of links on the way, equal to the kernel's.
const LINKS_MAX: usize = 40;
/// Mode of a folder in which only its owner can rename or remove a file.
const STICKY: u32 = 0o1000;

/// Checks that only root and this process's user decide what is found at this path, as far as it
/// exists. The last component is not checked, except for its owner.
///
/// Each folder and link on the way must belong to one of the two. Other users must not have write
/// permission in a folder, unless it is sticky and the next component belongs to one of the two.
///
/// # Errors
/// Folder or link at fault, and its fault; or a component that cannot be inspected.
pub fn check_ancestors(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    // Remaining names, the next one last.
    let mut names = names_of(&path);
    let (mut folder, mut links) = (PathBuf::from("/"), 0);
    check_owner(&folder, &fs::symlink_metadata(&folder)?)?;
    while let Some(name) = names.pop() {
        if name == ".." {
            // Checked on the way down.
            folder.pop();
            continue;
        }
        let within = fs::symlink_metadata(&folder)?;
        if within.mode() & OTHERS_WRITE != 0 && within.mode() & STICKY == 0 {
            return Err(io::Error::other(format!(
                "other users may change files in {}: chmod go-w, it has mode {:o}",
                folder.display(),
                within.mode() & 0o7777
            )));
        }
        let next = folder.join(name);
        let found = match fs::symlink_metadata(&next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        // The caller checks the last one, unless it is a link.
        if !names.is_empty() || found.is_symlink() {
            check_owner(&next, &found)?;
        }
        if !found.is_symlink() {
            folder = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            folder = PathBuf::from("/");
        }
        names.extend(names_of(&target));
    }
    Ok(())
}

/// Names of a path, the last one first.
fn names_of(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    names.map(|part| part.as_os_str().to_owned()).collect()
}

fn check_owner(path: &Path, found: &fs::Metadata) -> io::Result<()> {
    let (owner, own) = (found.uid(), own_uid());
    if is_trusted(owner) {
        return Ok(());
    }
    let path = path.display();
    Err(io::Error::other(format!("{path} must belong to root or to uid {own}, and belongs to uid {owner}")))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::Permissions,
        os::unix::fs::{PermissionsExt, lchown, symlink},
    };

    use super::*;
    use crate::private::{check_folder, make_folder};

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn refusal(path: &Path) -> String {
        let refused = make_folder(path).unwrap_err();
        refused.to_string()
    }

    #[test]
    fn folder_below_a_writable_folder_is_rejected_and_not_created() {
        let root = tempfile::tempdir().unwrap();
        let (above, state) = (root.path().join("above"), root.path().join("above/a/state"));
        fs::create_dir(&above).unwrap();
        set_mode(&above, 0o777);
        assert_eq!(
            refusal(&state),
            format!("other users may change files in {}: chmod go-w, it has mode 777", above.display())
        );
        assert!(!above.join("a").exists());
        // In a sticky folder, other users cannot remove files of this one.
        set_mode(&above, 0o1777);
        make_folder(&state).unwrap();
        set_mode(&above, 0o755);
        check_folder(&state).unwrap();
    }

    #[test]
    fn folder_below_another_users_folder_is_rejected() {
        let root = tempfile::tempdir().unwrap();
        let (above, state) = (root.path().join("above"), root.path().join("above/state"));
        make_folder(&state).unwrap();
        // Only root can change a folder's owner.
        if lchown(&above, Some(12345), None).is_ok() {
            assert!(refusal(&state).starts_with(&format!("{} must belong to root", above.display())));
            assert!(check_folder(&state).is_err());
            set_mode(root.path(), 0o1777);
            assert!(check_folder(&state).is_err(), "a sticky folder is no help where the next is not ours");
        }
    }

    #[test]
    fn links_on_the_way_are_followed_and_checked() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        make_folder(&path("real/state")).unwrap();
        symlink("real", path("relative")).unwrap();
        symlink(path("relative/../real"), path("absolute")).unwrap();
        check_folder(&path("absolute/state")).unwrap();
        symlink(path("real/state"), path("state")).unwrap();
        check_folder(&path("state")).unwrap();
        set_mode(&path("real"), 0o770);
        let why = refusal(&path("state"));
        assert!(why.starts_with(&format!("other users may change files in {}", path("real").display())), "{why}");
        set_mode(&path("real"), 0o700);
        if lchown(path("relative"), Some(12345), None).is_ok() {
            let why = refusal(&path("absolute/state"));
            assert!(why.starts_with(&format!("{} must belong to root", path("relative").display())), "{why}");
        }
        symlink("loop", path("loop")).unwrap();
        assert!(check_folder(&path("loop/state")).is_err());
    }
}

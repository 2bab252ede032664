//! Private files of uvmd, in a folder that no other user can change.
//!
//! uvmd may be root. If another file was put in the place of such a file, a symbolic link is not
//! followed and a FIFO is not waited for.

mod ancestors;
mod writers;

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

pub use ancestors::check_ancestors;
pub use writers::Writers;

/// Creates the folder if missing, and checks that it is safe for private files. Nothing is created
/// in an unsafe place.
///
/// # Errors
/// If it cannot be created, or if users other than root and this process's may change its contents
/// or replace it.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    check_ancestors(folder)?;
    // If the folder exists, its disk is not accessed, as it may be full or read-only.
    if fs::metadata(folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    check_folder(folder)
}

/// Checks that the folder is safe for private files. A link to a safe folder is accepted.
///
/// # Errors
/// If it is missing, or if users other than root and this process's may change its contents or
/// replace it.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    check_ancestors(folder)?;
    let found = fs::metadata(folder)?;
    if !found.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let (owner, own) = (found.uid(), own_uid());
    if !is_trusted(owner) {
        return Err(io::Error::other(format!(
            "the folder must belong to root or to uid {own}, and belongs to uid {owner}"
        )));
    }
    if found.mode() & OTHERS_WRITE != 0 {
        return Err(io::Error::other(format!(
            "other users may change files in the folder: chmod go-w, it has mode {:o}",
            found.mode() & 0o7777
        )));
    }
    Ok(())
}

/// Mode bits of write permission for other users.
const OTHERS_WRITE: u32 = 0o022;

/// Whether only root or this process's user can change files of this user.
fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == own_uid()
}

/// Lock on a file, until it is dropped.
#[derive(Debug)]
pub struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // A close is not enough: a child being started may have the descriptor for a moment.
        let _ = self.0.unlock();
    }
}

/// Takes the exclusive lock of this file, which is created if missing; held as long as the result
/// lives. `None` while another process has it. If the file exists, its disk is not waited for.
///
/// # Errors
/// If it is not a regular file, belongs to a user other than root and this process's, or cannot be
/// created or locked.
pub fn lock(path: &Path) -> io::Result<Option<Lock>> {
    let mut options = OpenOptions::new();
    // An open for writing, or a creation, waits while the file system is frozen.
    let file = match open(options.read(true), path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            open(options.write(true).create(true).truncate(false).mode(0o600), path)?
        }
        found => found?,
    };
    let (owner, own) = (file.metadata()?.uid(), own_uid());
    if !is_trusted(owner) {
        return Err(io::Error::other(format!("it must belong to root or to uid {own}, and belongs to uid {owner}")));
    }
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Owner of files of this process.
fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Opens the file of this name, of any kind, without following links and without waiting.
///
/// # Errors
/// As [`OpenOptions::open`], and for a symbolic link.
pub fn open_itself(options: &OpenOptions, path: &Path) -> io::Result<File> {
    // A terminal does not become the controlling one.
    let mut options = options.clone();
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY).open(path).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ELOOP) => io::Error::other("it is a symbolic link; name the file itself"),
            // A FIFO without a reader, or a socket.
            Some(libc::ENXIO) => irregular(),
            _ => error,
        }
    })
}

/// Opens a regular file, and nothing else.
///
/// # Errors
/// As [`open_itself`], and for a file that is not regular.
pub fn open(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let file = open_itself(options, path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}

/// Error for a file that is not regular.
#[must_use]
pub fn irregular() -> io::Error {
    io::Error::other("it is not a regular file")
}

/// Contents of the file; `None` if there is none.
///
/// # Errors
/// If it is not a regular file, or cannot be read.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = match open(OpenOptions::new().read(true), path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Replaces the file of this name by a new one, for this process's user alone. At any moment, the
/// file has either the old or the new contents; on return the new ones are on the disk.
///
/// # Errors
/// If it cannot be written: then nothing has changed. Or if the folder cannot be flushed: then the
/// new file exists, but may not survive a crash of the machine; the message says so.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<File> {
    let new = beside(path, "new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Created here, or not at all.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder(path).map_err(|error| {
        io::Error::new(error.kind(), format!("it is written, but not synchronized with the disk: {error}"))
    })?;
    Ok(file)
}

/// Flushes the folder of this file to the disk: the folder holds the names.
///
/// # Errors
/// If it cannot be flushed.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Path with another ending: `overrides.json.new` for `overrides.json`.
#[must_use]
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn links_and_pipes_in_place_of_a_file_are_rejected() {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("other"), "of somebody else").unwrap();
        symlink(path("other"), path("link")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for (name, why) in [
            ("link", "it is a symbolic link; name the file itself"),
            ("folder", "it is not a regular file"),
            ("fifo", "it is not a regular file"),
            ("socket", "it is not a regular file"),
        ] {
            assert_eq!(read(&path(name)).unwrap_err().to_string(), why, "{name}");
        }
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err().to_string(), "it is not a regular file");
        assert_eq!(read(&path("none")).unwrap(), None);
        assert_eq!(read(&path("other")).unwrap(), Some(b"of somebody else".to_vec()));
        // A new file replaces them.
        for name in ["link", "fifo"] {
            replace(&path(name), b"ours").unwrap();
            assert_eq!(read(&path(name)).unwrap(), Some(b"ours".to_vec()));
        }
        assert_eq!(fs::read_to_string(path("other")).unwrap(), "of somebody else");
    }

    #[test]
    fn leftover_temporary_file_is_replaced_and_not_followed() {
        let folder = folder();
        let path = folder.path().join("x.json");
        let other = folder.path().join("other");
        fs::write(&other, "of somebody else").unwrap();
        symlink(&other, beside(&path, "new")).unwrap();
        replace(&path, b"1").unwrap();
        fs::write(beside(&path, "new"), "half").unwrap();
        replace(&path, b"2").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody else");
        assert_eq!((read(&path).unwrap(), fs::read_dir(folder.path()).unwrap().count()), (Some(b"2".to_vec()), 2));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn lock_has_one_holder_until_released() {
        let folder = folder();
        let path = folder.path().join("lock");
        let held = lock(&path).unwrap().unwrap();
        assert!(lock(&path).unwrap().is_none());
        drop(held);
        assert!(lock(&path).unwrap().is_some());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn lock_file_of_another_user_is_rejected() {
        let folder = folder();
        let (path, elsewhere) = (folder.path().join("lock"), folder.path().join("elsewhere"));
        symlink(&elsewhere, &path).unwrap();
        assert_eq!(lock(&path).unwrap_err().to_string(), "it is a symbolic link; name the file itself");
        assert!(!elsewhere.exists());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        // Only root can change a file's owner.
        if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
            let error = lock(&path).unwrap_err().to_string();
            assert!(error.ends_with("and belongs to uid 12345"), "{error}");
        }
    }

    #[test]
    fn writable_folder_is_rejected() {
        let folder = folder();
        let state = folder.path().join("a/b");
        make_folder(&state).unwrap();
        assert_eq!(fs::metadata(&state).unwrap().mode() & 0o777, 0o700);
        for (mode, is_fit) in [(0o755, true), (0o775, false), (0o702, false), (0o1777, false)] {
            fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(make_folder(&state).is_ok(), is_fit, "{mode:o}");
        }
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        // Only root can change a folder's owner.
        if std::os::unix::fs::chown(&state, Some(12345), None).is_ok() {
            let error = make_folder(&state).unwrap_err().to_string();
            assert!(error.ends_with("and belongs to uid 12345"), "{error}");
        }
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(check_folder(&folder.path().join("file")).is_err());
    }
}

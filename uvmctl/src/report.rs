//! Files that commands write: JSON reports of `plan` and `sim`, pages, and traces.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, ErrorKind, Write},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process,
};

use anyhow::Context;
use serde::Serialize;

/// Writes a report to a file, or to standard output for `-`. Returns whether it went to standard
/// output, which then takes no other output.
pub(crate) fn write(report: &impl Serialize, path: &Path) -> anyhow::Result<bool> {
    let content = |out: &mut dyn Write| {
        serde_json::to_writer(&mut *out, report)?;
        writeln!(out)
    };
    let to_stdout = path.as_os_str() == "-";
    if to_stdout {
        let mut out = BufWriter::new(io::stdout());
        content(&mut out).and_then(|()| out.flush()).context("cannot write to standard output")?;
    } else {
        replace(path, content)?;
    }
    Ok(to_stdout)
}

/// Writes a file as a whole: after an error there is the earlier file, or none.
pub(crate) fn replace(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    try_replace(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn try_replace(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let write = |file: File| {
        let mut out = BufWriter::new(file);
        content(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)
    };
    // A device, a pipe or a file with other names is written in place, as is what a link leads to.
    let known = fs::symlink_metadata(path);
    if known.as_ref().is_ok_and(|known| !known.is_file() || known.nlink() > 1) {
        return write(File::create(path)?).map(drop);
    }
    let temporary = temporary_path(path);
    let file = match OpenOptions::new().write(true).create_new(true).open(&temporary) {
        Ok(file) => file,
        // The folder takes no other file. On a full disk the earlier one would be lost.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
            return write(File::create(path)?).map(drop);
        }
        Err(error) => return Err(error),
    };
    if let Ok(known) = known {
        // Without the owner's permission, the file has that of a new one.
        let _ = file.set_permissions(known.permissions());
    }
    let result = write(file).and_then(|file| file.sync_all()).and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Path of the file until it is complete, in the same folder.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let names = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        let half = |out: &mut dyn Write| {
            out.write_all(b"half")?;
            out.flush()?;
            Err(io::Error::from(ErrorKind::StorageFull))
        };
        let error = replace(&path, half).unwrap_err().to_string();
        assert_eq!(error, format!("cannot write {}", path.display()));
        assert_eq!(names(), [""; 0]);
        replace(&path, |out| out.write_all(b"first")).unwrap();
        assert!(replace(&path, half).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        replace(&path, |out| out.write_all(b"second")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(names(), ["report.json"]);
    }

    #[test]
    fn a_link_is_followed_and_a_device_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&path, "first").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace(&link, |out| out.write_all(b"second")).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        replace(Path::new("/dev/null"), |out| out.write_all(b"x")).unwrap();
        assert!(replace(Path::new("/dev/full"), |out| out.write_all(b"x")).is_err());
    }
}

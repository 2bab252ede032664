//! Log file whose name may refer to another file at any time: log rotation renames or removes it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use sys::{private, reason};

use super::writer::Destination;

/// Process names and users in the log are not public.
const MODE: u32 = 0o640;

/// Log file that follows its name.
pub(crate) struct LogFile {
    path: PathBuf,
    /// `None` while it cannot be opened.
    file: Option<File>,
    /// Whether the file ends within a line, as after a full disk, a kill or a power cut.
    is_cut: bool,
    /// Whether the file may be new or renamed, without a sync of its folder.
    is_name_unsynced: bool,
    /// Sync of the folder, which holds the names.
    sync_folder: fn(&Path) -> io::Result<()>,
}

impl LogFile {
    /// File, with the reason if it cannot be opened yet: a full disk may have room later, and a read-only
    /// one may be mounted again.
    ///
    /// # Errors
    /// If the path is invalid.
    pub(crate) fn open(path: &Path) -> anyhow::Result<(Self, Option<io::Error>)> {
        let log = Self::later(path);
        match open(path) {
            Ok(file) => Ok((Self { is_cut: ends_within_a_line(path), file: Some(file), ..log }, None)),
            Err(error) if may_pass(error.kind()) => Ok((log, Some(error))),
            Err(error) => Err(anyhow!("cannot write to {}: {}", path.display(), reason(&error))),
        }
    }

    /// File that is opened with the first line.
    pub(crate) fn later(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            is_cut: false,
            is_name_unsynced: true,
            sync_folder: private::sync_folder,
        }
    }
}

impl Destination for LogFile {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let file = if let Some(file) = self.file.take().filter(|file| is_named(file, &self.path)) {
            file
        } else {
            let file = open(&self.path)?;
            (self.is_cut, self.is_name_unsynced) = (ends_within_a_line(&self.path), true);
            file
        };
        let file = self.file.insert(file);
        if self.is_cut {
            file.write_all(b"\n")?;
            self.is_cut = false;
        }
        let mut rest = line;
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => {
                    rest = rest.get(length..).unwrap_or_default();
                    self.is_cut = !rest.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        match file.sync_data() {
            // A device has no disk to sync.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(()),
            synced => synced?,
        }
        if self.is_name_unsynced {
            (self.sync_folder)(&self.path)?;
            self.is_name_unsynced = false;
        }
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<()> {
        // If it cannot be opened now, the next line retries.
        self.file = None;
        self.file = Some(open(&self.path)?);
        (self.is_cut, self.is_name_unsynced) = (ends_within_a_line(&self.path), true);
        Ok(())
    }
}

/// Whether the open file still has this name.
fn is_named(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

/// Whether an error of the disk may pass.
const fn may_pass(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem)
}

/// Whether a regular file has a last line without its end. The next line would be lost in it.
fn ends_within_a_line(path: &Path) -> bool {
    let last_byte = || -> io::Result<[u8; 1]> {
        let mut file = private::open(OpenOptions::new().read(true), path)?;
        // Fails if the file is empty.
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        Ok(last)
    };
    last_byte().is_ok_and(|last| last != *b"\n")
}

/// Opens the file as if for the first time: uvmd may be root, and users with write permission in
/// the folder may have replaced it.
fn open(path: &Path) -> io::Result<File> {
    let file = private::open_itself(OpenOptions::new().append(true).create(true).mode(MODE), path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_char_device() { Ok(file) } else { Err(private::irregular()) }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, process::Command};

    use super::*;

    #[test]
    fn existing_file_is_appended_to_and_a_removed_one_recreated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("uvmd.log");
        fs::write(&path, "earlier\n").unwrap();
        let (mut log, _) = LogFile::open(&path).unwrap();
        let mut written = |text: &str| {
            log.append(text.as_bytes()).unwrap();
            fs::read_to_string(&path).unwrap()
        };
        assert_eq!(written("one\n"), "earlier\none\n");
        fs::remove_file(&path).unwrap();
        assert_eq!(written("two\n"), "two\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777 & !MODE, 0);
    }

    #[test]
    fn line_after_a_cut_one_starts_a_line_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("uvmd.log"), folder.path().join("other"));
        let text = || fs::read_to_string(&path).unwrap();
        // Line that a former run could not complete, on a full disk.
        fs::write(&path, "whole\ncut").unwrap();
        let (mut log, _) = LogFile::open(&path).unwrap();
        log.append(b"one\n").unwrap();
        log.append(b"two\n").unwrap();
        assert_eq!(text(), "whole\ncut\none\ntwo\n");
        // Another file of the name.
        fs::write(&other, "cut").unwrap();
        fs::rename(&other, &path).unwrap();
        log.append(b"three\n").unwrap();
        assert_eq!(text(), "cut\nthree\n");
        fs::write(&other, "cut").unwrap();
        fs::rename(&other, &path).unwrap();
        log.reopen().unwrap();
        log.append(b"four\n").unwrap();
        assert_eq!(text(), "cut\nfour\n");
    }

    #[test]
    fn reopened_file_exists_before_the_next_line() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("uvmd.log"), folder.path().join("uvmd.log.1"));
        let (mut log, _) = LogFile::open(&path).unwrap();
        log.append(b"one\n").unwrap();
        fs::rename(&path, &old).unwrap();
        log.reopen().unwrap();
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), fs::read_to_string(&old).unwrap()),
            (String::new(), "one\n".to_owned())
        );
        log.append(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
    }

    #[test]
    fn name_of_a_new_file_is_on_the_disk_with_its_first_synced_line() {
        use std::cell::Cell;
        thread_local!(static SYNCED: Cell<u32> = const { Cell::new(0) });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let sync_folder = |path: &Path| {
            SYNCED.set(SYNCED.get() + 1);
            private::sync_folder(path)
        };
        let mut log = LogFile { sync_folder, ..LogFile::open(&path).unwrap().0 };
        let mut synced = || {
            log.append(b"one\n").unwrap();
            log.sync().unwrap();
            SYNCED.get()
        };
        assert_eq!((synced(), synced()), (1, 1));
        // Another file of its name, as after a rotation.
        fs::rename(&path, folder.path().join("audit.jsonl.1")).unwrap();
        assert_eq!((synced(), synced()), (2, 2));
        log.reopen().unwrap();
        log.sync().unwrap();
        assert_eq!(SYNCED.get(), 3);
    }

    #[test]
    fn replacement_of_the_file_is_neither_followed_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("uvmd.log"), folder.path().join("other"));
        fs::write(&other, "of somebody else\n").unwrap();
        let (mut log, _) = LogFile::open(&path).unwrap();

        fs::remove_file(&path).unwrap();
        symlink(&other, &path).unwrap();
        assert_eq!(log.append(b"one\n").unwrap_err().to_string(), "it is a symbolic link; name the file itself");
        assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody else\n");

        fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(log.append(b"two\n").unwrap_err().to_string(), "it is not a regular file");
        // With a reader it could be opened.
        let _reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!(log.append(b"three\n").unwrap_err().to_string(), "it is not a regular file");

        fs::remove_file(&path).unwrap();
        log.append(b"four\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "four\n");
    }
}

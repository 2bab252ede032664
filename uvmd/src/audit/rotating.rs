//! Files of the audit log: a full one becomes `NAME.1`, that one `NAME.2`, and so on; the oldest is
//! deleted.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use web::{Warning, Warnings};

use crate::log::{file::LogFile, writer::Destination};

/// Size and number of files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    /// Size from which a file is full.
    pub(crate) file_bytes_max: u64,
    /// Maximum number of full files, in addition to the current one.
    pub(crate) files_max: u32,
}

/// Log file with rotation.
pub(super) struct Rotating {
    path: PathBuf,
    file: LogFile,
    rotation: Rotation,
    /// Warnings, of which one is active while it cannot be written.
    warnings: Warnings,
}

impl Rotating {
    /// Appends to the file at `path`. If that cannot be opened, each line retries, with a warning
    /// until it succeeds.
    ///
    /// # Errors
    /// If it cannot be opened and `must_open` is set.
    pub(super) fn open(path: &Path, rotation: Rotation, must_open: bool, warnings: Warnings) -> anyhow::Result<Self> {
        let (file, error) = match LogFile::open(path) {
            Err(error) if !must_open => {
                let message = format!("{error:#}; changes over the API are refused, except those that restrict uvmd");
                tracing::warn!("{message}");
                warnings.raise(Warning::AuditUnavailable, message);
                (LogFile::later(path), None)
            }
            opened => opened?,
        };
        let rotating = Self { path: path.to_owned(), file, rotation, warnings };
        if let Some(error) = error {
            // The warning has the reason; each line retries.
            let _ = rotating.note(Err(error));
        }
        Ok(rotating)
    }

    fn note(&self, result: io::Result<()>) -> io::Result<()> {
        match &result {
            Ok(()) => self.warnings.clear(Warning::AuditUnavailable),
            Err(error) => {
                let (path, reason) = (self.path.display(), sys::reason(error));
                self.warnings.raise(Warning::AuditUnavailable, format!("cannot write to {path}: {reason}"));
            }
        }
        result
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// Renames the current file to the first full one.
    fn rotate(&self) -> io::Result<()> {
        let Rotation { files_max, .. } = self.rotation;
        for number in (1..files_max).rev() {
            match fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if files_max == 0 { fs::remove_file(&self.path) } else { fs::rename(&self.path, self.numbered(1)) }
    }
}

impl Destination for Rotating {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let is_full = |file: fs::Metadata| file.is_file() && file.len() >= self.rotation.file_bytes_max;
        let rotated = if fs::symlink_metadata(&self.path).is_ok_and(is_full) { self.rotate() } else { Ok(()) };
        let appended = rotated.and_then(|()| self.file.append(line));
        self.note(appended)
    }

    fn sync(&mut self) -> io::Result<()> {
        let synced = self.file.sync();
        self.note(synced)
    }

    fn reopen(&mut self) -> io::Result<()> {
        let reopened = self.file.reopen();
        self.note(reopened)
    }
}

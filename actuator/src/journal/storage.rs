//! Storage of the journal's lines.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use sys::private;

/// Storage. It may block: a disk can be stuck for good. After an error the written part is unknown,
/// and lines are replaced before any is appended.
pub(super) trait Storage: Send {
    /// Appends lines; with `is_durable`, they are on the disk on return.
    fn append(&mut self, text: &[u8], is_durable: bool) -> io::Result<()>;

    /// Replaces all lines. They are on the disk on return.
    fn replace(&mut self, text: &[u8]) -> io::Result<()>;
}

/// Private file of uvmd.
#[derive(Debug)]
pub(super) struct JournalFile {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
}

impl JournalFile {
    /// File that is yet to be written.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None, bytes: 0 }
    }
}

impl Storage for JournalFile {
    fn append(&mut self, text: &[u8], is_durable: bool) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        file.write_all_at(text, self.bytes)?;
        if is_durable {
            file.sync_data()?;
        }
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn replace(&mut self, text: &[u8]) -> io::Result<()> {
        self.file = None;
        self.file = Some(private::replace(&self.path, text)?);
        self.bytes = text.len() as u64;
        Ok(())
    }
}

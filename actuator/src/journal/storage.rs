//! Where the journal's lines are.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use sys::private;

/// May take its time: a disk can be stuck for good. After an error it is not known what of it was written, and lines are replaced before any is added.
pub(super) trait Storage: Send {
    /// Puts lines behind those that are there; where `is_durable`, they are on the disk when this returns.
    fn append(&mut self, text: &[u8], is_durable: bool) -> io::Result<()>;

    /// Puts these in the place of all. They are on the disk when this returns.
    fn replace(&mut self, text: &[u8]) -> io::Result<()>;
}

/// A file of uvmd's own.
#[derive(Debug)]
pub(super) struct JournalFile {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
}

impl JournalFile {
    /// One that has yet to be written.
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

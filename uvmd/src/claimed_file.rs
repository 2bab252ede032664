//! File that a program without privileges writes, as `uvmd-fleet` does: a claim. It is read without
//! waiting, up to a limit, and again only once it has changed.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use sys::private;

/// Maximum characters of a reason: it may quote the file.
const REASON_CHARS_MAX: usize = 300;

/// A file, and what was read of it.
#[derive(Debug)]
pub(crate) struct ClaimedFile {
    path: PathBuf,
    bytes_max: u64,
    /// File that was read last, valid or not.
    stamp: Option<Stamp>,
}

/// What a replaced or changed file differs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl ClaimedFile {
    pub(crate) const fn new(path: PathBuf, bytes_max: u64) -> Self {
        Self { path, bytes_max, stamp: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Content of the file; `None` if it is the one that was read last.
    pub(crate) fn read(&mut self) -> Result<Option<Vec<u8>>, String> {
        let before = self.stamp.take();
        let file = private::open(OpenOptions::new().read(true), &self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "there is no such file; uvmd-fleet writes it".to_owned(),
            _ => error.to_string(),
        })?;
        let stamp = Stamp::of(&file).map_err(|error| error.to_string())?;
        if before == Some(stamp) {
            self.stamp = before;
            return Ok(None);
        }
        // One that is changed in place may be read in the middle of it: the next check reads it again.
        let mut content = Vec::new();
        file.take(self.bytes_max + 1).read_to_end(&mut content).map_err(|error| error.to_string())?;
        self.stamp = Some(stamp);
        if content.len() as u64 > self.bytes_max {
            return Err(format!("it is longer than {} bytes", self.bytes_max));
        }
        Ok(Some(content))
    }
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self { inode: found.ino(), bytes: found.len(), modified: (found.mtime(), found.mtime_nsec()) })
    }
}

/// Reason of a refusal, for logs and people.
pub(crate) fn reason(error: &impl ToString) -> String {
    let printable = |character: char| if character.is_control() { ' ' } else { character };
    error.to_string().chars().take(REASON_CHARS_MAX).map(printable).collect()
}

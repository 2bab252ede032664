//! Content of a journal, for fuzz targets: read and rewritten, without a disk.

use std::io;

use model::{Advice, GpuUuid, ProcessId};

use super::{
    read::{self, Contents},
    storage::Storage,
    unrecognised::UNRECOGNISED_BYTES_MAX,
    writer::rewrite,
};

/// Content that was read.
#[derive(Debug)]
pub struct JournalContents {
    contents: Contents,
    /// Boot of the content.
    boot: String,
}

struct Text(Vec<u8>);

impl Storage for Text {
    fn append(&mut self, text: &[u8], _: bool) -> io::Result<()> {
        self.0.extend_from_slice(text);
        Ok(())
    }

    fn replace(&mut self, text: &[u8]) -> io::Result<()> {
        text.clone_into(&mut self.0);
        Ok(())
    }
}

impl JournalContents {
    /// Maximum bytes of unrecognised lines that are retained.
    pub const UNRECOGNISED_BYTES_MAX: usize = UNRECOGNISED_BYTES_MAX;

    /// Reads a text in this boot.
    ///
    /// # Errors
    /// As the source, which never fails.
    pub fn read(text: &[u8], boot: &str) -> io::Result<Self> {
        Ok(Self { contents: read::read(text, boot)?, boot: boot.to_owned() })
    }

    /// Advice in effect.
    #[must_use]
    pub fn in_force(&self) -> Vec<(ProcessId, GpuUuid, u64, u64, Advice)> {
        self.contents.in_force.iter().collect()
    }

    /// Unrecognised lines.
    #[must_use]
    pub fn unrecognised(&self) -> Vec<Vec<u8>> {
        self.contents.unrecognised.lines().map(<[u8]>::to_vec).collect()
    }

    /// Whether there were more unrecognised lines than are retained.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        self.contents.unrecognised.is_overfull
    }

    /// Text of a rewrite, if every process is alive.
    ///
    /// # Errors
    /// Never.
    pub fn rewritten(&self) -> io::Result<Vec<u8>> {
        let Self { contents, boot } = self;
        let mut text = Text(Vec::new());
        rewrite(&mut text, boot, contents.in_force.clone(), contents.unrecognised.clone(), |_| true)?;
        Ok(text.0)
    }
}

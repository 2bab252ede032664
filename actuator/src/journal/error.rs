//! Errors of the journal.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;

/// Reason why advice must not be given, or the journal cannot be written.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Another uvmd has it.
    #[error("the journal {} is in use: another uvmd runs", .0.display())]
    InUse(PathBuf),
    /// The file cannot be read or written.
    #[error("the journal {} cannot be {operation}: {}", path.display(), sys::reason(source))]
    Failed {
        /// Path of the file.
        path: PathBuf,
        /// The operation.
        operation: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The disk is stuck.
    #[error("the journal {} was not written for {:.1} s", path.display(), waited.as_secs_f64())]
    Stuck {
        /// Path of the file.
        path: PathBuf,
        /// Time without progress.
        waited: Duration,
    },
    /// The process has its number of ranges with advice, and all processes have those they share.
    #[error("the journal {} is full: too many ranges have advice in force", .0.display())]
    Full(PathBuf),
    /// Unrecognised line about the same memory.
    #[error("the journal {} has advice of a later uvmd (format {version}) on this memory", path.display())]
    Newer {
        /// Path of the file.
        path: PathBuf,
        /// Version of the line's format.
        version: u64,
    },
}

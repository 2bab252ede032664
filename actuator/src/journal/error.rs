//! What goes wrong with the journal.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;

/// Why advice must not be given, or the journal cannot be kept at all.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Another uvmd has it.
    #[error("the journal {} is in use: another uvmd runs", .0.display())]
    InUse(PathBuf),
    /// It cannot be read or written.
    #[error("the journal {} cannot be {what}: {}", path.display(), sys::reason(source))]
    Failed {
        /// Which.
        path: PathBuf,
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The disk takes nothing.
    #[error("the journal {} was not written for {:.1} s", path.display(), waited.as_secs_f64())]
    Stuck {
        /// Which.
        path: PathBuf,
        /// For how long.
        waited: Duration,
    },
    /// As much advice is in force as may be.
    #[error("the journal {} is full: the limit of advice in effect is reached", .0.display())]
    Full(PathBuf),
    /// It has a line about the same memory that is not understood.
    #[error("the journal {} has advice of a later uvmd (format {version}) on this memory", path.display())]
    Newer {
        /// Which.
        path: PathBuf,
        /// Of the line.
        version: u64,
    },
}
